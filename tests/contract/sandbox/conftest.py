"""Shows what went wrong in the shared suites as in any test module."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("agent_core.testing.sandbox_contract", "agent_core.testing.sandbox_isolation")
