from __future__ import annotations

import pytest

pytest.register_assert_rewrite("agent_core.testing.store_contract")
