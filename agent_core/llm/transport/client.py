"""The transport to real models; litellm, tamed: the only module that imports it.

Its import takes seconds and 160 MB, so it happens once, on first use, in a thread. Its high-level call spends 10 to 20
ms, its OpenAI route 50 to 200 ms on a long history: OpenAI-compatible servers are asked without it, OpenAI itself with
its knowledge of the form, everybody else through ``litellm.acompletion``.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import re
import sys
import warnings
from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

from pydantic import SecretStr

from agent_core.errors import LLMBadRequestError, LLMError, LLMInternalError
from agent_core.llm.transport.bounded import bound_answers
from agent_core.llm.transport.compatible import (
    OPENAI_OWN,
    CompatibleExchange,
    checked_url,
    compatible_request,
    copied,
    openai_request,
    responses_request,
)
from agent_core.llm.transport.connections import HttpConnections, load_http, proxy_before
from agent_core.llm.transport.exchange import CallDelta, Chunk, CompletionRequest, Endpoint
from agent_core.llm.transport.failures import build, from_exception
from agent_core.llm.transport.once import OnceInThread
from agent_core.llm.transport.routes import HOST_CREDENTIALS, ModelRoute, http_route, route_of

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_POLICY_TEMPLATES": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
    "LITELLM_DISABLE_BUG_REPORT_LINK": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
}
_PROVIDER_PARTS = (
    "litellm.responses.mcp.chat_completions_handler",
    "litellm.proxy.openai_files_endpoints.common_utils",
    "litellm.litellm_core_utils.default_encoding",
    "fastapi.exceptions",
    "openai.resources.chat",
)
_PARTS_OF = {"bedrock": ("boto3",), "sagemaker": ("boto3",)}


class LiteLLMClient:
    """The transport to real models: one connection pool, kept between calls until `aclose`."""

    def __init__(self) -> None:
        self._connections: HttpConnections | None = None
        self._library: _Library | None = None
        self._found_urls: dict[str, str] = {}
        self._until_the_end: AsyncGenerator[None, None] | None = None

    async def prepare(self, endpoint: Endpoint) -> None:
        """Import what the way to the endpoint's model needs, litellm or not, if nobody has yet."""
        if self._until_the_end is None:
            self._until_the_end = self._closed_with_the_loop()
            await anext(self._until_the_end)
        route = await self._route(endpoint)
        if route.kind != "provider":
            await load_http()
        if route.kind != "compatible":
            library = await self._imported()
            if route.kind == "provider":
                await library.load_provider_parts(endpoint.model.partition("/")[0])

    async def _closed_with_the_loop(self) -> AsyncGenerator[None, None]:
        """Close the connections where nobody else did: a loop that ends in order closes its open generators first."""
        try:
            yield
        finally:
            self._until_the_end = None  # it knows the loop, which could not be forgotten otherwise
            await self.aclose()

    async def _route(self, endpoint: Endpoint) -> ModelRoute:
        return http_route(endpoint) or route_of(endpoint, (await self._imported()).providers)

    async def _imported(self) -> _Library:
        if self._library is None:
            self._library = await load_litellm()
        return self._library

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        route = await self._route(request.endpoint)
        if route.kind != "provider":
            library = await self._imported() if route.kind == "openai" else None
            if request.api == "responses":
                prepared = responses_request(library, request, route)
            elif library is not None:
                prepared = openai_request(library, request, route)
            else:
                prepared = compatible_request(request, route)
            source = CompatibleExchange(await self.http(), prepared, self._found_urls).stream()
        elif request.api == "responses":
            what = f"Model {request.endpoint.label} is not reached through the Responses API: set api_mode to 'chat'"
            raise build(request.endpoint, LLMBadRequestError, what)
        else:
            source = _from_provider(await self._imported(), request, route)
        async with aclosing(source) as chunks:
            async for chunk in chunks:
                yield chunk

    async def http(self) -> HttpConnections:
        """The connections to servers that are asked without litellm."""
        if self._connections is None:
            library = await load_http()
            self._connections = self._connections or HttpConnections(library)  # somebody may have been faster
        return self._connections

    async def aclose(self) -> None:
        """Close all connections; a call in progress fails."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.aclose()
        if self._library is not None:
            await self._library.close_clients()


_GEMINI: Final = "vertex_and_google_ai_studio_gemini"
"""Litellm's module of Gemini, whichever way it is reached."""

