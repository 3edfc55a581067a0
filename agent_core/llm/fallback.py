"""Which models to ask when one fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from agent_core.llm.profile_files import ProfileFiles

logger = logging.getLogger(__name__)

Model = TypeVar("Model", bound=BaseModel)


class FallbackStrategy(BaseModel):
    """The profiles of the models that are asked, in this order, when a call failed after its retries.

    That happens only for failures that another model may not have (rate limit, timeout, server down), and anew for each
    call. What the others cost is counted for the model that failed. If all fail, the first failure is the one reported.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    fallback_llms: tuple[str, ...] = Field(min_length=1)
    """Names of profiles."""
    profile_store_dir: Path | None = None
    """Where they are; None means in the user's home."""

    def models(self, kind: type[Model]) -> Iterator[Model]:
        """The models in their order; a profile that cannot be read is passed over, with a word in the log."""
        files = ProfileFiles(self.profile_store_dir)
        for name in self.fallback_llms:
            try:
                model = kind.model_validate(files.read(name))
            except (OSError, ValueError) as error:
                logger.warning("the fallback %r is passed over: %s", name, error)
                continue
            yield model
