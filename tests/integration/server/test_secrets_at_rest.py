"""Secrets in a real server with real commands: what its folder holds of them, also when it is killed."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

import pytest

from tests.contract.rest.test_at_rest import shown, traces
from tests.integration.server.conftest import MakeProcess, ServerProcess, create, following

UNCONFINED = ("--sandbox", "unconfined")
VALUE = "a-very/secret+value?4711"
HIDDEN = "<secret_hidden>"


def found_in(data_dir: Path) -> list[tuple[str, str]]:
    """Where the value shows."""
    files = [file for file in data_dir.rglob("*") if file.is_file()]
    return [(form, str(file)) for form in traces(VALUE) for file in files if form.encode() in file.read_bytes()]


async def test_what_a_command_shows_of_a_secret_is_nowhere_in_the_folder_of_a_server(make_process: MakeProcess) -> None:
    server = await make_process(*UNCONFINED)
    async with server.client() as client:
        conversation_id = await create(server)
        body = {"name": "SHOP_KEY", "value": VALUE}
        async with following(server, conversation_id) as follower:
            await follower.until(lambda: follower.count(observation="agent_state_changed") > 0)
            assert (await client.post("/api/secrets", json=body)).status_code == 201
            await follower.run('echo "[$SHOP_KEY]"; printf %s "$SHOP_KEY" | base64; printf %s "$shop_key"')
            await follower.until(lambda: follower.count(observation="run") == 1)
            await follower.run("env | grep -c SHOP_KEY")
            await follower.until(lambda: follower.count(observation="run") == 2)
            contents = [str(frame["content"]) for frame in follower.frames if frame.get("observation") == "run"]
            deltas = str(follower.deltas)
        assert contents[0].startswith(f"[{HIDDEN}]\n{HIDDEN}")
        assert contents[1].startswith("1"), "in the environment of the command that names it"
        assert not any(form in deltas for form in shown(VALUE))
        assert (await client.delete("/api/secrets/SHOP_KEY")).status_code == 200
    await server.kill()
    assert found_in(server.data_dir) == []
    await server.start()
    async with server.client() as client:
        assert (await client.get("/api/secrets")).json() == {"custom_secrets": []}
    assert VALUE not in server.printed()


async def test_a_server_with_the_key_of_another_does_not_start_and_says_what_to_do(make_process: MakeProcess) -> None:
    server = await make_process(*UNCONFINED)
    async with server.client() as client:
        assert (await client.post("/api/secrets", json={"name": "A", "value": VALUE})).status_code == 201
    await server.stop()
    key_file = server.data_dir / "secret.key"
    right = key_file.read_bytes()
    key_file.write_bytes(base64.urlsafe_b64encode(secrets.token_bytes(32)) + b"\n")
    other = ServerProcess(server.data_dir, *UNCONFINED)
    with pytest.raises(RuntimeError, match="is not the one that this database's secrets were encrypted with"):
        await other.start()
    key_file.write_bytes(right)
    await server.start()
    async with server.client() as client:
        assert (await client.get("/api/secrets")).json()["custom_secrets"] == [{"name": "A", "description": ""}]
