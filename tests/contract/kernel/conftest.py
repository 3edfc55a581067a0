"""The shared suite shows what went wrong as any test module does."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("agent_core.testing.ipython_contract", "agent_core.testing.ipython_contract")
