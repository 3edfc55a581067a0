"""No secret is readable in what is kept, whatever it went through before."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from server.db.sealing_keys import rotate_key
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, facts, kill, shell
from tests.unit.db.another_program import another_program

SENT_IN_HEADERS = ("llm", "search", "sandbox", "git", "sse", "shttp", "own-sse", "own-shttp")
IN_VARIABLES = ("custom", "rotated", "renamed", "deleted", "env", "own-env")
SECRETS = {name: f"{name}+/?%={number * 104729:08d}" for number, name in enumerate(SENT_IN_HEADERS, start=1)}
SECRETS |= {name: f"{name}+/ä?% {number * 7919:08d}" for number, name in enumerate(IN_VARIABLES, start=1)}
WEBHOOK = "whsec_" + base64.b64encode(b"signs what is sent to it").decode()
"""Kept as well, and known to nothing that could show it."""

BIG = 1_200_000
"""Characters of an output that is kept as a file of its own."""


def shown(value: str) -> Iterator[str]:
    """The ways in which a program may show a value: as it is, URL-encoded, in JSON, in base64 at any place."""
    yield from (value, quote(value, safe=""), quote(value), quote_plus(value), quote(value, safe="").lower())
    yield json.dumps(value)[1:-1]
    for offset in range(3):
        text = b"a" * offset + value.encode() + b"z" * 5
        yield from (base64.b64encode(text).decode(), base64.urlsafe_b64encode(text).decode())


def traces(value: str) -> Iterator[str]:
    """What is looked for: the same, without the ends of base64, which depend on what stands around the value."""
    for form in shown(value):
        yield form if "%" in form or ("+" in form and form.startswith(value[:3])) else form[4:-12]
    yield value.encode().hex()


def readable(data_dir: Path) -> list[tuple[str, str, str]]:
    """Which secrets show in which files."""
    files = {file.relative_to(data_dir): file.read_bytes() for file in data_dir.rglob("*") if file.is_file()}
    assert any(name.suffix == ".db" for name in files)
    return [
        (name, form, str(file))
        for name, value in {**SECRETS, "webhook": WEBHOOK}.items()
        for form in traces(value)
        for file, content in files.items()
        if form.encode() in content or form.encode() in str(file).encode()
    ]


async def telling(call: FakeRequest) -> FakeAnswer:
    """A shell whose commands print every secret in every form, and enough to be kept as a file of its own."""
    answer = await shell(call)
    assert isinstance(answer, dict)
    told = "\n".join(form for value in SECRETS.values() for form in shown(value))
    is_long = "long" in str(call.args.get("command"))
    return {**answer, "output": told + "x" * BIG + told if is_long else told}


def servers(prefix: str = "") -> dict[str, Any]:
    return {
        "sse_servers": [{"url": "http://127.0.0.1:9/sse", "api_key": SECRETS[f"{prefix}sse"]}],
        "stdio_servers": [{"name": "p", "command": "false", "args": [], "env": {"TOKEN": SECRETS[f"{prefix}env"]}}],
        "shttp_servers": [{"url": "http://127.0.0.1:9/mcp", "api_key": SECRETS[f"{prefix}shttp"]}],
    }


async def test_no_secret_can_be_read_in_the_database_or_anywhere_in_the_data_folder(
    make_server: MakeServer, tmp_path: Path
) -> None:
    provider = FakeProvider(handlers={"shell.run": telling, "workspace.facts": facts, "shell.kill": kill})
    turns = [call("terminal", {"command": f"echo {form}"}) for form in list(shown(SECRETS["custom"]))[:2]]
    turns.append(finish(" ".join(SECRETS.values())))
    async with (
        ModelServer(turns) as model,
        make_server(provider, verify_git_tokens=False, log_level="debug") as server,
    ):
        keys = {f"{name}_api_key": SECRETS[name] for name in ("llm", "search")}
        variables = {"runtime_startup_env_vars": {"SANDBOX_TOKEN": SECRETS["sandbox"]}}
        settings = {"llm_model": "openai/x", "llm_base_url": model.url, **keys, **variables, "mcp_config": servers()}
        assert (await server.post("/api/settings", json=settings)).status_code == 200
        tokens = {"github": {"token": SECRETS["git"]}}
        assert (await server.post("/api/add-git-providers", json={"provider_tokens": tokens})).status_code == 200
        for name in ("custom", "rotated", "renamed", "deleted"):
            body = {"name": name.upper(), "value": SECRETS[name]}
            assert (await server.post("/api/secrets", json=body)).status_code == 201
        webhook = await server.post("/api/webhooks", json={"url": "https://hooks.example.com/", "secret": WEBHOOK})
        assert webhook.status_code == 201
        path = f"/api/webhooks/{webhook.json()['id']}"
        assert (await server.client.patch(path, json={"active": False})).status_code == 200
        told = " ".join(SECRETS.values())
        conversation_id = await server.create(
            initial_user_msg=f"{told}: these", mcp_config=servers("own-"), conversation_instructions=told
        )
        title = {"title": f"{SECRETS['custom']} {SECRETS['llm']}"}
        assert (await server.client.patch(f"/api/conversations/{conversation_id}", json=title)).status_code == 200

        async def has_finished() -> bool:
            return any(one.get("action") == "finish" for one in await server.events(conversation_id))

        await server.until(has_finished, seconds=MODEL_SECONDS)
        for body in ({"name": "ROTATED", "value": "other"}, {"name": "NAMED"}):
            path = "ROTATED" if "value" in body else "RENAMED"
            assert (await server.client.put(f"/api/secrets/{path}", json=body)).status_code == 200
        assert (await server.client.delete("/api/secrets/DELETED")).status_code == 200
        run = {"action": "run", "args": {"command": f"long {told}", "hidden": True}}
        assert (await server.post(f"/api/conversations/{conversation_id}/events", json=run)).status_code == 200

        async def has_run() -> bool:
            return any(len(str(one.get("content"))) > BIG for one in await server.events(conversation_id))

        await server.until(has_run, seconds=MODEL_SECONDS)
        assert "<secret_hidden>" in str(await server.events(conversation_id))
        assert any((tmp_path / "data" / "blobs").rglob("*")), "the long output is a file of its own"
        assert readable(tmp_path / "data") == [], "while the server runs"
    assert readable(tmp_path / "data") == []


async def test_the_password_in_an_address_is_sealed_hidden_in_logs_and_moves_to_another_key(
    make_server: MakeServer, tmp_path: Path
) -> None:
    address = "http://user:do-not%2Btell@127.0.0.1:9/v1"
    async with make_server() as server:
        assert (await server.post("/api/settings", json={"llm_base_url": address})).status_code == 200
        shown = (await server.get("/api/settings")).json()["llm_base_url"]
        assert shown == "http://user:**********@127.0.0.1:9/v1"
        await server.create()
        hidden = server.app.log_masker.text("it is do-not%2Btell, sent as do-not+tell")
        assert hidden == "it is <secret_hidden>, sent as <secret_hidden>"
        database = server.app.services.database
        done = await rotate_key(database.writer, database.secrets, tmp_path / "data" / "secret.key", database.audit)
        assert done.sealed == 1
    files = [file.read_bytes() for file in (tmp_path / "data").rglob("*") if file.is_file()]
    assert not [content for content in files if b"do-not" in content]
    async with make_server() as server:
        stored = await server.app.services.database.settings.get()
        assert stored is not None
        assert stored.llm_base_url == address


async def test_an_address_that_an_earlier_version_stored_as_it_is_still_counts(
    make_server: MakeServer, tmp_path: Path
) -> None:
    address = "http://127.0.0.1:9/v1"
    async with make_server() as server:
        await server.post("/api/settings", json={"language": "de"})
        with another_program(server.app.services.database) as other:
            other.execute("UPDATE settings SET document = json_set(document, '$.llm_base_url', ?)", (address,))
        database = server.app.services.database
        assert (await server.get("/api/settings")).json()["llm_base_url"] == address
        done = await rotate_key(database.writer, database.secrets, tmp_path / "data" / "secret.key", database.audit)
        assert (done.sealed, done.unreadable) == (0, 0)
    async with make_server() as server:
        await server.post("/api/settings", json={"language": "fr"})
        assert (await server.get("/api/settings")).json()["llm_base_url"] == address


def test_what_looks_for_secrets_finds_them(tmp_path: Path) -> None:
    for form in (*shown(SECRETS["custom"]), SECRETS["custom"].encode().hex()):
        (tmp_path / "x.db").write_bytes(b"..." + form.encode() + b"...")
        assert {name for name, *_ in readable(tmp_path)} == {"custom"}, form


async def test_what_a_lost_key_sealed_is_kept_until_it_is_set_anew_and_is_there_when_the_key_is_found(
    make_server: MakeServer, tmp_path: Path
) -> None:
    key_file = tmp_path / "data" / "secret.key"
    keys = {"llm_api_key": "first-llm", "search_api_key": "first-search"}
    tokens = {"github": {"token": "first-token", "host": "http://127.0.0.1:9"}}
    mcp = {"sse_servers": ["http://127.0.0.1:9/sse"]}
    async with make_server(verify_git_tokens=False) as server:
        await server.post("/api/settings", json={**keys, "mcp_config": mcp, "language": "de"})
        await server.post("/api/add-git-providers", json={"provider_tokens": tokens})
    lost = key_file.read_bytes()
    key_file.unlink()
    async with make_server() as server:
        shown = (await server.get("/api/settings")).json()
        assert (shown["llm_api_key_set"], shown["mcp_config"], shown["provider_tokens_set"]) == (False, None, {})
        for change in ({"language": "fr", "llm_api_key": None}, {"search_api_key": "another", "mcp_config": None}):
            assert (await server.post("/api/settings", json=change)).status_code == 200
        assert (await server.post("/api/unset-provider-tokens")).status_code == 200
        assert (await server.get("/api/settings")).json()["search_api_key_set"] is True
    key_file.write_bytes(lost)
    async with make_server() as server:
        back = await server.app.services.database.settings.get()
        assert back is not None
        assert back.language == "fr"
        found = {name: getattr(back, name) and getattr(back, name).get_secret_value() for name in keys}
        assert found == {**keys, "search_api_key": None}, "that one was set anew, under the other key"
        assert (back.mcp_config, back.provider_tokens) == (None, {}), "these were taken back meanwhile"
