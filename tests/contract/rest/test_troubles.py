"""Bad luck is a state: each time a sentence for its user, one line in the log with the conversation, one count."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from agent_core.agent.codeact import CodeActAgent
from agent_core.errors import SandboxError, ToolError
from agent_core.testing.fake_sandbox import FakeAnswer, FakeBehaviour, FakeProvider, FakeRequest
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, fail, say
from agent_core.tools.context import SandboxAccess
from agent_core.tools.plugins import PluginRequirement
from server.cli.process_log import TextFormatter
from server.db.repositories.user_settings import StoredSettings
from server.errors import INTERNAL
from tests.contract.rest.conftest import MakeServer, Server, facts, kill, shell

SECONDS = 60.0
COUNTED = re.compile(r'^drydock_troubles_total\{code="([^"]+)"\} ([1-9]\d*)\.0$', re.MULTILINE)


async def counted(server: Server) -> dict[str, int]:
    """What was counted, but for what each conversation may have."""
    found = COUNTED.findall((await server.get("/metrics")).text)
    return {code: int(times) for code, times in found if code != "waiting"}


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Code and conversation of each line that tells of bad luck; "" for one without a code."""
    return [
        (str(getattr(one, "code", "")), getattr(one, "conversation_id", ""))
        for one in caplog.records
        if one.levelno >= logging.WARNING and not one.name.startswith(("asyncio", "httpx"))
    ]


def model_turn(request: ModelRequest) -> Turn:
    text = json.dumps(request.json)
    if "be refused" in text:
        return fail(400, "no such option: sk-not-to-be-shown")
    return call("terminal", {"command": "lose the sandbox"}) if "was lost" not in text else say("done")


