"""One call of a model that takes no tools: its prompt in text, and its answer read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_core.errors import FunctionCallNotExistsError, FunctionCallValidationError
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.events.schema import reduced
from agent_core.llm.render import WireMessage
from agent_core.llm.response import LLMResponse
from agent_core.llm.text_protocol.prompts import as_text, next_number
from agent_core.llm.text_protocol.syntax import CALL_START, found

_ALIASES = {
    "str_replace_editor": "file_editor",
    "str_replace": "file_editor",
    "bash": "terminal",
    "execute_bash": "terminal",
}
_RISK = "security_risk"
"""Never asked for, and never refused: models that saw it at some tools say it of all of them."""
_TRUTH = {"true": True, "false": False}


def with_call(message: Message, tools: Sequence[Mapping[str, Any]], number: int, *, is_cut: bool = False) -> Message:
    """The answer with the call in its last text as a tool call, numbered `number`; unchanged when it has none.

    `is_cut` says that the answer ended at the output limit: a call without its end is half a call then.

    Raises:
        FunctionCallValidationError: it calls a tool, or with arguments, that there are not.
    """
    if message.tool_calls or not message.content or not isinstance(message.content[-1], TextContent):
        return message
    text = message.content[-1].text
    if is_cut and CALL_START in text and not text.rstrip().endswith("</function>"):
        raise FunctionCallValidationError(
            "The call was cut off at the model's output limit, so nothing was run: do it in smaller parts."
        )
    call = found(text)
    if call is None:
        return message
    schemas = {str(tool["function"]["name"]): tool["function"].get("parameters") or {} for tool in tools}
    name = call.name if call.name in schemas else _ALIASES.get(call.name, call.name)
    if name not in schemas:
        raise FunctionCallNotExistsError(f"There is no function {call.name[:100]!r}. Available: {sorted(schemas)}.")
    arguments = json.dumps(_checked(name, call.arguments, reduced(schemas[name])), ensure_ascii=False)
    before = [TextContent(text=call.before)] if call.before else []
    made = MessageToolCall(id=f"toolu_{number:02d}", name=name, arguments=arguments)
    return message.model_copy(update={"content": [*message.content[:-1], *before], "tool_calls": [made]})


def _checked(name: str, given: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    if unknown := sorted(given.keys() - properties.keys() - {_RISK}):
        raise FunctionCallValidationError(
            f"Function {name!r} has no parameter {unknown[0][:100]!r}. Its parameters: {sorted(properties)}."
        )
    missing = sorted(set(schema.get("required") or ()) - given.keys() - {_RISK})
    if missing:
        raise FunctionCallValidationError(f"The call of {name!r} lacks the required parameters {missing}.")
    return {key: _value(name, key, text, properties.get(key) or {}) for key, text in given.items()}


def _value(name: str, key: str, text: str, schema: Mapping[str, Any]) -> Any:
    allowed = schema.get("enum")
    value = _typed(name, key, text.strip() if allowed else text, schema.get("type"))
    if allowed and value not in allowed:
        raise FunctionCallValidationError(f"Parameter {key!r} of {name!r} must be one of {list(allowed)}.")
    return value


def _typed(name: str, key: str, text: str, wanted: object) -> Any:
    problem = f"Parameter {key!r} of {name!r} must be"
    if wanted == "integer":
        try:
            return int(text.strip())
        except ValueError:
            raise FunctionCallValidationError(f"{problem} an integer.") from None
    if wanted == "number":
        return _json(text, (int, float), f"{problem} a number.")
    if wanted == "boolean":
        truth = _TRUTH.get(text.strip().lower())
        if truth is None:
            raise FunctionCallValidationError(f"{problem} true or false.")
        return truth
    if wanted == "array":
        return _json(text, (list,), f"{problem} a JSON array.")
    if wanted == "object":
        return _json(text, (dict,), f"{problem} a JSON object.")
    return text


def _json(text: str, kinds: tuple[type, ...], problem: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise FunctionCallValidationError(problem) from None
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise FunctionCallValidationError(problem)
    return value


class TextCalls:
    """The two ways of a call with tools in text.

    Raises:
        FunctionCallConversionError: a call of the history cannot be written as text.
    """

    def __init__(self, messages: Sequence[WireMessage], tools: Sequence[Mapping[str, Any]], *, example: bool) -> None:
        self._tools = tools
        self._number = next_number(messages)
        self.prompt = as_text(messages, tools, example=example)

    def read(self, response: LLMResponse) -> LLMResponse:
        """The answer with the call that its text holds as a tool call.

        Raises:
            FunctionCallValidationError: the call cannot be; the error carries the answer as it was.
        """
        if not self._tools:
            return response
        is_cut = response.finish_reason in ("length", "max_tokens")
        try:
            message = with_call(response.message, self._tools, self._number, is_cut=is_cut)
        except FunctionCallValidationError as error:
            error.response = response
            raise
        return replace(response, message=message)
