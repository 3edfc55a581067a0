"""`LLM`: a configured model and its calls."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Protocol, Self, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    PrivateAttr,
    SerializationInfo,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
)

from agent_core.errors import FunctionCallValidationError, LLMError
from agent_core.events.messages import Message
from agent_core.llm.capabilities import (
    capabilities_of,
    check_window,
    extra_body_of,
    headers_of,
    lookup_name,
    parameters_of,
    with_options,
)
from agent_core.llm.completion import PreparedCall, RetryListener
from agent_core.llm.config import DEMO_MODEL, LLMConfig
from agent_core.llm.deltas import DeltaListener, TokenListener, combined_listener
from agent_core.llm.demo import DemoTransport
from agent_core.llm.features import ModelFeatures, model_entry
from agent_core.llm.metrics import CHARS_PER_TOKEN, Metrics
from agent_core.llm.profiles import EXPOSE_FALLBACKS, FallbackStrategy
from agent_core.llm.render import WireMessage, adapted, has_images, render_message, texts_of, with_images
from agent_core.llm.response import LLMResponse, ResponseKind, RetryNotice, classify
from agent_core.llm.text_protocol import STOP_WORD, TextCalls
from agent_core.llm.tool_schemas import fitted, safe_name
from agent_core.llm.transport.client import shared_client
from agent_core.llm.transport.connections import HttpConnections
from agent_core.llm.transport.exchange import CallContext, CompletionRequest, Transport, present_context
from agent_core.llm.transport.recordings import RecordingTransport, ReplayTransport, log_completion
from agent_core.llm.transport.routes import endpoint_of
from agent_core.llm.transport.served_models import SERVED
from agent_core.troubles import Trouble, coded

__all__ = ["DEMO_MODEL", "LLM", "AnyLLM", "CallContext", "LLMResponse", "ResponseKind", "RetryNotice", "classify"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class HasSchema(Protocol):
    """A tool, as far as a model is concerned."""

    def to_openai_tool(self, *, add_security_risk_prediction: bool = False) -> dict[str, Any]:
        """Its function-tool schema."""


Schema = HasSchema | dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Arguments of a call; see `LLM.acompletion`."""

    messages: Sequence[WireMessage]
    tools: Sequence[dict[str, Any]]
    on_delta: DeltaListener | None
    on_retry: RetryListener | None
    context: CallContext
    options: dict[str, Any]


_SETTINGS = ("timeout", "num_retries", "extra_headers", "extra_body", "drop_params")


def as_schemas(tools: Sequence[Schema], add_security_risk_prediction: bool) -> Sequence[dict[str, Any]]:
    """The schemas of the tools."""
    return [
        one if isinstance(one, dict) else one.to_openai_tool(add_security_risk_prediction=add_security_risk_prediction)
        for one in tools
    ]


def run_alone(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do asynchronous work in an event loop of its own, in a thread of its own: the caller may have a loop already."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(asyncio.run(work()))
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            result.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), name="model-call", daemon=True).start()
    return result.result()


def transport_of(model: str, record_to: str | None) -> Transport:
    """The script for ``demo/…``, a recording for ``replay/<file>``, else the client; recorded where asked for."""
    prefix, _, name = model.partition("/")
    if prefix == "demo":
        inner: Transport = DemoTransport()
    elif prefix == "replay":
        inner = _replay(name)
    else:
        inner = shared_client()
    return RecordingTransport(inner, Path(record_to).expanduser()) if record_to else inner


@lru_cache(maxsize=32)
def _replay(name: str) -> ReplayTransport:
    return ReplayTransport(Path(name).expanduser())


