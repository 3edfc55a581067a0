"""Condensers that have a model sum up the middle of a long view."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from agent_core.errors import LLMError, NoCondensationError
from agent_core.events.control import Condensation
from agent_core.events.llm_events import CondensationSummaryEvent, SystemPromptEvent
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM, AnyLLM, CallContext, LLMResponse
from agent_core.memory.condenser import Requirement, RollingCondenser
from agent_core.memory.transcript import CHARACTERS_PER_TOKEN, ViewEvent, as_text, shortened, tagged, weight
from agent_core.memory.view import View

PROMPT = """You keep the memory of an agent that works on a task with tools. Its history has become too long:
what follows below is the part that will be removed. Write what the agent must still know, so that it can go on as if
it had read everything. A former summary in it will be gone as well: take over what still matters.

Use these headings, and leave out those that have nothing under them:
USER_CONTEXT: what the user wants, in the user's own terms; decisions and corrections of the user
TASK_TRACKING: every task with its id and its status, word for word, if a task list is kept
COMPLETED: what is done, with the results that later steps need
PENDING: what is still to be done
CURRENT_STATE: values, paths, names, running processes, open questions
For work on code also:
CODE_STATE: files and what is in them that matters (functions, types, signatures)
TESTS: which fail, which pass, how they are run, what the failures say
CHANGES: edits made so far and why
DEPENDENCIES: packages, versions, tools found or installed
VERSION_CONTROL: branch, commits, state of the working tree, links

