"""Carries out what is asked of the browser, in the conversation's sandbox."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agent_core.tools.browser.actions import BrowserAction, BrowserCall, Look
from agent_core.tools.browser.observation import BrowserObservation, observed, state_text
from agent_core.tools.sandbox_executor import SandboxExecutor
from agent_core.tools.spec import ToolContext

START_SECONDS = 30.0
ACTION_SECONDS = 300.0
NAVIGATION_SECONDS = 30.0
IDLE_MINUTES = 30.0
_OUTER_MARGIN_SECONDS = 120.0


class BrowserToolExecutor(SandboxExecutor[BrowserAction, BrowserObservation]):
    """One browser for as many tools as share it. It is started with the first call, in the sandbox.

    Inside a conversation that is the conversation's sandbox; without one, a sandbox of its own on `working_dir`. All
    tools of a conversation share its one browser, whichever executor they have.

    Args:
        allowed_domains: hosts that pages may come from, with all below them; none for all.
        init_timeout_seconds: in which the browser must have started.
        action_timeout_seconds: in which a call must be done; after a call that was not, 30 s at most. The third in a
            row has the browser started anew.
        navigation_timeout_seconds: in which a site must begin to answer.
        session_timeout_minutes: without a call, after which the browser is closed.
        working_dir: folder of this host for a sandbox of its own; the present one if empty.
        headless: for programs that name it; a sandbox has no screen, so it can only be true.

    Raises:
        ValueError: a time is not above zero, a domain is empty, or a window is asked for.
    """

    def __init__(
        self,
        *,
        allowed_domains: Sequence[str] | None = None,
        init_timeout_seconds: float = START_SECONDS,
        action_timeout_seconds: float = ACTION_SECONDS,
        navigation_timeout_seconds: float = NAVIGATION_SECONDS,
        session_timeout_minutes: float = IDLE_MINUTES,
        working_dir: str = "",
        headless: bool = True,
    ) -> None:
        super().__init__(working_dir)
        if not headless:
            raise ValueError("headless is False; the browser is in a sandbox, which has no screen: leave it out")
        times = {
            "init_timeout_seconds": init_timeout_seconds,
            "action_timeout_seconds": action_timeout_seconds,
            "navigation_timeout_seconds": navigation_timeout_seconds,
            "session_timeout_minutes": session_timeout_minutes,
        }
        for name, value in times.items():
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be above zero")
        domains = list(allowed_domains or [])
        if isinstance(allowed_domains, str) or not all(isinstance(name, str) and name.strip() for name in domains):
            raise ValueError(f"allowed_domains is {allowed_domains!r}; it must be a list of host names")
        self._options = {
            "timeout": action_timeout_seconds,
            "start_seconds": init_timeout_seconds,
            "navigation_seconds": navigation_timeout_seconds,
            "idle_seconds": session_timeout_minutes * 60,
            "allowed_domains": [name.strip() for name in domains],
        }
        self._limit_seconds = action_timeout_seconds + init_timeout_seconds + _OUTER_MARGIN_SECONDS

    async def carry_out(self, action: BrowserAction, context: ToolContext, key: str | None) -> BrowserObservation:
        calls, look = action.calls(), action.look()
        result = await self.ask(calls, look, context, key)
        return observed(result, state_text(result, look), action=as_code(calls), look=look)

    async def ask(
        self, calls: Sequence[BrowserCall], look: Look, context: ToolContext, key: str | None
    ) -> dict[str, Any]:
        """Have the browser's program do these calls, and return its answer (the runner's ``browser.run``)."""
        options = dict(self._options)
        if context.hard_timeout is not None:
            options["timeout"] = context.hard_timeout
        asked = {"calls": [call._asdict() for call in calls], "look": look._asdict(), **options}
        limit = max(self._limit_seconds, (context.hard_timeout or 0) + _OUTER_MARGIN_SECONDS)
        reply = await context.sandbox.request("browser.run", asked, key=key, limit_seconds=limit)
        return reply.result


def as_code(calls: Sequence[BrowserCall]) -> str:
    """Calls as a person reads them: ``click(id=3)``."""
    return "\n".join(f"{call.name}({', '.join(map(_argument, call.args.items()))})" for call in calls)


def _argument(item: tuple[str, Any]) -> str:
    return f"{item[0]}={json.dumps(item[1], ensure_ascii=False)}"
