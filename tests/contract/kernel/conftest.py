"""The shared suite shows what went wrong as any test module does."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.contract.suites.ipython_contract")
