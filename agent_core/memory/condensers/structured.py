"""`StructuredSummaryCondenser`: a model fills in a form instead of writing a summary."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from agent_core.events.messages import Message
from agent_core.llm.llm import CallContext, LLMResponse
from agent_core.memory.condensers.summarizing import LLMSummarizingCondenser

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
"""The parts of the summary, and the fields in each."""


class StructuredSummaryCondenser(LLMSummarizingCondenser):
    """Like its base, with a summary of named fields, which a tool call of the model fills in.

    An answer without a readable call counts with its text; without that there is no summary.
    """

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
    """The filled-in fields under their headings; empty ones are left out."""
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