_NO_KEY: Final = SecretStr("none")
"""In the place of a key for an address of one's own, so that litellm looks for none in the environment."""


async def _from_provider(
    library: _Library, request: CompletionRequest, route: ModelRoute
) -> AsyncGenerator[Chunk, None]:
    endpoint = request.endpoint
    if route.base_url:
        checked_url(endpoint, route.base_url)
    key = endpoint.api_key
    if key is None and route.base_url and not endpoint.model.startswith(HOST_CREDENTIALS):
        key = _NO_KEY
    options: dict[str, Any] = {
        "api_key": key,
        "base_url": route.base_url,
        "api_version": endpoint.api_version,
        "extra_headers": dict(endpoint.headers) or None,
        "extra_body": dict(request.extra_body) or None,
        "tools": copied(request.tools) or None,
        **dict(endpoint.options),
        **{name: value for name, value in request.parameters.items() if name not in OPENAI_OWN},
    }
    try:
        may_mend = _may_mend.set(endpoint.modify_params)
        try:
            stream = await library.litellm.acompletion(
                model=route.model,
                messages=copied(request.messages),
                stream=True,
                stream_options={"include_usage": True},
                timeout=request.timeout,
                drop_params=endpoint.drop_params,
                **{"max_retries": 0, "num_retries": 0, "no-log": True},
                **{
                    name: value.get_secret_value() if isinstance(value, SecretStr) else value
                    for name, value in options.items()
                    if value is not None
                },
            )
        finally:
            _may_mend.reset(may_mend)
        ended = _heard_by_gemini(stream)
        async with aclosing(stream):
            async for piece in stream:
                yield _chunk(piece)
        is_complete = bool(ended) or getattr(stream, "received_finish_reason", "stop") is not None
    except LLMError:
        raise
    except Exception as error:  # noqa: BLE001 (litellm raises what it likes; all of it is a failed call)
        # litellm may have used any of these as a key without our knowing.
        keys = [value for name, value in os.environ.items() if re.search(r"(KEY|TOKEN|SECRET|PASSWORD)$", name.upper())]
        raise from_exception(endpoint, error, secrets=keys) from None
    if not is_complete:
        raise build(endpoint, LLMInternalError, f"Model {endpoint.label} cut its answer off before the end")


def _heard_by_gemini(stream: Any) -> list[object]:
    """Will hold why Gemini ended its answer, once it has: litellm takes each of its pieces for a last one, and none.

    Empty for what is no stream of Gemini's.
    """
    reasons: list[object] = []
    make_call = getattr(stream, "make_call", None)
    if make_call is None:
        return reasons

    async def listened_to(**options: Any) -> Any:
        pieces = await make_call(**options)
        if type(pieces).__module__.endswith(_GEMINI):
            parse = pieces.chunk_parser

            def heard(chunk: dict[str, Any]) -> Any:
                blocked = (chunk.get("promptFeedback") or {}).get("blockReason")
                ends = [one.get("finishReason") for one in chunk.get("candidates") or ()]
                reasons.extend(filter(None, [blocked, *ends]))
                return parse(chunk=chunk)

            pieces.chunk_parser = heard
        return pieces

    stream.make_call = listened_to
    return reasons


def _chunk(piece: Any) -> Chunk:
    usage = getattr(piece, "usage", None)
    choice = piece.choices[0] if piece.choices else None
    delta = getattr(choice, "delta", None)
    calls = tuple(
        CallDelta(index=call.index, id=call.id, name=call.function.name, arguments=call.function.arguments or "")
        for call in getattr(delta, "tool_calls", None) or ()
    )
    return Chunk(
        text=getattr(delta, "content", None) or "",
        reasoning=getattr(delta, "reasoning_content", None) or "",
        calls=calls,
        thinking_blocks=tuple(dict(block) for block in getattr(delta, "thinking_blocks", None) or ()),
        finish_reason=getattr(choice, "finish_reason", None),
        has_choice=choice is not None,
        usage=usage.model_dump() if usage is not None else None,
        model=getattr(piece, "model", None),
    )


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, LiteLLMClient] = WeakKeyDictionary()


