"""``drydock plugins`` and the client's calls against a real server and a real git server, as a person types them."""

from __future__ import annotations

from pathlib import Path

import pytest

from drydock_client import DrydockClient, InvalidError, NotFoundError
from tests.contract.workspace.git_server import GitServer
from tests.integration.server.conftest import ServerProcess
from tests.integration.server.test_recordings import TOKEN, drydock


async def test_plugins_are_installed_listed_updated_switched_and_removed_by_the_command_line(tmp_path: Path) -> None:
    git = GitServer(tmp_path / "repositories")
    server = ServerProcess(tmp_path / "data", "--sandbox", "unconfined", environment={"DRYDOCK_TOKEN": TOKEN})
    await server.start()
    try:
        git.publish("ann/tools", {"skills/boats.md": "Boats float."})
        source = f"http://127.0.0.1:{git.url.rpartition(':')[2]}/ann/tools.git"
        known = {"DRYDOCK_URL": server.url, "DRYDOCK_API_KEY": TOKEN}
        assert await drydock("plugins", "list", **known) == (0, "No plugin is installed.\n", "")
        status, out, error = await drydock("plugins", "install", source, "--ref", "main", **known)
        assert (status, error) == (0, "")
        old = out.split(" at ")[1].split()[0]
        assert out == f"Installed tools 1.0.0, enabled: {source} at {old}\n  skills: boats\n"
        new = git.commit("ann/tools", {"skills/rafts.md": "Rafts float."})
        status, out, error = await drydock("plugins", "update", "tools", **known)
        assert (status, out, error) == (0, f"tools: {old} -> {new}\n  skills: boats, rafts\n", "")
        status, out, error = await drydock("plugins", "update", "tools", **known)
        assert (status, out, error) == (0, f"tools is at {new} already.\n", "")
        assert (await drydock("plugins", "disable", "tools", **known))[1] == "tools is disabled.\n"
        assert ", disabled: " in (await drydock("plugins", "list", **known))[1]
        assert (await drydock("plugins", "enable", "tools", **known))[0] == 0
        assert (await drydock("plugins", "remove", "tools", **known))[0] == 0
        git.publish("ann/loud", {".plugin/plugin.json": '{"name": "loud", "version": "\\u001b[2J"}'})
        status, out, _ = await drydock("plugins", "install", source.replace("tools", "loud"), **known)
        assert (status, out.startswith("Installed loud ?[2J, enabled")) == (0, True), "it moves nothing in a terminal"
        assert (await drydock("plugins", "remove", "loud", **known))[0] == 0
        for arguments, problem in (
            (("update", "tools"), "there is no plugin 'tools' of yours"),
            (("install", "file:///etc"), "source: give the https address of a git repository"),
            (("install", source, "--ref", "none"), "has no branch, tag or commit of this name"),
        ):
            status, out, error = await drydock("plugins", *arguments, **known)
            assert (status, out, problem in error, "Traceback" in error) == (2, "", True, False), error
        async with DrydockClient(server.url, TOKEN) as client:
            made = await client.plugins.install(source, ref=old)
            assert (made.commit, [one.name for one in await client.plugins.list()]) == (old, ["tools"])
            await client.plugins.enable("tools", enabled=False)
            assert (await client.plugins.get("tools")).enabled is False
            changed = await client.plugins.update("tools", ref="main")
            assert (changed.old_commit, changed.new_commit, changed.plugin.enabled) == (old, new, False)
            await client.plugins.remove("tools")
            with pytest.raises(NotFoundError):
                await client.plugins.get("tools")
            stored = await client.skills.put("boats", "---\ntriggers: [boat]\n---\nBoats float.")
            assert (stored.triggers, [one.name for one in await client.skills.list()]) == (("boat",), ["boats"])
            await client.skills.enable("boats", enabled=False)
            assert (await client.skills.get("boats")).enabled is False
            with pytest.raises(InvalidError):
                await client.skills.put("boats", "---\ntype: magic\n---\nNo.")
            await client.skills.delete("boats")
            assert await client.skills.list() == []
    finally:
        await server.stop()
        git.close()
