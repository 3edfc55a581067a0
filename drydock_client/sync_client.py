"""The blocking client: each method is that of the asynchronous one, waited for in a thread with an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from drydock_client.client import DrydockClient
from drydock_client.errors import ClientError, spelled
from drydock_client.http import DEFAULT_URL
from drydock_client.programs import ProgramsApi
from drydock_client.resources import FilesApi, GitApi, PluginsApi, SecretsApi, SettingsApi, SkillsApi, WebhooksApi

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")

END_SECONDS: Final = 10.0


class ClientThread:
    """The thread. `run` may be called from any other, also from one with an event loop of its own (which it blocks)."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # Work is handed over before the loop is told to stop, or not at all: what comes later would never be done.
        self._handing_over = threading.Lock()

    def start(self) -> None:
        ready = threading.Event()

        def work() -> None:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                self._loop.call_soon(ready.set)
                self._loop.run_forever()

        self._thread = threading.Thread(target=work, name="drydock-client", daemon=True)
        self._thread.start()
        ready.wait()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this there and wait for it; whatever interrupts the wait (such as Ctrl-C) cancels it."""
        with self._handing_over:
            if self._loop is None:
                work.close()
                raise ClientError("The client is not open.", fix="Use it in a `with` block.")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise ClientError("The client was closed meanwhile.", fix="Close it when its last call is over.") from None
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        with self._handing_over:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            self._thread.join(END_SECONDS)
            self._thread = None


class Front(Generic[A_co]):
    """Base of blocking counterparts: the asynchronous object, and the thread in which it lives."""

    def __init__(self, inner: A_co, thread: ClientThread) -> None:
        self._inner = inner
        self._thread = thread


class BlockingIterator(Iterator[T]):
    """What an asynchronous iterator gives, for a ``for`` loop; its `close` and the end of its ``with`` end it."""

    def __init__(self, items: AsyncIterator[T], thread: ClientThread) -> None:
        self._items = items
        self._thread = thread

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return self._thread.run(self._next())
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._thread.run(self._close())

    async def _next(self) -> T:
        return await anext(self._items)

    async def _close(self) -> None:
        if (close := getattr(self._items, "aclose", None)) is not None:
            await close()


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Front[A], P], T]:
    """The same method of a `Front`, which waits for the result."""

    @wraps(method)
    def wait(front: Front[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return front._thread.run(method(front._inner, *args, **kwargs))

    return wait


def iterating(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[Front[A], P], BlockingIterator[T]]:
    """The same method of a `Front`, whose items a ``for`` loop can take."""

    @wraps(method)
    def iterate(front: Front[A], /, *args: P.args, **kwargs: P.kwargs) -> BlockingIterator[T]:
        return BlockingIterator(method(front._inner, *args, **kwargs), front._thread)

    return iterate


class SyncFilesApi(Front[FilesApi]):
    """See `resources.FilesApi`."""

    upload = blocking(FilesApi.upload)
    list = blocking(FilesApi.list)
    download = blocking(FilesApi.download)
    zip = blocking(FilesApi.zip)
    open = iterating(FilesApi.open)


class SyncProgramsApi(Front[ProgramsApi]):
    """See `programs.ProgramsApi`."""

    create = blocking(ProgramsApi.create)
    replace = blocking(ProgramsApi.replace)
    fork = blocking(ProgramsApi.fork)
    tools = blocking(ProgramsApi.tools)
    page = blocking(ProgramsApi.page)
    add = blocking(ProgramsApi.add)
    ask_sandbox = blocking(ProgramsApi.ask_sandbox)
    follow = iterating(ProgramsApi.follow)


class SyncGitApi(Front[GitApi]):
    """See `resources.GitApi`."""

    changes = blocking(GitApi.changes)
    diff = blocking(GitApi.diff)


class SyncSettingsApi(Front[SettingsApi]):
    """See `resources.SettingsApi`."""

    get = blocking(SettingsApi.get)
    change = blocking(SettingsApi.change)


class SyncSecretsApi(Front[SecretsApi]):
    """See `resources.SecretsApi`."""

    list = blocking(SecretsApi.list)
    create = blocking(SecretsApi.create)
    change = blocking(SecretsApi.change)
    delete = blocking(SecretsApi.delete)


class SyncWebhooksApi(Front[WebhooksApi]):
    """See `resources.WebhooksApi`."""

    list = blocking(WebhooksApi.list)
    create = blocking(WebhooksApi.create)
    get = blocking(WebhooksApi.get)
    change = blocking(WebhooksApi.change)
    replay = blocking(WebhooksApi.replay)
    delete = blocking(WebhooksApi.delete)


class SyncSkillsApi(Front[SkillsApi]):
    """See `resources.SkillsApi`."""

    list = blocking(SkillsApi.list)
    get = blocking(SkillsApi.get)
    put = blocking(SkillsApi.put)
    enable = blocking(SkillsApi.enable)
    delete = blocking(SkillsApi.delete)


class SyncPluginsApi(Front[PluginsApi]):
    """See `resources.PluginsApi`."""

    list = blocking(PluginsApi.list)
    get = blocking(PluginsApi.get)
    install = blocking(PluginsApi.install)
    update = blocking(PluginsApi.update)
    enable = blocking(PluginsApi.enable)
    remove = blocking(PluginsApi.remove)


@spelled
class SyncDrydockClient(Front[DrydockClient]):
    """A client of one server, for programs without an event loop (and for threads of those with one).

    ::

        with SyncDrydockClient("http://127.0.0.1:3000", api_key="…") as client:
            conversation = client.create_conversation(message="Count the lines of code.")
            client.wait(conversation.id, limit_seconds=600)

    Its methods are those of `DrydockClient`; what is iterated there with ``async for`` is iterated here with ``for``.
    It may be used from several threads. Ctrl-C ends what is waited for.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(DrydockClient(base_url, api_key, timeout=timeout, ca_file=ca_file), ClientThread())
        self.files = SyncFilesApi(self._inner.files, self._thread)
        self.git = SyncGitApi(self._inner.git, self._thread)
        self.settings = SyncSettingsApi(self._inner.settings, self._thread)
        self.secrets = SyncSecretsApi(self._inner.secrets, self._thread)
        self.skills = SyncSkillsApi(self._inner.skills, self._thread)
        self.plugins = SyncPluginsApi(self._inner.plugins, self._thread)
        self.webhooks = SyncWebhooksApi(self._inner.webhooks, self._thread)
        self.programs = SyncProgramsApi(self._inner.programs, self._thread)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._thread.run(self._inner.__aenter__())
        except BaseException:
            self._thread.end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._thread.run(self._inner.__aexit__(None, None, None))
        finally:
            self._thread.end()

    create_conversation = blocking(DrydockClient.create_conversation)
    import_conversation = blocking(DrydockClient.import_conversation)
    export = iterating(DrydockClient.export)
    import_archive = blocking(DrydockClient.import_archive)
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
