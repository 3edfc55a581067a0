"""One call of a model that takes no tools: its prompt in text, and its answer read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_core.errors import FunctionCallValidationError
from agent_core.llm.render import WireMessage
from agent_core.llm.response import LLMResponse
from agent_core.llm.text_protocol.answers import with_call
from agent_core.llm.text_protocol.prompts import as_text, next_number


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
