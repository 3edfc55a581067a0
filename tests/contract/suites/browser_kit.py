"""A sandbox with a site and a browser in it, for the conformance suite of the browser tools."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from agent_core.runtime.action_runner import DirectContext
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.testing.sandbox_contract import output
from agent_core.tools.browser import (
    BrowserAction,
    BrowserClickAction,
    BrowserCloseTabAction,
    BrowserGetStateAction,
    BrowserListTabsAction,
    BrowserNavigateAction,
    BrowserObservation,
    BrowserToolExecutor,
    BrowserTypeAction,
)
from agent_core.tools.browser_code import BrowserCodeAction, BrowserCodeExecutor
from tests.contract.suites import browser_site

_SITE = Path(browser_site.__file__).read_bytes()


class OpenTabs(NamedTuple):
    """The ids of the open tabs, and which of them is active ("" for none)."""

    ids: list[str]
    active: str


class BrowserKit:
    """A sandbox with a site in it, and its browser."""

    def __init__(self, sandbox: SandboxConnection) -> None:
        self.sandbox = sandbox
        self.executor = BrowserToolExecutor()
        self.site = ""
        self._count = 0

    async def open(self) -> None:
        """Start the site."""
        await self.sandbox.request("file.write", {"path": f"{self.sandbox.working_dir}/site.py"}, blob=_SITE)
        await output(self.sandbox, "python3 site.py port > site.log 2>&1 & until [ -s port ]; do sleep 0.02; done")
        self.site = f"http://127.0.0.1:{await output(self.sandbox, 'cat port')}"

    async def do(self, action: BrowserAction, executor: BrowserToolExecutor | None = None) -> BrowserObservation:
        """Carry out one action, well or not."""
        context = DirectContext(self.sandbox)
        self._count += 1
        context.idempotency_key = f"{self.sandbox.sandbox.spec.conversation_id}:{self._count}"
        return await (executor or self.executor).acall(action, context)

    async def done(self, action: BrowserAction) -> str:
        """Carry out one action that must go well; returns what a model reads."""
        seen = await self.do(action)
        assert not seen.is_error, seen.text
        return seen.text

    async def go(self, path: str) -> str:
        """Open a page of the site; returns what a look at it says."""
        await self.done(BrowserNavigateAction(url=self.site + path))
        return await self.look()

    async def code(self, *lines: str) -> BrowserObservation:
        """Carry out lines of code with the `browser` tool; they must go well."""
        seen = await self.do(BrowserCodeAction(code="\n".join(lines)), BrowserCodeExecutor(set_of_marks=False))
        assert not seen.is_error, seen.text
        return seen

    async def until_asked(self, path: str) -> None:
        """Wait until the site was asked for this, query and all."""
        address = f"{self.site}/asked?{path}"
        await output(self.sandbox, f"python3 -c 'import urllib.request as r; r.urlopen(\"{address}\")'")

    async def look(self) -> str:
        """What `browser_get_state` says."""
        return await self.done(BrowserGetStateAction())

    async def tabs(self) -> OpenTabs:
        """What `browser_list_tabs` lists."""
        seen = await self.do(BrowserListTabsAction())
        ids = [page.id for page in seen.open_pages]
        return OpenTabs(ids, ids[seen.active_page_index] if seen.active_page_index >= 0 else "")

    async def close_others(self) -> None:
        """Close all tabs but the active one."""
        ids, active = await self.tabs()
        for tab_id in ids:
            if tab_id != active:
                await self.done(BrowserCloseTabAction(tab_id=tab_id))

    async def click(self, name: str) -> str:
        """Click the element that the last look shows so; returns what that said."""
        return await self.done(BrowserClickAction(index=number(await self.look(), name)))

    async def fill(self, name: str, text: str) -> str:
        """Put text into an element."""
        return await self.done(BrowserTypeAction(index=number(await self.look(), name), text=text))


def number(state: str, name: str) -> int:
    """The number of the first element whose line contains `name`."""
    found = re.search(rf"\[(\d+)\] [^\n]*{re.escape(name)}", state)
    assert found is not None, f"{name!r} is not in:\n{state}"
    return int(found.group(1))
