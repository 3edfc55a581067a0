"""The asynchronous client of a server."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from drydock_client.account import SecretsApi, SettingsApi
from drydock_client.http import DEFAULT_URL, Http
from drydock_client.log import LogCalls
from drydock_client.saying import SayingCalls
from drydock_client.webhooks import WebhooksApi
from drydock_client.workspace import FilesApi, GitApi


class DrydockClient(LogCalls, SayingCalls):
    """A client of one server, for programs with an event loop.

    ::

        async with DrydockClient("http://127.0.0.1:3000", api_key="…") as client:
            conversation = await client.create_conversation(message="Count the lines of code.")
            await client.wait(conversation.id, limit_seconds=600)

    Every call is limited in time and may be cancelled; requests are repeated where that is safe (see `http.Http`).
    Calls at the same time are fine. All errors are `ClientError`.

    Args:
        base_url: the server's address; with a path where a proxy has it below one.
        api_key: its access token; none where it has none.
        timeout: seconds for one call (its repetitions included); of files, for each piece of them.

    Attributes:
        files: the files of workspaces.
        git: the repositories of workspaces.
        settings: the user's settings.
        secrets: the user's secrets.
        webhooks: the user's webhooks.
    """

    def __init__(self, base_url: str = DEFAULT_URL, api_key: str | None = None, *, timeout: float = 30.0) -> None:
        http = Http(base_url, api_key, timeout)
        super().__init__(http)
        self.files = FilesApi(http)
        self.git = GitApi(http)
        self.settings = SettingsApi(http)
        self.secrets = SecretsApi(http)
        self.webhooks = WebhooksApi(http)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.end_followings()
        finally:
            await self._http.__aexit__(kind, error, traceback)
