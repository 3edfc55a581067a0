"""What a conversation chooses of a local sandbox: it acts there, or is refused."""

from __future__ import annotations

import pytest

from tests.integration.server.conftest import MakeProcess, following

pytestmark = pytest.mark.bubblewrap


async def test_network_disk_and_variables_act_in_a_local_sandbox_and_an_image_is_refused(
    make_process: MakeProcess,
) -> None:
    server = await make_process("--sandbox", "local")
    await server.until_printed("sandbox   local: ")  # until then nobody knows what its sandboxes lack
    async with server.client() as client:
        refused = await client.post("/api/conversations", json={"sandbox": {"image": "drydock/sandbox:browser"}})
        assert refused.status_code == 400
        assert refused.json()["message"].startswith("sandbox.image: local sandboxes have no image")
        commands = await client.post("/api/settings", json={"runtime_extra_deps": "true"})
        assert commands.status_code == 422
        assert commands.json()["error"].startswith("runtime_extra_deps: local sandboxes have no image")
        variables = {"runtime_startup_env_vars": {"COLOUR": "blue", "A_TOKEN": "do-not-tell-this"}}
        assert (await client.post("/api/settings", json=variables)).is_success
        made = await client.post("/api/conversations", json={"sandbox": {"network": "none", "disk_mb": 5}})
        assert made.is_success, made.text
    async with following(server, made.json()["conversation_id"]) as follower:
        await follower.run("ls /sys/class/net 2>/dev/null; cat /proc/net/dev; echo $COLOUR $A_TOKEN; ulimit -f")
        await follower.until(lambda: follower.count(observation="run") == 1)
        printed = next(frame for frame in follower.frames if frame.get("observation") == "run")["content"]
    assert "tap0" not in printed
    assert "blue <secret_hidden>" in printed
    assert str(5 * 1024) in printed.split()
