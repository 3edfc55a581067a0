"""A server among several: it knows by itself when others carry on what it ran."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from agent_core.troubles import Trouble
from server.conversation_manager import membership as module
from server.conversation_manager.membership import Membership
from server.db.errors import DatabaseError
from server.db.repositories.leases import LeaseRepository
from server.metrics import ServerMetrics
from tests.waiting import until

SECONDS = 0.2


class Leases:
    """A database that hears of a server, or stands still, or refuses."""

    def __init__(self) -> None:
        self.stands_still = False
        self.refusals = 0
        self.formers: list[str] = []
        self.renewals = 0

    async def register(self, url: str, seconds: float, *, former: str = "") -> str:
        self.formers.append(former)
        if self.refusals:
            self.refusals -= 1
            raise DatabaseError("not yet")
        self.stands_still = False
        return f"server-{len(self.formers)}"

    async def renew(self, server_id: str, seconds: float) -> bool:
        self.renewals += 1
        if self.stands_still:
            await asyncio.sleep(1000)
        return True

    async def retire(self, server_id: str) -> None:
        pass


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)


@pytest.mark.usefixtures("at_once")
async def test_who_hears_nothing_of_the_database_ends_what_others_may_carry_on(monkeypatch: pytest.MonkeyPatch) -> None:
    leases, lost, told = Leases(), list[str](), list[Trouble]()
    metrics = ServerMetrics()
    monkeypatch.setattr(metrics, "trouble", lambda code, *_: told.append(code))

    async def end() -> None:
        lost.append(here.server_id)

    here = Membership(cast(LeaseRepository, leases), url="", seconds=SECONDS, lost=end, metrics=metrics)
    async with here:
        await until(lambda: leases.renewals > 1)
        leases.stands_still, leases.refusals = True, 3
        began = asyncio.get_running_loop().time()
        await until(lambda: bool(lost))
        assert asyncio.get_running_loop().time() - began < 2 * SECONDS + 1
        assert lost == [""], "while it is lost it has no name under which it could take anything"
        await until(lambda: here.server_id == "server-5")
        assert leases.formers == ["", *["server-1"] * 4], "what is left of its former life is given back"
        await until(lambda: leases.renewals > 3)
    assert lost == [""]
    assert told == [Trouble.LEASE_LOST]