@lru_cache(maxsize=4)
def _tokenizer(path: str) -> Any:
    """What counts tokens by this ``tokenizer.json``; None where it cannot be used, which is logged once."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(path)
    except Exception as error:  # noqa: BLE001 - tokenizers raises nothing more exact
        logger.warning("custom_tokenizer %r cannot be used, tokens are estimated: %s", path, error)
        return None


def private(model: BaseModel) -> dict[str, Any]:
    """The private attributes by name; by their names alone pydantic finds them slowly."""
    return model.__pydantic_private__ or {}


class LLM(LLMConfig):
    """A model and how to call it. Frozen, so it may be shared and copied freely; holds no connection.

    `model` names provider and model (``anthropic/claude-…``, ``openai/gpt-…``, ``ollama/…``). With `base_url`,
    ``openai/x`` or a name without a provider is any OpenAI-compatible server there; no key from the environment is sent
    to it; without one, the name of a known model needs no provider. ``demo/tour`` is the built-in scripted model;
    ``replay/<file>`` answers from a recording.

    `metrics` counts what its calls cost; copies made with `model_copy` count together, until `reset_metrics` of one.
    """

    _metrics: Metrics = PrivateAttr(default_factory=Metrics)
    _abilities: tuple[int, ModelFeatures] | None = PrivateAttr(default=None)
    _transport: Transport | None = PrivateAttr(default=None)

    @field_validator("fallback_strategy")
    @classmethod
    def _fallbacks_are_models(cls, value: FallbackStrategy | None) -> FallbackStrategy | None:
        return value.with_models(LLM) if value is not None else None

    @model_serializer(mode="wrap")
    def _with_fallbacks(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        strategy = self.fallback_strategy
        if strategy is not None and info.context and info.context.get(EXPOSE_FALLBACKS):
            found = strategy.found(LLM)
            context = {**info.context, EXPOSE_FALLBACKS: False}  # whoever is fallen back to falls back to nothing
            models = {name: llm.model_dump(mode=info.mode, context=context) for name, llm in found}
            written["fallback_strategy"] = {"fallback_llms": list(models), "profiles": models} if models else None
        return written

    @property
    def metrics(self) -> Metrics:
        return self._metrics

    def reset_metrics(self) -> None:
        """Count from nothing, and no longer together with the models that this one was copied from or to."""
        self._metrics = Metrics()

    def restore_metrics(self, metrics: Metrics) -> None:
        """Go on counting from a copy of these metrics, alone."""
        self._metrics = metrics.deep_copy()

    @property
    def features(self) -> ModelFeatures:
        """What the model can do, own settings first; looked up once per model and what servers say of theirs."""
        known: tuple[int, ModelFeatures] | None = private(self)["_abilities"]
        if known is None or known[0] != SERVED.generation:
            known = self._abilities = SERVED.generation, capabilities_of(self)
        return known[1]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with these fields changed; both count together (see `metrics`)."""
        copy = super().model_copy(update=update, deep=deep)
        copy._abilities = None
        copy._metrics = self._metrics
        return copy

    @property
    def effective_max_input_tokens(self) -> int | None:
        """The context window (below: the longest answer), as configured, else as published, else None."""
        return self.features.max_input_tokens

    @property
    def effective_max_output_tokens(self) -> int | None:
        return self.features.max_output_tokens

    @property
    def model_info(self) -> Mapping[str, Any] | None:
        return model_entry(lookup_name(self))

    def vision_is_active(self) -> bool:
        return self.features.vision

    def is_caching_prompt_active(self) -> bool:
        return self.caching_prompt and self.features.prompt_cache_marks

    def uses_responses_api(self) -> bool:
        return self.features.responses

    def __eq__(self, other: object) -> bool:
        """Whether the configuration is the same; what was spent makes no difference."""
        if not isinstance(other, LLM):
            return NotImplemented
        same = type(self) is type(other) and self._transport is other._transport
        return same and self.__dict__ == other.__dict__

    def using(self, transport: Transport) -> LLM:
        """The same model, reached another way (tests, recordings)."""
        copy = self.model_copy()
        copy._transport = transport
        return copy

    def render(self, message: Message) -> WireMessage:
        """The message in this model's wire form: of message and configuration only, so it may be kept."""
        features = self.features
        marks = self.caching_prompt and features.prompt_cache_marks
        return render_message(
            message, features, vision=features.vision, cache_marks=marks, max_text=self.max_message_chars
        )

    async def warm_up(self) -> None:
        """Do beforehand what takes long the first time, so that the first call need not wait for it; never raises."""
        try:
            await (self._transport or transport_of(self.model, self.record_to)).prepare(endpoint_of(self))
        except LLMError as error:
            logger.debug("%s is not ready: %s", self.model, error)  # the first call says so to whoever makes it

    def adapted(self, messages: Sequence[WireMessage]) -> list[WireMessage]:
        """Messages that another model rendered, as this one wants them."""
        features = self.features
        return [adapted(message, features) for message in messages]

    def get_token_count(
        self,
        messages: Sequence[Message | WireMessage],
        tools: Sequence[Schema] | None = None,
        add_security_risk_prediction: bool = False,
    ) -> int:
        """Tokens of a prompt: by `custom_tokenizer`, or else estimated, a quarter of its characters."""
        schemas = (json.dumps(tool) for tool in as_schemas(tools or (), add_security_risk_prediction))
        texts = chain(texts_of(self._wire(messages)), schemas)
        tokenizer = _tokenizer(self.custom_tokenizer) if self.custom_tokenizer is not None else None
        if tokenizer is None:
            return sum(map(len, texts)) // CHARS_PER_TOKEN
        return sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)

    async def acompletion(
        self,
        messages: Sequence[Message | WireMessage],
        tools: Sequence[Schema] | None = None,
        *,
        on_delta: DeltaListener | None = None,
        on_token: TokenListener | None = None,
        on_retry: RetryListener | None = None,
        context: CallContext | None = None,
        call_context: CallContext | None = None,
        add_security_risk_prediction: bool = False,
        **options: Any,
    ) -> LLMResponse:
        """Ask the model; always streamed.

        `messages` may be rendered already, `tools` are schemas or what makes them (with an argument for the call's risk
        if `add_security_risk_prediction`). `on_delta` hears the text as it comes, under the id of the response to be,
        and `TextDiscarded` when an attempt breaks off after that; `on_token` the pieces of text alone, and may be
        asynchronous; `on_retry` is told before each wait. All are called in the event loop and must not block.
        `context` (or `call_context`) is the conversation that the call is made for, by default the one whose step it is
        made in. `options` are those of the request by their OpenAI names, and beat what is configured (None leaves one
        out); so do `timeout`, `num_retries`, `extra_headers`, `extra_body` and `drop_params`. Cancelling closes the
        connection and ends a wait at once.

        Raises `LLMError` after the last retry, fit for a user, and `FunctionCallValidationError` for an impossible call
        that a model without tools of its own wrote; that answer was counted.
        """
        schemas = as_schemas(tools or (), add_security_risk_prediction)
        made_for = context or call_context or present_context()
        settings = {name: value for name in _SETTINGS if (value := options.pop(name, None)) is not None}
        if "extra_body" in settings:
            settings["litellm_extra_body"] = settings.pop("extra_body")
        llm = self.model_copy(update=settings) if settings else self
        async with combined_listener(on_delta, on_token) as listener:
            call = CallArguments(self._wire(messages), schemas, listener, on_retry, made_for, options)
            try:
                return await llm._ask(call)
            except LLMError as error:
                if llm.fallback_strategy is None or not error.retryable:
                    raise
                response = await llm._ask_others((other for _, other in llm.fallback_strategy.found(LLM)), call)
                if response is None:
                    raise
                return response

    def completion(
        self, messages: Sequence[Message | WireMessage], tools: Sequence[Schema] | None = None, **options: Any
    ) -> LLMResponse:
        return run_alone(lambda: self.acompletion(messages, tools, **options))

    async def aresponses(
        self, messages: Sequence[Message | WireMessage], tools: Sequence[Schema] | None = None, **options: Any
    ) -> LLMResponse:
        """`acompletion` through the Responses API, whatever `api_mode` says."""
        return await self.model_copy(update={"api_mode": "responses"}).acompletion(messages, tools, **options)

    def responses(
        self, messages: Sequence[Message | WireMessage], tools: Sequence[Schema] | None = None, **options: Any
    ) -> LLMResponse:
        return run_alone(lambda: self.aresponses(messages, tools, **options))

    def _wire(self, messages: Sequence[Message | WireMessage]) -> Sequence[WireMessage]:
        if messages and not isinstance(messages[0], Message):
            return cast(Sequence[WireMessage], messages)  # either all are rendered or none: not to look at a long list
        return [self.render(cast(Message, one)) for one in messages]

    async def _ask_others(self, models: Iterable[LLM], call: CallArguments) -> LLMResponse | None:
        context = call.context.counted_as(self.usage_id)
        for found in models:
            llm = found.model_copy()
            llm.reset_metrics()
            extra = coded(Trouble.MODEL_REPLACED, context.session_id)
            logger.warning("%s failed, %s is asked instead", self.model, llm.model, extra=extra)
            try:
                return await llm._ask(replace(call, messages=llm.adapted(call.messages), context=context))
            except LLMError as error:
                if isinstance(error, FunctionCallValidationError):
                    raise
                logger.warning("the fallback %s failed, too: %s", llm.model, error, extra=extra)
            finally:
                self._metrics.merge(llm.metrics)
        return None

    async def _ask(self, call: CallArguments) -> LLMResponse:
        own = private(self)
        transport: Transport | None = own["_transport"]
        metrics: Metrics = own["_metrics"]
        if transport is None:
            await SERVED.refresh(self, self._http)
        features, messages = self.features, call.messages
        fitting = fitted(call.tools, features.tools)
        tools = fitting.schemas
        check_window(self, features.max_input_tokens)
        if features.inline_images and any(map(has_images, messages)):
            messages = await with_images(messages)
        parameters = parameters_of(self, features, lambda: self.get_token_count(messages, tools))
        parameters = with_options(parameters, call.options)
        if isinstance(choice := parameters.get("tool_choice"), dict) and isinstance(choice.get("function"), dict):
            named = {**choice["function"], "name": safe_name(str(choice["function"].get("name", "")))}
            parameters["tool_choice"] = {**choice, "function": named}
        text_calls = None if features.function_calling else TextCalls(messages, tools, example=features.text_example)
        if text_calls is not None:
            parameters.pop("tool_choice", None)
            if tools and features.stop_words and not self.disable_stop_word:
                parameters["stop"] = [STOP_WORD]
        endpoint, headers = endpoint_of(self), headers_of(parameters)
        request = CompletionRequest(
            endpoint=replace(endpoint, headers=(*headers, *endpoint.headers)) if headers else endpoint,
            messages=messages if text_calls is None else text_calls.prompt,
            tools=tools if text_calls is None else (),
            parameters=parameters,
            extra_body=extra_body_of(self, call.context),
            timeout=self.timeout,
            context=call.context,
            api="responses" if features.responses else "chat",
        )
        completion = PreparedCall(
            transport=transport or transport_of(self.model, self.record_to),
            request=request,
            config=self,
            messages=messages,
            window=features.max_input_tokens,
            marks_cache=self.caching_prompt and features.prompt_cache_marks,
            on_delta=call.on_delta,
            on_retry=call.on_retry,
            on_broken=lambda response: self._counted(response, call, metrics),
        )
        response = self._counted(await self._logged(completion, request), call, metrics)
        answer = response if text_calls is None else text_calls.read(response)
        return replace(answer, message=fitting.restored(answer.message))

    def _counted(self, response: LLMResponse, call: CallArguments, metrics: Metrics) -> LLMResponse:
        metrics.add(response)
        response = replace(response, metrics=metrics.snapshot())
        if call.context.on_response is not None:
            call.context.on_response(response, self.usage_id)
        return response

    async def _http(self) -> HttpConnections:
        client = shared_client()
        await client.prepare(endpoint_of(self))
        return await client.http()

    async def _logged(self, completion: PreparedCall, request: CompletionRequest) -> LLMResponse:
        if not self.log_completions:
            return await completion.run()
        try:
            response = await completion.run()
        except LLMError as error:
            await log_completion(self.log_completions_folder, request, error, self.log_completions_callback)
            raise
        await log_completion(self.log_completions_folder, request, response, self.log_completions_callback)
        return response


AnyLLM = Annotated[SerializeAsAny[LLM], BeforeValidator(lambda value: LLM.revive(value))]
"""A field holding any model, a router too, restored to its own class when read back."""
