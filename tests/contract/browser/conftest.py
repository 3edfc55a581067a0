"""The shared suite shows what went wrong as any test module does."""

from __future__ import annotations

import pytest

for _name in ("contract", "hostile", "restless", "tabs"):
    pytest.register_assert_rewrite(f"tests.contract.suites.browser_{_name}")
