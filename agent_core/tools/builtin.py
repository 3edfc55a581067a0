"""Tools that act on the conversation alone: finish, think, request_condensation."""

from __future__ import annotations

from pydantic import Field

from agent_core.events.plain_text import one_line
from agent_core.events.schema import Action, Observation
from agent_core.tools.context import ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import built_in
from agent_core.tools.spec import ToolAnnotations


class FinishAction(Action):
    """The last word on a task."""

    message: str = Field(description="What was done and what came of it, for the user.")

    def __str__(self) -> str:
        return one_line(self.message)


class FinishObservation(Observation):
    """The acknowledgement; its content is the message."""


@built_in
class FinishTool(ToolDefinition[FinishAction, FinishObservation]):
    """The `finish` tool; the controller ends the run when it sees the result."""

    tool_name = "finish"
    resources = ()
    description: str = "Say that the task is done, or that it cannot be done and why. Call it alone and last."
    annotations: ToolAnnotations = ToolAnnotations.read_only("Finish")

    @staticmethod
    async def function(action: FinishAction, conversation: ToolContext | None = None) -> FinishObservation:
        return FinishObservation.from_text(action.message)


class ThinkAction(Action):
    """A thought."""

    thought: str = Field(description="The thought to write down.")

    def __str__(self) -> str:
        return one_line(self.thought)


class ThinkObservation(Observation):
    """The acknowledgement."""


@built_in
class ThinkTool(ToolDefinition[ThinkAction, ThinkObservation]):
    """The `think` tool: a place for a thought, without any effect."""

    tool_name = "think"
    resources = ()
    description: str = (
        "Write down a thought: weigh approaches, plan, or reason about a result. It changes nothing and finds out"
        " nothing."
    )
    annotations: ToolAnnotations = ToolAnnotations.read_only("Think")

    @staticmethod
    async def function(action: ThinkAction, conversation: ToolContext | None = None) -> ThinkObservation:
        return ThinkObservation.from_text("Your thought has been logged.")


class CondensationRequestAction(Action):
    """The wish to have the history condensed."""


class CondensationRequestObservation(Observation):
    """The acknowledgement."""


@built_in
class CondensationRequestTool(ToolDefinition[CondensationRequestAction, CondensationRequestObservation]):
    """The `request_condensation` tool."""

    tool_name = "request_condensation"
    resources = ()
    description: str = (
        "Ask for the history of this conversation to be condensed, when it has grown so long that you lose the thread."
        " What matters should stand in your latest messages."
    )
    annotations: ToolAnnotations = ToolAnnotations.read_only("Condense")

    @staticmethod
    async def function(
        action: CondensationRequestAction, conversation: ToolContext | None = None
    ) -> CondensationRequestObservation:
        """Put the request into the log, where the condenser finds it before the next step."""
        if conversation is None:
            raise ValueError("there is no conversation whose history could be condensed")
        await conversation.request_condensation()
        return CondensationRequestObservation.from_text(
            "The older part of the history is summed up before your next step, if this agent has a condenser."
        )
