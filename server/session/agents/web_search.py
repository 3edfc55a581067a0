"""The agent's search of the web: a tool that asks a search service from this process, with a key that stays here."""

from __future__ import annotations

import asyncio
import hashlib
import time
from functools import cache
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from agent_core.mcp.tool import OwnTool, own_tool
from agent_core.tools.spec import ToolAnnotations
from server.db.repositories.user_settings import StoredSettings
from server.errors import GitProviderError, ServerError
from server.git_providers.http import Api, HttpPool, list_at, text_at
from server.git_providers.model import TokenRefusedError
from server.settings.settings import Settings

TOOL_NAME: Final = "tavily-search"
SERVER_NAME: Final = "tavily"
SERVICE: Final = "Tavily"
CHECK_SECONDS: Final = 5.0
"""How long the service may take to say whether it knows a key, before it counts as silent."""

KNOWN_SECONDS: Final = 3600.0
_SILENT_SECONDS: Final = 60.0
"""For how long it is not asked again: after it has taken a key; after it did not answer."""

_MAX_KNOWN: Final = 1_000
_MAX_CHARS: Final = 30_000
_MAX_PAGE_CHARS: Final = 5_000


class SearchKeyRefusedError(ServerError):
    """The search service does not take the key."""


class SearchUnreachableError(ServerError):
    """The search service does not say whether it takes the key."""


class SearchArguments(BaseModel):
    """Arguments of the tool, by the names that the service has for them."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1, max_length=400, description="What to look for, in words.")
    max_results: int = Field(10, ge=1, le=20, description="How many results to give.")
    search_depth: Literal["basic", "advanced"] = Field("basic", description="`advanced` looks closer and costs more.")
    topic: Literal["general", "news"] = Field("general", description="`news`: what has happened lately.")
    time_range: Literal["day", "week", "month", "year"] | None = Field(None, description="Nothing older than that.")
    include_domains: list[Annotated[str, Field(max_length=253)]] = Field(
        default_factory=list, max_length=100, description="Only from these domains."
    )
    exclude_domains: list[Annotated[str, Field(max_length=253)]] = Field(
        default_factory=list, max_length=100, description="Nothing from these domains."
    )
    include_raw_content: bool = Field(False, description="Whether the text of the pages is wanted, too.")


@cache
def _parameters() -> dict[str, Any]:
    schema = SearchArguments.model_json_schema()
    return {name: value for name, value in schema.items() if name not in ("title", "description")}


def search_key(user: StoredSettings | None, server: Settings) -> SecretStr | None:
    """The key that the user's agents search with: theirs, else the server's; None: they have no search."""
    own = user.search_api_key if user is not None else None
    chosen = own if own is not None and own.get_secret_value() else server.search_api_key
    return chosen if chosen is not None and chosen.get_secret_value() else None


class SearchService:
    """The search service at an address (without a slash at its end); `aclose` it at the end."""

    def __init__(self, base: str, pool: HttpPool | None = None) -> None:
        self._base = base.rstrip("/")
        self._pool = pool or HttpPool()
        self._known: dict[bytes, tuple[float, str]] = {}

    async def check(self, key: SecretStr) -> None:
        """Ask whether it takes the key, unless it has said so lately.

        Raises `SearchKeyRefusedError`, or `SearchUnreachableError` where that is not known.
        """
        digest = hashlib.sha256(key.get_secret_value().encode()).digest()
        until, problem = self._known.get(digest, (0.0, ""))
        if time.monotonic() >= until:
            problem = await self._problem_with(key)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[digest] = (time.monotonic() + (_SILENT_SECONDS if problem else KNOWN_SECONDS), problem)
        if problem:
            raise SearchUnreachableError(problem)

    async def search(self, key: SecretStr, arguments: SearchArguments) -> str:
        """What it finds, as text for the agent; `SearchKeyRefusedError` and other `DrydockError` say why nothing."""
        try:
            found = await self._api(key).query("/search", arguments.model_dump(exclude_none=True))
            return _in_words(arguments.query, found)
        except TokenRefusedError as error:
            raise self._refused() from error

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def _problem_with(self, key: SecretStr) -> str:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._api(key).get("/usage")
        except TokenRefusedError as error:
            raise self._refused() from error
        except TimeoutError:
            return f"search_api_key: {SERVICE} did not answer at {self._base} within {CHECK_SECONDS:g} seconds"
        except GitProviderError as error:
            return f"search_api_key: {error}"
        return ""

    def _refused(self) -> SearchKeyRefusedError:
        return SearchKeyRefusedError(
            f"search_api_key: the search service ({SERVICE} at {urlsplit(self._base).hostname}) does not take this key;"
            " store another one, or none to work without a search"
        )

    def _api(self, key: SecretStr) -> Api:
        headers = {"Authorization": f"Bearer {key.get_secret_value()}"}
        return Api(self._pool, SERVICE, self._base, headers=headers, secret=key)


def search_tools(service: SearchService, key: SecretStr | None) -> tuple[OwnTool, ...]:
    """The tool of an agent whose user has a key; none without."""
    if key is None:
        return ()
    tool = own_tool(
        TOOL_NAME,
        "Search the web. Returns titles, addresses and the passages that fit; use it for what may have changed since"
        " you were trained, and for documentation.",
        SearchArguments,
        lambda arguments, call: service.search(key, arguments),
        parameters=_parameters(),
        annotations=ToolAnnotations(title="Search the web", readOnlyHint=True, openWorldHint=True),
        server=SERVER_NAME,
    )
    return (tool,)


def _in_words(query: str, found: dict[str, Any]) -> str:
    parts = [f"Answer: {found['answer']}"] if isinstance(found.get("answer"), str) and found["answer"] else []
    for one in list_at(found, "results", SERVICE):
        title, url = text_at(one, "title", SERVICE, ""), text_at(one, "url", SERVICE, "")
        text = f"Title: {title}\nURL: {url}\nContent: {text_at(one, 'content', SERVICE, '')[:_MAX_PAGE_CHARS]}"
        if whole := text_at(one, "raw_content", SERVICE, ""):
            text += f"\nPage: {whole[:_MAX_PAGE_CHARS]}"
        parts.append(text)
    if not parts:
        return f"Nothing was found for {query!r}."
    text = "\n\n".join(parts)
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}\n[cut here: ask for fewer results]"
