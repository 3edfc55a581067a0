"""Where a measurement plays: folders, processes and sandboxes, all of which are gone when it ends."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.docker.images import DEFAULT_IMAGE
from agent_core.runtime.local.provider import LocalProvider
from agent_core.runtime.sandbox import SandboxProvider, SandboxSpec, SandboxWish
from agent_core.runtime.selection import choose_provider
from bench.processes import Server, model_process, server_process

INSTANCE_FILE = "instance-id"
KEY = "bench-key-0000"
QUICK_STEPS = 5


class Stage:
    """Makes what is measured.

    Attributes:
        quick: a smoke run: as little of everything as still shows that it works.
        sandbox: the provider's name: docker where an engine answers, else local.
        reason: why that one.
        folder: for data; removed at the end.
        cases: what a measurement with several is to do; empty: everything.
    """

    def __init__(
        self, *, quick: bool, folder: Path, provider: SandboxProvider, reason: str, stack: AsyncExitStack
    ) -> None:
        self.quick = quick
        self.sandbox = provider.name
        self.reason = reason
        self.folder = folder
        self.cases: Sequence[str] = ()
        self._provider = provider
        self._stack = stack
        self._shared: Server | None = None
        self._made = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, *, quick: bool, sandbox: SandboxWish = "auto") -> AsyncIterator[Self]:
        """A stage; leaving it removes what is left of it.

        Raises:
            SandboxError: no sandbox can be had here.
        """
        with tempfile.TemporaryDirectory(prefix="drydock-bench-", ignore_cleanup_errors=True) as name:
            choice = await choose_provider(sandbox, data_dir=name)
            async with AsyncExitStack() as stack:
                stack.push_async_callback(choice.provider.close)
                yield cls(quick=quick, folder=Path(name), provider=choice.provider, reason=choice.reason, stack=stack)

    def few(self, usual: int, quick: int) -> int:
        """How often to do something."""
        return quick if self.quick else usual

    def pause(self, usual: float) -> float:
        """How many seconds to let something come to rest."""
        return usual / 10 if self.quick else usual

    def say(self, text: str) -> None:
        """Show progress."""
        sys.stderr.write(f"  {text}\n")
        sys.stderr.flush()

    def data_dir(self) -> Path:
        """A data folder that nobody else uses."""
        self._made += 1
        return self.folder / f"data-{self._made}"

    @asynccontextmanager
    async def playing(self, steps: int) -> AsyncIterator[Server]:
        """A server whose model lets the agent take so many steps after each message.

        It is a new one, except in a quick run: loading the client library again and again would be most of that.
        """
        if not self.quick:
            async with self.model(f"steps:{steps}") as model, self.server(model=model) as server:
                yield server
            return
        if self._shared is None:
            model = await self._stack.enter_async_context(self.model(f"steps:{QUICK_STEPS}"))
            self._shared = await self._stack.enter_async_context(self.server(model=model))
        yield self._shared

    @asynccontextmanager
    async def model(self, script: str, *, delay: float = 0.0, command_seconds: float = 0.0) -> AsyncIterator[str]:
        """A model server that answers after `delay` seconds (see `bench.model_process`); yields its URL."""
        async with model_process(script, delay=delay, command_seconds=command_seconds) as url:
            yield url

    @asynccontextmanager
    async def server(
        self, *, model: str | None = None, data_dir: Path | None = None, **settings: str
    ) -> AsyncIterator[Server]:
        """A server process with this model server; its sandboxes are removed with it."""
        data_dir = data_dir or self.data_dir()
        environment = {
            "DRYDOCK_REQUESTS_PER_SECOND": "0",
            "DRYDOCK_MAX_CONCURRENT_CONVERSATIONS": "1000",
            "DRYDOCK_GENERATE_TITLES": "false",
            "DRYDOCK_WARM_SANDBOXES": "0",  # whose making would be measured with everything else
            **{f"DRYDOCK_{name.upper()}": value for name, value in settings.items()},
        }
        if model is not None:
            environment |= {"LLM_MODEL": "openai/scripted", "LLM_BASE_URL": model, "LLM_API_KEY": KEY}
        try:
            async with server_process(data_dir, self.sandbox, environment) as server:
                yield server
        finally:
            await self.remove_sandboxes(data_dir)

    @asynccontextmanager
    async def provider(self, data_dir: Path) -> AsyncIterator[SandboxProvider]:
        """The provider of sandboxes for an instance with this data folder."""
        if self.sandbox == "docker":
            yield self._provider
            return
        provider = LocalProvider(str(data_dir))
        try:
            yield provider
        finally:
            await provider.close()

    @asynccontextmanager
    async def running_sandbox(self, name: str) -> AsyncIterator[SandboxConnection]:
        """A sandbox without network that runs already, and belongs to an instance of its own."""
        folder = self.data_dir()
        folder.mkdir()
        instance = f"bench-{name}-{os.getpid()}"
        async with self.provider(folder) as provider:
            spec = SandboxSpec(name, instance, image=DEFAULT_IMAGE, data_dir=str(folder), network="none")
            connection = SandboxConnection(provider.create(spec))
            try:
                await connection.start()
                yield connection
            finally:
                await connection.close()
                await provider.reap(instance, keep=())

    async def remove_sandboxes(self, data_dir: Path, instance_id: str | None = None) -> None:
        """Remove all sandboxes of an instance, and what was made for them."""
        file = data_dir / INSTANCE_FILE
        if instance_id is None:
            if not file.exists():
                return
            instance_id = file.read_text().strip()
        async with self.provider(data_dir) as provider:
            await provider.reap(instance_id, keep=())
