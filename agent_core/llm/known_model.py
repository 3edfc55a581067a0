"""A configured model: what is known of it, and what its calls have cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, PrivateAttr

from agent_core.llm.abilities import abilities_of, lookup_name
from agent_core.llm.config import LLMConfig
from agent_core.llm.features import ModelFeatures
from agent_core.llm.metrics import Metrics
from agent_core.llm.model_table import model_entry
from agent_core.llm.served import SERVED


def private(model: BaseModel) -> dict[str, Any]:
    """The private attributes by name; by their names alone pydantic finds them slowly."""
    return model.__pydantic_private__ or {}


class KnownModel(LLMConfig):
    """The configuration of a model with what follows from it, and the count of what its calls cost."""

    _metrics: Metrics = PrivateAttr(default_factory=Metrics)
    _abilities: tuple[int, ModelFeatures] | None = PrivateAttr(default=None)

    @property
    def metrics(self) -> Metrics:
        """What the calls of this model cost so far, in this process."""
        return self._metrics

    def reset_metrics(self) -> None:
        """Count from nothing, and no longer together with the models that this one was copied from or to."""
        self._metrics = Metrics()

    def restore_metrics(self, metrics: Metrics) -> None:
        """Go on counting from a copy of these figures, alone."""
        self._metrics = metrics.deep_copy()

    @property
    def features(self) -> ModelFeatures:
        """What the model can do, own settings first; looked up once per model and what servers say of theirs."""
        known: tuple[int, ModelFeatures] | None = private(self)["_abilities"]
        if known is None or known[0] != SERVED.generation:
            known = self._abilities = SERVED.generation, abilities_of(self)
        return known[1]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with these fields changed; both count together (see `metrics`)."""
        copy = super().model_copy(update=update, deep=deep)
        copy._abilities = None
        copy._metrics = self._metrics
        return copy

    @property
    def effective_max_input_tokens(self) -> int | None:
        """The context window: the configured one, else the published one, None when neither is known."""
        return self.features.max_input_tokens

    @property
    def effective_max_output_tokens(self) -> int | None:
        """The longest answer: the configured one, else the published one, None when neither is known."""
        return self.features.max_output_tokens

    @property
    def model_info(self) -> Mapping[str, Any] | None:
        """The public table's entry for this model; None when it is not listed."""
        return model_entry(lookup_name(self))

    def vision_is_active(self) -> bool:
        """Whether images are sent."""
        return self.features.vision

    def is_caching_prompt_active(self) -> bool:
        """Whether the ends of reusable prefixes are marked."""
        return self.caching_prompt and self.features.prompt_cache_marks

    def uses_responses_api(self) -> bool:
        """Whether the model is asked through the Responses API."""
        return self.features.responses
