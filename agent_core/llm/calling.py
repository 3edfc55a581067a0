"""What callers may give a model, and calls from programs that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from agent_core.llm.completion import RetryListener
from agent_core.llm.deltas import DeltaListener
from agent_core.llm.exchange import CallContext
from agent_core.llm.render import WireMessage

T = TypeVar("T")


class HasSchema(Protocol):
    """Something, a tool, that describes itself to a model."""

    def to_openai_tool(self, *, add_security_risk_prediction: bool = False) -> dict[str, Any]:
        """Its function-tool schema."""
        ...


Schema = HasSchema | dict[str, Any]
"""A function-tool schema, or what makes one."""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """What a call is made with; see `LLM.acompletion`."""

    messages: Sequence[WireMessage]
    tools: Sequence[dict[str, Any]]
    on_delta: DeltaListener | None
    on_retry: RetryListener | None
    context: CallContext
    options: dict[str, Any]


_SETTINGS = {
    "timeout": "timeout",
    "num_retries": "num_retries",
    "extra_headers": "extra_headers",
    "extra_body": "litellm_extra_body",
    "drop_params": "drop_params",
}


def settings_in(options: dict[str, Any]) -> dict[str, Any]:
    """What of the options of a call is no part of its request, but a setting of the model by its field; taken out."""
    given = {field: options.pop(name, None) for name, field in _SETTINGS.items()}
    return {field: value for field, value in given.items() if value is not None}


def as_schemas(tools: Sequence[Schema], add_security_risk_prediction: bool) -> Sequence[dict[str, Any]]:
    """The schemas of the tools."""
    return [
        one if isinstance(one, dict) else one.to_openai_tool(add_security_risk_prediction=add_security_risk_prediction)
        for one in tools
    ]


def run_alone(work: Callable[[], Awaitable[T]]) -> T:
    """Do asynchronous work in an event loop of its own, in a thread of its own: the caller may have a loop already."""
    result: Future[T] = Future()

    async def awaited() -> T:
        return await work()

    def run() -> None:
        try:
            result.set_result(asyncio.run(awaited()))
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            result.set_exception(error)

    thread = threading.Thread(target=run, name="model-call", daemon=True)
    thread.start()
    thread.join()
    return result.result()
