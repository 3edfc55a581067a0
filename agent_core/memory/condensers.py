"""Our condensers: those that leave parts of a view out, and those that have a model sum up its middle."""

from __future__ import annotations

import json
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from agent_core.errors import LLMError, NoCondensationError
from agent_core.events.control import Condensation, RecallObservation
from agent_core.events.llm_events import CondensationSummaryEvent, MessageEvent, ObservationEvent, SystemPromptEvent
from agent_core.events.messages import Message
from agent_core.events.schema import Observation
from agent_core.llm.llm import LLM, AnyLLM, CallContext, LLMResponse
from agent_core.memory.condenser import AnyCondenser as AnyCondenser
from agent_core.memory.condenser import Condenser, PipelineCondenser, Requirement, RollingCondenser
from agent_core.memory.cut_positions import together
from agent_core.memory.transcript import CHARACTERS_PER_TOKEN, ViewEvent, as_text, shortened, tagged, weight
from agent_core.memory.view import View


class RecentEventsCondenser(Condenser):
    """Shows the first `keep_first` events and the newest, `max_events` in all (or less, where some belong together)."""

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recent": {}}

    keep_first: int = Field(default=1, ge=0)
    max_events: int = Field(default=100, ge=1)

    async def acondense(
        self, view: View, agent_llm: LLM | None = None, context: CallContext | None = None
    ) -> View | Condensation:
        if len(view) <= self.max_events:
            return view
        cuts = view.cut_positions()
        try:
            start = cuts.find_next(self.keep_first)
            end = max(start, cuts.find_tail(len(view) - max(0, self.max_events - start)))
        except ValueError:
            return view  # calls at the end are still open
        unread_ids = view.unread()
        middle = (event for event in view.events[start:end] if event.id in unread_ids)
        return view.showing([*view.events[:start], *middle, *view.events[end:]])


class AmortizedForgettingCondenser(RollingCondenser):
    """Forgets the middle once the view is longer than `max_size`, so that half of it is left."""

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"amortized": {}}

    max_size: int = Field(default=100, ge=1)
    keep_first: int = Field(default=1, ge=0)

    @model_validator(mode="after")
    def _leaves_a_tail(self) -> Self:
        if self.keep_first >= self.max_size // 2:
            raise ValueError(f"keep_first: {self.keep_first} must be less than half of max_size {self.max_size}")
        return self

    def requirement(self, view: View, agent_llm: LLM | None) -> Requirement | None:
        if view.wants_condensation:
            return Requirement.HARD
        return Requirement.SOFT if len(view) > self.max_size else None

    async def condensation(self, view: View, agent_llm: LLM | None, context: CallContext | None) -> Condensation:
        size = min(len(view), self.max_size)
        cuts = view.cut_positions()
        try:
            start = cuts.find_next(self.keep_first)
            end = cuts.find_tail(len(view) - max(1, size // 2 - start))
        except ValueError as error:
            raise NoCondensationError(str(error)) from error
        return _forgetting(view, view.events[start:end])


def _forgetting(view: View, events: Iterable[ViewEvent], **about: Any) -> Condensation:
    """The condensation that takes these out, but what was not read yet; raises `NoCondensationError` for nothing."""
    unread_ids = view.unread()
    forgotten = [event.id for event in events if event.id not in unread_ids]
    if not forgotten:
        raise NoCondensationError(f"of {len(view)} events none can be spared")
    return Condensation(forgotten_event_ids=forgotten, **about)


MAX_EVENT_LENGTH: Final = 10_000

RANKING_PROMPT: Final = """\
You choose what an agent keeps in mind of its work. Below are the events so far, each with its id.
Order the ids by how much the event matters for what the agent has still to do, the most important first: what the user
wants, decisions, results that are still needed, failures not to be repeated. Leave out what does not matter.
Answer with JSON alone: {"ids": [...]}.
"""

RANKING_FORM: Final[dict[str, Any]] = {
    "type": "json_schema",
    "json_schema": {
        "name": "ranking",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"ids": {"type": "array", "items": {"type": "integer"}}},
            "required": ["ids"],
            "additionalProperties": False,
        },
    },
}


