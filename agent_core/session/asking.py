"""What a library's conversation can be asked beside the agent's work, and which model it asks."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, TypeVar

from agent_core.agent.base import AgentBase
from agent_core.llm.llm import LLM
from agent_core.llm.metrics import ConversationStats
from agent_core.llm.profiles import ProfileStore
from agent_core.session import operations
from agent_core.session.conversation_loop import ConversationLoop
from agent_core.session.conversation_state import ConversationView
from agent_core.session.goal import FOLLOW_UP, GoalVerdict
from agent_core.session.status import ExecutionStatus

T = TypeVar("T")


class Asking(ABC):
    """The part of a `Conversation` that asks models, and chooses them."""

    agent: AgentBase
    state: ConversationView
    _work: ConversationLoop

    @property
    def stats(self) -> ConversationStats:
        """What the conversation's models have cost, by usage id: the agent's, the condenser's, those of questions."""
        return self.state.stats

    conversation_stats = stats

    def ask_agent(self, question: str) -> str:
        """An answer to a question about the conversation, also while it runs; nothing of it goes into the log.

        Raises:
            ValueError: the question is empty.
            LLMError: the model cannot be asked, or says nothing.
        """
        own = self.agent.ask_agent(question)
        return own if own is not None else self._do(operations.answer(self._work, question))

    def generate_title(self, llm: LLM | None = None, max_length: int = 50) -> str:
        """A title after the user's first message, by this model or the agent's; never fails for the model's sake.

        Raises:
            ValueError: the user has said nothing yet, or `max_length` is less than 4.
        """
        return self._do(operations.title(self._work, llm or self.agent.llm, max_length))

    def pursue(self, objective: str, *, max_runs: int = 5, judge: LLM | None = None) -> GoalVerdict:
        """Send the objective, and run until a judge (the agent's model, or the given one) finds that it is reached.

        After each run that ended well but is not enough the agent is told what is missing. Returns the last verdict,
        also when `max_runs` were not enough, or the agent came to rest otherwise (it waits, is stuck, at a limit).

        Raises:
            ValueError: the objective is empty, or `max_runs` is less than 1.
            ConversationRunError: a run failed.
            LLMError: the judge could not be asked.
        """
        if not objective.strip() or max_runs < 1:
            raise ValueError("objective must be a text, and max_runs at least 1")
        told = objective
        for left in range(max_runs - 1, -1, -1):
            self.send_message(told)
            self.run()
            verdict = self._do(operations.judge_goal(self._work, objective, judge or self.agent.llm))
            if verdict.complete or not left or self.state.execution_status is not ExecutionStatus.FINISHED:
                break
            told = FOLLOW_UP.format(missing=verdict.missing)
        return verdict

    def switch_llm(self, llm: LLM) -> None:
        """Have this model work from the next run on; the tools, the history and what was spent stay as they are.

        Raises:
            RuntimeError: the agent is at work; pause it first.
        """
        self._make_tools()
        self._do(operations.use_agent(self._work, self.agent.with_model(llm)))
        self.agent = self.state.agent = self._work.agent

    def switch_profile(self, name: str, directory: str | os.PathLike[str] | None = None) -> None:
        """`switch_llm` to a stored model; `directory` is where those are, the user's if None.

        Raises:
            FileNotFoundError: there is none of that name.
            ValueError: the name or the file is none of a profile.
            RuntimeError: the agent is at work; pause it first.
        """
        self.switch_llm(ProfileStore(directory).load(name))

    @abstractmethod
    def send_message(self, message: str, sender: str | None = None) -> None: ...

    @abstractmethod
    def run(self) -> None: ...

    @abstractmethod
    def _do(self, work: Coroutine[Any, Any, T]) -> T: ...

    @abstractmethod
    def _make_tools(self) -> None: ...
