"""Live logs have a limit for each user, since each of them holds a connection for as long as its client likes."""

from __future__ import annotations

import logging
from pathlib import Path

import httpx
import pytest

from agent_core.testing.fake_sandbox import FakeProvider
from server.app import create_app
from server.session.sandboxes import SandboxSelection
from server.settings.settings import Settings
from tests.serving import serving
from tests.waiting import until

LIMIT = 2


async def test_more_of_them_than_a_user_may_have_are_a_429_until_one_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="server.metrics")

    async def choose() -> SandboxSelection:
        return SandboxSelection(FakeProvider(), "fake sandboxes for tests")

    app = create_app(Settings(data_dir=tmp_path, max_live_logs=LIMIT), choose=choose)
    async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        conversation = (await client.post("/api/conversations", json={})).json()["conversation_id"]
        path = f"/api/conversations/{conversation}/log/live"
        async with client.stream("GET", path) as first, client.stream("GET", path) as second:
            assert [first.status_code, second.status_code] == [200, 200]
            for _ in range(5):
                refused = await client.get(path)
                assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
                assert refused.json()["message"] == (
                    "2 live logs of this user are followed already (max_live_logs): end one, and come back"
                )
            shown = (await client.get("/metrics")).text
            assert "drydock_live_logs 2.0" in shown
            assert 'drydock_troubles_total{code="too_many_live_logs"} 5.0' in shown
        assert len([record for record in caplog.records if getattr(record, "code", "") == "too_many_live_logs"]) == 1
        while app.services.live_logs.total():
            await client.get("/alive")
        async with client.stream("GET", path) as again:
            assert again.status_code == 200


async def test_a_log_that_has_another_event_at_the_place_is_told_and_the_same_one_goes_on(tmp_path: Path) -> None:
    """Its end was lost, and it has grown beyond what the client has seen again."""

    async def choose() -> SandboxSelection:
        return SandboxSelection(FakeProvider(), "fake sandboxes for tests")

    app = create_app(Settings(data_dir=tmp_path), choose=choose)
    async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        conversation = (await client.post("/api/conversations", json={})).json()["conversation_id"]
        path = f"/api/conversations/{conversation}/log"
        await until(lambda: _has_events(client, path))
        seen = (await client.get(path)).json()["events"][0]

        async def first_of(**query: str) -> str:
            async with client.stream("GET", f"{path}/live", params={"after": "0", **query}) as answer:
                return await anext(line async for line in answer.aiter_lines() if line and not line.startswith(":"))

        assert await first_of() == await first_of(seen_at=seen["timestamp"]) == "id: 1"
        assert await first_of(seen_at="2026-01-01T00:00:00Z") == "event: resync"


async def _has_events(client: httpx.AsyncClient, path: str) -> bool:
    return int((await client.get(path)).json()["last_id"]) > 0