class LLMAttentionCondenser(AmortizedForgettingCondenser):
    """Keeps the first `keep_first` events, and of the others those that `llm` finds most important.

    About half of `max_size` is left; where the model names too few, the newest fill up. `llm` must support structured
    output.
    """

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"llm_attention": {}}

    llm: AnyLLM

    @model_validator(mode="after")
    def _keeps_a_form(self) -> Self:
        if self.llm.features.response_schema is False:
            raise ValueError(f"llm: {self.llm.model} cannot answer in a given form; use another model")
        return self

    async def condensation(self, view: View, agent_llm: LLM | None, context: CallContext | None) -> Condensation:
        cuts = view.cut_positions()
        try:
            start = cuts.find_next(self.keep_first)
        except ValueError as error:
            raise NoCondensationError(str(error)) from error
        remaining = {event.id for event in (*view.events[:start], *view.events[max(cuts) :])} | view.unread()
        texts = [f"<EVENT id={one.id}>\n{shortened(as_text(one), MAX_EVENT_LENGTH)}\n</EVENT>" for one in view.events]
        question = [Message.user(f"{RANKING_PROMPT}\n" + "\n".join(texts))]
        try:
            response = await self.llm.acompletion(question, context=context, response_format=RANKING_FORM)
        except LLMError as error:
            raise NoCondensationError(f"the ranking could not be had: {error}") from error
        text = response.message.text
        try:
            ranking = json.loads(text[text.index("{") : text.rindex("}") + 1])["ids"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise NoCondensationError(f"the ranking cannot be read: {text[:80]!r}") from None
        ranking = ranking if isinstance(ranking, list) else []
        newest = dict.fromkeys(event.id for event in reversed(view.events))
        size = max(len(remaining) + 1, min(len(view), self.max_size) // 2)
        named = [one for one in ranking if isinstance(one, int) and not isinstance(one, bool) and one in newest]
        for event_id in dict.fromkeys([*named, *newest]):
            if len(remaining) >= size:
                break
            remaining.add(event_id)
        remaining = together(view.events, remaining)
        forgotten = [event for event in view.events if event.id not in remaining]
        metadata = {"condenser": self.kind, "model": self.llm.model, "usage_id": self.llm.usage_id}
        return _forgetting(view, forgotten, llm_response_id=response.id, metadata=metadata)


class ConversationWindowCondenser(RollingCondenser):
    """On requests only, and without a model: forgets the older half of what is not essential.

    Essential are the system prompt, the user's first message, the facts recalled for it, and a summary. Without a
    message or a summary nothing is forgotten.
    """

    handles_requests: ClassVar[bool] = True
    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"conversation_window": {}}

    def requirement(self, view: View, agent_llm: LLM | None) -> Requirement | None:
        return Requirement.HARD if view.wants_condensation else None

    async def condensation(self, view: View, agent_llm: LLM | None, context: CallContext | None) -> Condensation:
        firsts: dict[type[ViewEvent], int] = {}
        for index, event in enumerate(view.events):
            is_users = isinstance(event, MessageEvent) and event.source == "user"
            if is_users or isinstance(event, SystemPromptEvent | RecallObservation | CondensationSummaryEvent):
                firsts.setdefault(type(event), index)
        essential = set(firsts.values())
        if not any(isinstance(view.events[index], MessageEvent | CondensationSummaryEvent) for index in essential):
            raise NoCondensationError("there is no message of the user")
        remaining = max(1, (len(view) - len(essential)) // 2)
        try:
            end = view.cut_positions().find_next(len(view) - remaining)
        except ValueError as error:
            raise NoCondensationError(str(error)) from error
        older = enumerate(view.events[:end])
        return _forgetting(view, [event for index, event in older if index not in essential])


class MaskingCondenser(Condenser):
    """Replaces the content of observations before the newest `attention_window`; each stays the result of its call."""

    attention_window: int = Field(ge=0)

    async def acondense(
        self, view: View, agent_llm: LLM | None = None, context: CallContext | None = None
    ) -> View | Condensation:
        masks = self.masks(view.events)
        if not masks:
            return view
        return view.showing(
            event.model_copy(update={"observation": Observation.from_text(masks[index])})
            if index in masks and isinstance(event, ObservationEvent)
            else event
            for index, event in enumerate(view.events)
        )

    @abstractmethod
    def masks(self, events: list[ViewEvent]) -> dict[int, str]:
        """The text that stands for each observation to be masked, by its index."""


class ObservationMaskingCondenser(MaskingCondenser):
    """Masks every observation that is not among the newest `attention_window` events."""

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"observation_masking": {}}

    attention_window: int = Field(default=100, ge=0)

    def masks(self, events: list[ViewEvent]) -> dict[int, str]:
        old = events[: max(0, len(events) - self.attention_window)]
        return {index: "<MASKED>" for index, event in enumerate(old) if isinstance(event, ObservationEvent)}


class BrowserOutputCondenser(MaskingCondenser):
    """Masks what the browser showed, but for its address and the newest `attention_window` times."""

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"browser_output_masking": {}}

    attention_window: int = Field(default=1, ge=0)

    def masks(self, events: list[ViewEvent]) -> dict[int, str]:
        pages = {
            index: getattr(event.observation, "url", "") or "a page"
            for index, event in enumerate(events)
            if isinstance(event, ObservationEvent)
            and event.tool_name.startswith("browser")  # each step asks this of the whole view
            and event.tool_name[7:8] in ("", "_")
        }
        old = list(pages.items())[: max(0, len(pages) - self.attention_window)]
        return {index: f"Visited {page}. What the page showed is left out here." for index, page in old}


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
        unread_ids = view.unread()
        forgotten = [event for event in view.events[start:end] if event.id not in unread_ids]
        if not forgotten:
            raise NoCondensationError("only what the user has just said could be forgotten")
        texts = [as_text(event) for event in forgotten]
        if self.max_event_length is not None:
            texts = [shortened(text, self.max_event_length) for text in texts]
        return await self._condensed(forgotten, start, texts, context)

    async def hard_context_reset(
        self, view: View, agent_llm: LLM | None, context: CallContext | None
    ) -> Condensation | None:
        """Sum up everything but the system prompt, cutting long events shorter at each attempt."""
        start = _behind_prompt(view)
        unread_ids = view.unread()
        events = [event for event in view.events[start:] if event.id not in unread_ids]
        nothing_new = len(events) == 1 and isinstance(events[0], CondensationSummaryEvent)
        cuts = view.cut_positions()
        if not events or nothing_new or start not in cuts or len(view) not in cuts:
            return None
        texts = [as_text(event) for event in events]
        limit = max(len(text) for text in texts)
        for attempt in range(self.hard_context_reset_max_retries + 1):
            try:
                return await self._condensed(events, start, [shortened(text, limit) for text in texts], context)
            except NoCondensationError:
                if attempt == self.hard_context_reset_max_retries:
                    raise
                limit = max(1, int(limit * self.hard_context_reset_context_scaling))
        return None

    async def _condensed(
        self, forgotten: Sequence[ViewEvent], offset: int, texts: Sequence[str], context: CallContext | None
    ) -> Condensation:
        try:
            response = await self.ask([Message.user(f"{PROMPT}\n{tagged(texts)}")], context)
        except LLMError as error:
            raise NoCondensationError(f"the summary could not be had: {error}") from error
        summary = self.summary_in(response)
        if not summary.strip():
            raise NoCondensationError("the summary came back empty")
        return Condensation(
            forgotten_event_ids=[event.id for event in forgotten],
            summary=summary,
            summary_offset=offset,
            llm_response_id=response.id,
            metadata={"condenser": self.kind, "model": response.model, "usage_id": self.llm.usage_id},
        )

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
        properties = {
            name: {"type": "string", "description": text} for _, names in FORM.values() for name, text in names.items()
        }
        parameters = {"type": "object", "properties": properties, "required": list(FORM["Task"][1])}
        about = "Write down what must be kept of the events that will be removed."
        tool = {"type": "function", "function": {"name": TOOL, "description": about, "parameters": parameters}}
        choice = {"type": "function", "function": {"name": TOOL}}
        return await self.llm.acompletion(messages, [tool], context=context, tool_choice=choice)

    def summary_in(self, response: LLMResponse) -> str:
        for call in response.message.tool_calls or ():
            try:
                fields = json.loads(call.arguments)
            except (ValueError, RecursionError):
                continue
            if isinstance(fields, dict):
                return _as_markdown(fields)
        return super().summary_in(response)