Be exact and short. Write no introduction.
"""


class LLMSummarizingCondenser(RollingCondenser):
    """Keeps the first `keep_first` events and a tail, and has `llm` sum up what is between.

    It acts when the view is longer than `max_size` events (softly), when its tokens exceed `max_tokens` or what the
    agent's model can take, or when asked to.
    """

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "llm": {"max_size": 100, "keep_first": 1, "max_event_length": 10_000},
        "llm_summarizing": {},
    }

    llm: AnyLLM
    max_size: int = Field(default=240, gt=0)
    max_tokens: int | None = Field(default=None, gt=0)
    keep_first: int = Field(default=2, ge=0)
    max_event_length: int | None = Field(default=None, ge=1)
    """Characters of an event that the summing model is shown; None: all."""
    minimum_progress: float = Field(default=0.1, gt=0, lt=1)
    hard_context_reset_max_retries: int = Field(default=5, ge=1)
    hard_context_reset_context_scaling: float = Field(default=0.8, gt=0, lt=1)

    @model_validator(mode="after")
    def _leaves_a_tail(self) -> Self:
        if self.max_size // 2 - self.keep_first - 1 <= 0:
            raise ValueError(
                f"keep_first: {self.keep_first} leaves no room for a tail in half of max_size {self.max_size};"
                f" give at most {max(0, self.max_size // 2 - 2)}, or a larger max_size"
            )
        return self

    def requirement(self, view: View, agent_llm: LLM | None) -> Requirement | None:
        if view.wants_condensation or self._exceeds_tokens(view, agent_llm):
            return Requirement.HARD
        return Requirement.SOFT if len(view) > self.max_size else None

    async def condensation(self, view: View, agent_llm: LLM | None, context: CallContext | None) -> Condensation:
        start, end = self._range(view, agent_llm)
        kept_back = view.unread()
        forgotten = [event for event in view.events[start:end] if event.id not in kept_back]
        if not forgotten:
            raise NoCondensationError("only what the user has just said could be forgotten")
        texts = [as_text(event) for event in forgotten]
        if self.max_event_length is not None:
            texts = [shortened(text, self.max_event_length) for text in texts]
        return self._condensation(forgotten, start, *await self._summary(texts, context))

    async def hard_context_reset(
        self, view: View, agent_llm: LLM | None, context: CallContext | None
    ) -> Condensation | None:
        """Sum up everything but the system prompt, cutting long events shorter at each attempt."""
        start = _behind_prompt(view)
        kept_back = view.unread()
        events = [event for event in view.events[start:] if event.id not in kept_back]
        nothing_new = len(events) == 1 and isinstance(events[0], CondensationSummaryEvent)
        if not events or nothing_new or not view.cut_positions().whole(start, len(view)):
            return None
        texts = [as_text(event) for event in events]
        limit = max(len(text) for text in texts)
        for attempt in range(self.hard_context_reset_max_retries + 1):
            try:
                found = await self._summary([shortened(text, limit) for text in texts], context)
            except NoCondensationError:
                if attempt == self.hard_context_reset_max_retries:
                    raise
                limit = max(1, int(limit * self.hard_context_reset_context_scaling))
                continue
            return self._condensation(events, start, *found)
        return None

    def _condensation(
        self, forgotten: Sequence[ViewEvent], offset: int, summary: str, response: LLMResponse
    ) -> Condensation:
        return Condensation(
            forgotten_event_ids=[event.id for event in forgotten],
            summary=summary,
            summary_offset=offset,
            llm_response_id=response.id,
            metadata={"condenser": self.kind, "model": response.model, "usage_id": self.llm.usage_id},
        )

    async def _summary(self, texts: Sequence[str], context: CallContext | None) -> tuple[str, LLMResponse]:
        try:
            response = await self.ask([Message.user(f"{PROMPT}\n{tagged(texts)}")], context)
        except LLMError as error:
            raise NoCondensationError(f"the summary could not be had: {error}") from error
        summary = self.summary_in(response)
        if not summary.strip():
            raise NoCondensationError("the summary came back empty")
        return summary, response

    async def ask(self, messages: Sequence[Message], context: CallContext | None) -> LLMResponse:
        return await self.llm.acompletion(messages, context=context)

    def summary_in(self, response: LLMResponse) -> str:
        return response.message.text.strip()

    def _range(self, view: View, agent_llm: LLM | None) -> tuple[int, int]:
        """First index to forget and the one after the last."""
        size = len(view)
        tails = []
        if view.wants_condensation:
            tails.append(size // 2 - self.keep_first - 1)
        if size > self.max_size:
            tails.append(self.max_size // 2 - self.keep_first - 1)
        if self._exceeds_tokens(view, agent_llm):
            tails.append(self._tail_for_tokens(view, agent_llm))
        cuts = view.cut_positions()
        try:
            start = cuts.find_next(max(self.keep_first, _behind_prompt(view)))
            end = cuts.find_next(size - min(tails))
        except ValueError as error:
            raise NoCondensationError(str(error)) from error
        gains = end - start > 1
        if end - start == 1 and not isinstance(view.events[start], CondensationSummaryEvent):
            gains = self._exceeds_tokens(view, agent_llm)  # the view gets no shorter, but perhaps smaller
        if not gains or end - start < size * self.minimum_progress:
            raise NoCondensationError(f"only {max(0, end - start)} of {size} events could be forgotten")
        return start, end

    def _limit(self, agent_llm: LLM | None) -> int | None:
        limits = [self.max_tokens, agent_llm.features.max_input_tokens if agent_llm is not None else None]
        known = [limit for limit in limits if limit]
        return min(known) if known and agent_llm is not None else None

    def _exceeds_tokens(self, view: View, agent_llm: LLM | None) -> bool:
        limit = self._limit(agent_llm)
        return limit is not None and view.token_estimate() > limit

    def _tail_for_tokens(self, view: View, agent_llm: LLM | None) -> int:
        """How many events may stay at the end so that about half of the limit is used."""
        surplus = view.token_estimate() - (self._limit(agent_llm) or 0) // 2
        rest = view.events[self.keep_first :]
        fitting = bisect_right(
            list(accumulate(map(weight, rest))), surplus, key=lambda characters: characters // CHARACTERS_PER_TOKEN
        )
        return max(0, len(rest) - fitting - 1)


def _behind_prompt(view: View) -> int:
    """The first index that may be forgotten: the system prompt is told anew each time."""
    return 1 if view.events and isinstance(view.events[0], SystemPromptEvent) else 0


TOOL: Final = "write_summary"

FORM: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "Task": (
        "What the user wants and how far it is",
        {
            "user_context": "What the user wants, in the user's own terms, with decisions and corrections",
            "completed_tasks": "What is done, with the results that later steps need",
            "pending_tasks": "What is still to be done",
            "current_state": "Values, paths, names, running processes, open questions",
        },
    ),
    "Code": (
        "What was changed",
        {
            "files_modified": "Files made or changed, with their paths",
            "function_changes": "Functions added or changed, with their signatures",
            "data_structures": "Types and structures that matter, with their fields",
        },
    ),
    "Tests": (
        "What is known from tests",
        {
            "tests_written": "Whether tests were written, and which",
            "tests_passing": "Whether they pass",
            "failing_tests": "Those that fail",
            "error_messages": "What the failures say",
        },
    ),
    "Version control": (
        "What is stored where",
        {
            "branch_created": "Whether a branch was made for this work",
            "branch_name": "Its name",
            "commits_made": "Commits, and what is in them",
            "pr_created": "Whether a pull request was made",
            "pr_status": "Its state, number or address",
        },
    ),
    "Other": (
        "What else matters",
        {
            "dependencies": "Packages, versions and tools found or installed",
            "other_relevant_context": "Anything else that the agent must still know",
        },
    ),
}


class StructuredSummaryCondenser(LLMSummarizingCondenser):
    """Fills in a summary of named fields by a tool call of the model; without a readable call its text counts."""

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"structured": {}}

    max_size: int = Field(default=100, gt=0)
    keep_first: int = Field(default=1, ge=0)
    max_event_length: int | None = Field(default=10_000, ge=1)

    @model_validator(mode="after")
    def _can_call(self) -> Self:
        if not self.llm.features.function_calling:
            raise ValueError(f"llm: {self.llm.model} takes no tools, and the summary is a call of one; use another")
        return self

    async def ask(self, messages: Sequence[Message], context: CallContext | None) -> LLMResponse:
        wanted = {"type": "function", "function": {"name": TOOL}}
        return await self.llm.acompletion(messages, [_tool()], context=context, tool_choice=wanted)

    def summary_in(self, response: LLMResponse) -> str:
        for call in response.message.tool_calls or ():
            if (fields := _fields(call.arguments)) is not None:
                return as_markdown(fields)
        return super().summary_in(response)


def as_markdown(fields: dict[str, Any]) -> str:
    """The fields that are filled in, under their headings."""
    lines: list[str] = []
    for heading, (_, names) in FORM.items():
        filled = [(name, str(fields[name]).strip()) for name in names if fields.get(name) not in (None, "", [], {})]
        if filled:
            lines.append(f"## {heading}")
            lines += [f"**{name.replace('_', ' ').capitalize()}**: {value}" for name, value in filled if value]
    return "\n".join(lines)


def _fields(arguments: str) -> dict[str, Any] | None:
    try:
        fields = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _tool() -> dict[str, Any]:
    properties = {
        name: {"type": "string", "description": text} for _, names in FORM.values() for name, text in names.items()
    }
    needed = list(FORM["Task"][1])
    return {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Write down what must be kept of the events that will be removed.",
            "parameters": {"type": "object", "properties": properties, "required": needed},
        },
    }
