"""What a program does in its conversation beside the agent: it calls tools, and has the history shortened (8.3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, TypeVar

from agent_core.agent.base import AgentBase
from agent_core.events.schema import Action, Observation
from agent_core.session import operations
from agent_core.session.conversation_loop import ConversationLoop
from agent_core.session.direct_call import tool_named
from agent_core.session.recorded_call import call_recorded

T = TypeVar("T")


class Acting(ABC):
    """The part of a `Conversation` that acts without its agent."""

    agent: AgentBase
    _work: ConversationLoop

    def execute_tool(self, name: str, action: Action) -> Observation:
        """Call a tool of the agent's, in the conversation's sandbox; the log and the agent do not hear of it.

        Only of a tool whose state is in the log, such as the task list, they do: as of a call of the user.

        Raises:
            KeyError: there is no such tool.
            TypeError: it takes another kind of action.
            NotImplementedError: it has no executor.
            ToolError, ValueError: the call failed.
            SandboxError: the sandbox cannot be had.
        """
        self._make_tools()
        definition = tool_named(self.agent.tools_map, name, action)
        return self._do(call_recorded(self._work, definition, action))

    def rerun_actions(self) -> list[Observation]:
        """Do again what the agent's tools did in this conversation, in the sandbox as it is now, and without a model.

        The log does not hear of it. Stops behind the first call that fails, whose observation is the last one then.

        Raises:
            KeyError: a tool is not there any more.
            SandboxError: the sandbox cannot be had.
        """
        self._make_tools()
        return self._do(operations.rerun_actions(self._work, self.agent.tools_map))

    def condense(self) -> None:
        """Have the history shortened now: at once between runs, before the next answer of the model in a run.

        Raises:
            ValueError: the agent has no condenser, or none that does so when asked.
            NoCondensationError: there is too little to be shortened, or its summary cannot be had.
        """
        condenser = self.agent.condenser
        if condenser is None or not condenser.handles_condensation_requests():
            raise ValueError("condenser: the agent has none that shortens the history when it is asked to; give it one")
        self._do(operations.condense(self._work))

    @abstractmethod
    def _do(self, work: Coroutine[Any, Any, T]) -> T: ...

    @abstractmethod
    def _make_tools(self) -> None: ...