async def test_each_has_its_sentence_its_line_and_its_count(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told to whoever asks, written to the log, and counted, in one server, one after the other."""
    provider = FakeProvider(handlers={"workspace.facts": facts, "shell.kill": kill})

    async def lose(request: FakeRequest) -> FakeAnswer:
        if "lose" in str(request.args.get("command")):
            await list(provider.sandboxes.values())[-1].kill()
        return await shell(request)

    provider.handlers["shell.run"] = lose
    caplog.set_level(logging.INFO)
    async with ModelServer(model_turn) as model, make_server(provider, generate_titles=False) as server:
        before: dict[str, int] = {}
        written: list[logging.LogRecord] = []

        async def happens(ident: str, sentence: str, *codes: str) -> None:
            """Its user reads the sentence, and for each of the codes there is one line, and one more is counted."""

            async def is_told() -> bool:
                return sentence in json.dumps(await server.events(ident)) + json.dumps(await server.info(ident))

            async def is_counted() -> bool:
                return set(codes) <= (await counted(server)).keys() - before.keys()

            await server.until(is_told, seconds=SECONDS)
            await server.until(is_counted, seconds=SECONDS)
            found = await counted(server)
            assert {code: times for code, times in found.items() if code not in before} == dict.fromkeys(codes, 1)
            assert {code: found[code] for code in before} == before
            assert sorted(lines(caplog)) == sorted((code, ident) for code in codes)
            before.update(found)
            written.extend(caplog.records)
            caplog.clear()

        settings = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "sk-not-to-be-shown"}
        assert (await server.post("/api/settings", json=settings)).status_code == 200

        provider.behaviour = FakeBehaviour(error=SandboxError("No image.", code="image_missing", fix="Build it."))
        await happens(await server.create(), "No image.", "image_missing")
        provider.behaviour = FakeBehaviour(error=SandboxError("Strange.", code="of_somebody_elses"))
        await happens(await server.create(), "Strange.", "start_failed")
        provider.behaviour = FakeBehaviour(away="Waiting for the engine. It is gone.")
        await happens(ident := await server.create(), "It is gone.", "engine_unavailable")
        list(provider.sandboxes.values())[-1].behaviour = FakeBehaviour()
        await server.until_running(ident)
        provider.behaviour = FakeBehaviour()
        await happens(await server.create(initial_user_msg="be refused"), "no such option", "LLMBadRequestError")
        ident = await server.create(initial_user_msg="lose it")
        await happens(ident, "was lost while this ran", "sandbox_lost", "action_failed")

        def fails(*_: object, **__: object) -> None:
            raise KeyError("sk-not-to-be-shown")

        monkeypatch.setattr(server.app.services.manager, "live", fails)
        answer = await server.get(f"/api/conversations/{ident}")
        monkeypatch.undo()
        assert (answer.status_code, answer.json()) == (500, {"detail": INTERNAL})
        assert (await counted(server))["unexpected_error"] == 1
        assert lines(caplog) == [("unexpected_error", ident)]
        (told,) = [one for one in caplog.records if getattr(one, "code", "") == "unexpected_error"]
        assert ident in told.getMessage()
        shown = TextFormatter(server.app.log_masker, colour=False)
        text = "\n".join(shown.format(record) for record in [*written, *caplog.records])
        assert "KeyError" in text
        assert "sk-not-to-be-shown" not in text


class Unequipped(PluginRequirement):
    async def bring_up(self, sandbox: SandboxAccess) -> None:
        raise ToolError("the parts are missing")


class UnequippedAgent(CodeActAgent):
    sandbox_plugins: ClassVar[tuple[PluginRequirement, ...]] = (Unequipped(name="unequipped"),)


async def test_a_plugin_and_a_file_of_hooks_that_fail_are_told_written_and_counted(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def read(request: FakeRequest) -> FakeAnswer:
        return {"size": 1, "eof": True}, b"{no hooks"

    provider = FakeProvider(handlers={"workspace.facts": facts, "shell.run": shell, "file.read": read})
    async with make_server(provider) as server:
        assert (await server.post("/api/settings", json={"agent": "UnequippedAgent"})).status_code == 200
        ident = await server.create()
        await server.until_running(ident)
        text = json.dumps(await server.events(ident))
        assert "The plugin unequipped could not be set up: the parts are missing" in text
        assert "The hooks in .openhands/hooks.json are not used" in text
        assert await counted(server) == {"plugin_failed": 1, "hook_failed": 1}
        assert sorted(lines(caplog)) == [("hook_failed", ident), ("plugin_failed", ident)]


def damage(path: Path, conversation_id: str) -> None:
    with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as database:
        values = b"{no event", conversation_id
        database.execute("UPDATE events SET payload = ? WHERE conversation_id = ? AND id = 0", values)


async def test_a_lost_event_is_told_of_with_its_conversation(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    ident = await server.create()
    await server.until_running(ident)
    await asyncio.to_thread(damage, server.app.settings.data_dir / "drydock.db", ident)
    await server.events(ident)
    assert await counted(server) == {"event_unreadable": 1}
    assert lines(caplog) == [("event_unreadable", ident)]


@pytest.mark.parametrize("others", [0, 300])
async def test_a_fault_shows_nothing_of_what_its_client_has_sent(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Also not what nobody knows yet to be a secret."""

    async def fails(change: Callable[[None], StoredSettings], *_: object, **__: object) -> None:
        raise KeyError(change(None).llm_api_key)

    monkeypatch.setattr(server.app.services.database.settings, "change", fails)
    body = {"llm_api_key": "sk-not-to-be-shown", "disabled_skills": [f"skill {number}" for number in range(others)]}
    answer = await server.post("/api/settings", json=body)
    assert (answer.status_code, answer.json()) == (500, {"detail": INTERNAL})
    assert await counted(server) == {"unexpected_error": 1}
    assert lines(caplog) == [("unexpected_error", "")]
    text = caplog.text
    assert "POST /api/settings failed" in text
    assert "in store_settings" in text
    assert "KeyError" in text
    assert "not-to-be-shown" not in text