def shared_client() -> LiteLLMClient:
    """The client of the running event loop: one connection pool for all models."""
    loop = asyncio.get_running_loop()
    client = _clients.get(loop)
    if client is None:
        client = _clients[loop] = LiteLLMClient()
    return client


async def aclose() -> None:
    """Close the running loop's connections, if there are any; a later call opens new ones."""
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.aclose()


_may_mend: ContextVar[bool] = ContextVar("may_mend", default=True)
"""Whether litellm may change requests that are begun in this context, also in the threads that get it."""


def _decide_by_call(library: ModuleType) -> None:
    """Have litellm ask for each call: its own `modify_params` is one switch for the whole process."""

    class LiteLLMModule(type(library)):  # type: ignore[misc] # a class that only litellm itself knows
        modify_params = property(lambda self: _may_mend.get())

    vars(library).pop("modify_params", None)
    library.__class__ = LiteLLMModule


def _proxy_of(transport: Any, url: Any) -> str | None:
    """In the place of litellm's own, which asks a proxy for this machine, too, and knows no ports in `NO_PROXY`."""
    origin = (url.scheme, url.netloc)
    if origin not in transport.proxy_cache:
        transport.proxy_cache[origin] = proxy_before(url.scheme, url.host, url.netloc.decode("ascii"))
    found: str | None = transport.proxy_cache[origin]
    return found


class _Library:
    """The used part of litellm, imported and silenced. Constructing it takes seconds."""

    def __init__(self) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import litellm
        from litellm.llms.custom_httpx.aiohttp_transport import LiteLLMAiohttpTransport
        from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler
        from litellm.types.utils import LlmProviders
        from litellm.utils import ProviderConfigManager

        bound_answers(LiteLLMAiohttpTransport)
        LiteLLMAiohttpTransport._proxy_from_env = _proxy_of  # else one for both ways to a model would differ
        litellm.suppress_debug_info = True
        litellm.telemetry = False
        _decide_by_call(litellm)
        litellm.set_verbose = False
        litellm.disable_token_counter = True
        litellm.disable_streaming_logging = True
        litellm.disable_hf_tokenizer_download = True
        litellm.num_retries = 0
        litellm.callbacks = []
        self.litellm: Any = litellm
        self.find_config: Any = ProviderConfigManager.get_provider_chat_config
        self.openai: Any = LlmProviders.OPENAI
        self.providers = frozenset(provider.value for provider in LlmProviders)
        self.close_clients: Any = close_litellm_async_clients
        # Its response models are built on first use, with a warning about one of its types, and slowly.
        warnings.filterwarnings("ignore", message=".*using the `ReadOnly` qualifier", category=UserWarning)
        litellm.ModelResponse()
        litellm.ModelResponseStream()
        AsyncHTTPHandler().client  # noqa: B018 (loads the certificates here rather than in the event loop)
        self._parts: dict[str, OnceInThread[bool]] = {}

    async def load_provider_parts(self, provider: str) -> None:
        name = provider if provider in _PARTS_OF else ""
        if name not in self._parts:

            def load() -> bool:
                for module in (*_PROVIDER_PARTS, *_PARTS_OF.get(name, ())):
                    with contextlib.suppress(ImportError):  # another release, or not installed: the call will say so
                        importlib.import_module(module)
                return True

            self._parts[name] = OnceInThread(load, "litellm-parts")
        await self._parts[name].outcome()


def _import() -> _Library:
    # The import makes a million objects that stay: looking through them again and again for garbage would stop the
    # event loop for a tenth of a second at a time, during the import and ever after.
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        library = _Library()
        gc.freeze()
    except BaseException:
        # The parts that are there would make every later attempt fail.
        for name in [one for one in sys.modules if one.partition(".")[0] == "litellm"]:
            del sys.modules[name]
        raise
    finally:
        if was_collecting:
            gc.enable()
    return library


load_litellm = OnceInThread(_import, "litellm-import").outcome
"""litellm, whose import is begun in a thread if nobody has yet; the loop stays responsive."""
