"""The blocking client: each method is that of the asynchronous one, waited for."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from drydock_client.account import SecretsApi, SettingsApi
from drydock_client.client import DrydockClient
from drydock_client.http import DEFAULT_URL
from drydock_client.loop_thread import Front, LoopThread, blocking, iterating
from drydock_client.webhooks import WebhooksApi
from drydock_client.workspace import FilesApi, GitApi


class SyncFilesApi(Front[FilesApi]):
    """See `workspace.FilesApi`."""

    upload = blocking(FilesApi.upload)
    list = blocking(FilesApi.list)
    download = blocking(FilesApi.download)
    zip = blocking(FilesApi.zip)
    open = iterating(FilesApi.open)


class SyncGitApi(Front[GitApi]):
    """See `workspace.GitApi`."""

    changes = blocking(GitApi.changes)
    diff = blocking(GitApi.diff)


class SyncSettingsApi(Front[SettingsApi]):
    """See `account.SettingsApi`."""

    get = blocking(SettingsApi.get)
    change = blocking(SettingsApi.change)


class SyncSecretsApi(Front[SecretsApi]):
    """See `account.SecretsApi`."""

    list = blocking(SecretsApi.list)
    create = blocking(SecretsApi.create)
    change = blocking(SecretsApi.change)
    delete = blocking(SecretsApi.delete)


class SyncWebhooksApi(Front[WebhooksApi]):
    """See `webhooks.WebhooksApi`."""

    list = blocking(WebhooksApi.list)
    create = blocking(WebhooksApi.create)
    get = blocking(WebhooksApi.get)
    change = blocking(WebhooksApi.change)
    replay = blocking(WebhooksApi.replay)
    delete = blocking(WebhooksApi.delete)


class SyncDrydockClient(Front[DrydockClient]):
    """A client of one server, for programs without an event loop (and for threads of those with one).

    ::

        with SyncDrydockClient("http://127.0.0.1:3000", api_key="…") as client:
            conversation = client.create_conversation(message="Count the lines of code.")
            client.wait(conversation.id, limit_seconds=600)

    Its methods are those of `DrydockClient`, with the same arguments, results and errors; what is iterated there with
    ``async for`` is iterated here with ``for``. It may be used from several threads. Ctrl-C ends what is waited for.
    """

    def __init__(self, base_url: str = DEFAULT_URL, api_key: str | None = None, *, timeout: float = 30.0) -> None:
        super().__init__(DrydockClient(base_url, api_key, timeout=timeout), LoopThread())
        self.files = SyncFilesApi(self._inner.files, self._thread)
        self.git = SyncGitApi(self._inner.git, self._thread)
        self.settings = SyncSettingsApi(self._inner.settings, self._thread)
        self.secrets = SyncSecretsApi(self._inner.secrets, self._thread)
        self.webhooks = SyncWebhooksApi(self._inner.webhooks, self._thread)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._thread.run(self._inner.__aenter__())
        except BaseException:
            self._thread.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._thread.run(self._inner.__aexit__(None, None, None))
        finally:
            self._thread.end()

    create_conversation = blocking(DrydockClient.create_conversation)
    import_conversation = blocking(DrydockClient.import_conversation)
    conversation = blocking(DrydockClient.conversation)
    conversation_page = blocking(DrydockClient.conversation_page)
    conversations = iterating(DrydockClient.conversations)
    rename = blocking(DrydockClient.rename)
    delete = blocking(DrydockClient.delete)
    fork = blocking(DrydockClient.fork)
    rewind = blocking(DrydockClient.rewind)
    ports = blocking(DrydockClient.ports)
    start = blocking(DrydockClient.start)
    stop = blocking(DrydockClient.stop)
    send = blocking(DrydockClient.send)
    send_action = blocking(DrydockClient.send_action)
    pause = blocking(DrydockClient.pause)
    resume = blocking(DrydockClient.resume)
    confirm = blocking(DrydockClient.confirm)
    client_tools = blocking(DrydockClient.client_tools)
    declare_client_tools = blocking(DrydockClient.declare_client_tools)
    answer_tool_call = blocking(DrydockClient.answer_tool_call)
    event_page = blocking(DrydockClient.event_page)
    events = iterating(DrydockClient.events)
    trajectory = blocking(DrydockClient.trajectory)
    state = blocking(DrydockClient.state)
    follow = iterating(DrydockClient.follow)
    wait = blocking(DrydockClient.wait)
