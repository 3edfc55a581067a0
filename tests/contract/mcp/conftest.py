"""The runner as a real process."""

from tests.contract.runner.conftest import directory, runner

__all__ = ["directory", "runner"]
