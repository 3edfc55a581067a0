"""The switch_llm tool: another of the conversation's stored models goes on with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from pydantic import Field

from agent_core.agent.base import AgentBase, llms_in
from agent_core.agent.toolbox import stored_models
from agent_core.errors import ToolError
from agent_core.events.llm_events import ObservationEvent
from agent_core.events.schema import Action, Observation
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM
from agent_core.llm.registry import StoredModels
from agent_core.tools.context import ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import built_in
from agent_core.tools.spec import ToolAnnotations

logger = logging.getLogger(__name__)


class SwitchLLMAction(Action):
    """Which model, and why."""

    profile_name: str = Field(description="Name of the stored model that is to go on.")
    reason: str = Field(default="", description="Why it suits the task better, in a sentence.")


class SwitchLLMObservation(Observation):
    """The model of `profile_name` works from the next step on."""

    profile_name: str = ""


@built_in
class SwitchLLMTool(ToolDefinition[SwitchLLMAction, SwitchLLMObservation]):
    """The `switch_llm` tool, for the stored models of the conversation that it is created for."""

    tool_name: ClassVar[str] = "switch_llm"
    resources: ClassVar[tuple[str, ...] | None] = ("tool:switch_llm",)
    description: str = (
        "Hand the conversation over to another of the user's models, for example to a stronger one when you get no"
        " further. It knows all that you know."
    )
    annotations: ToolAnnotations = ToolAnnotations(title="Switch model", destructiveHint=False, openWorldHint=False)

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
        tool = cls._define(**params)
        return [tool if "executor" in params else tool.set_executor(partial(_switched, stored_models(conv_state)))]

    @classmethod
    def make_executor(cls) -> Callable[..., Any]:
        return partial(_switched, stored_models(None))


def _switched(
    models: StoredModels, action: SwitchLLMAction, conversation: ToolContext | None = None
) -> SwitchLLMObservation:
    llm = _loaded(models, action.profile_name)
    return SwitchLLMObservation.from_text(f"From the next step on {llm.model} works.", profile_name=action.profile_name)


def _loaded(models: StoredModels, name: str) -> LLM:
    try:
        return models.load(name)
    except (OSError, ValueError) as error:
        raise ToolError(str(error)) from None


class SwitchedModel:
    """Follows a log to the agent that goes on by it: the given one, with the one of `models` that it has switched to.

    `hide` gets the keys of models that are switched to.
    """

    def __init__(self, agent: AgentBase, models: StoredModels, hide: Callable[[Iterable[str]], None]) -> None:
        self._configured = self._present = agent
        self._models = models
        self._hide = hide

    def forgotten(self) -> AgentBase:
        self._present = self._configured
        return self._present

    def after(self, event: AnyEvent) -> AgentBase:
        """The agent after this event. A model that is not stored any more is not switched to."""
        seen = event.observation if isinstance(event, ObservationEvent) else None
        if isinstance(seen, SwitchLLMObservation) and seen.profile_name and not seen.is_error:
            try:
                llm = _loaded(self._models, seen.profile_name)
            except ToolError as error:
                logger.warning("the model stays %s: %s", self._present.llm.model, error)
                return self._present
            self._hide([secret for one in llms_in(llm) for secret in one.secrets])
            self._present = self._present.with_model(llm)
        return self._present