def _as_markdown(fields: dict[str, Any]) -> str:
    lines: list[str] = []
    for heading, (_, names) in FORM.items():
        filled = [(name, str(fields[name]).strip()) for name in names if fields.get(name) not in (None, "", [], {})]
        if filled:
            lines.append(f"## {heading}")
            lines += [f"**{name.replace('_', ' ').capitalize()}**: {value}" for name, value in filled if value]
    return "\n".join(lines)


USAGE_ID = "condenser"
DEFAULT_MAX_SIZE = 120
KEEP_FIRST = 4
"""The system prompt, the user's first message, the facts recalled for it, and one more."""


def condenser_llm(llm: LLM) -> LLM:
    """The same model, counted apart, and without caching: no prompt comes twice."""
    apart = llm.model_copy(update={"usage_id": USAGE_ID, "caching_prompt": False})
    apart.reset_metrics()
    return apart


def get_default_condenser(llm: LLM, max_size: int | None = None) -> Condenser:
    """The server's condenser: requests first, then old pages of the browser, then summaries."""
    return PipelineCondenser(
        condensers=[
            ConversationWindowCondenser(),
            BrowserOutputCondenser(attention_window=2),
            LLMSummarizingCondenser(
                llm=condenser_llm(llm), keep_first=KEEP_FIRST, max_size=max_size or DEFAULT_MAX_SIZE
            ),
        ]
    )
