"""``drydock plugins``: the plugins of a user of a running server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from agent_core.errors import DrydockError
from drydock_client import ClientError, DrydockClient, PluginEntry
from drydock_client.resources import PluginsApi
from server.settings.running_server import client_of, words_of

CALL_SECONDS: Final = 120.0
"""Fetching may take a minute."""


def plugins(
    url: str | None,
    key_file: Path | None,
    environment: Mapping[str, str],
    *,
    action: str,
    options: Mapping[str, Any],
    out: TextIO,
) -> int:
    """Carry out one of `ACTIONS` with its options, and print what came of it; returns the exit status."""
    client = client_of(url, key_file, environment, timeout=CALL_SECONDS)
    try:
        text = asyncio.run(_in_session(client, ACTIONS[action], options))
        # What strangers have called their plugins is not to move the cursor, nor anything else of a terminal.
        out.write("".join(one if one.isprintable() or one == "\n" else "?" for one in text))
    except ClientError as error:
        raise DrydockError(words_of(error)) from error
    return 0


PluginCall = Callable[[PluginsApi, Mapping[str, Any]], Coroutine[Any, Any, str]]


async def _in_session(client: DrydockClient, action: PluginCall, options: Mapping[str, Any]) -> str:
    async with client:
        return await action(client.plugins, options)


async def _list(api: PluginsApi, options: Mapping[str, Any]) -> str:
    found = await api.list()
    return "".join(_line(one) for one in found) or "No plugin is installed.\n"


async def _install(api: PluginsApi, options: Mapping[str, Any]) -> str:
    made = await api.install(options["source"], ref=options["ref"] or "", path=options["path"] or "")
    return f"Installed {_line(made)}{_contents(made)}"


async def _update(api: PluginsApi, options: Mapping[str, Any]) -> str:
    done = await api.update(options["name"], ref=options["ref"])
    if done.old_commit == done.new_commit:
        return f"{done.plugin.name} is at {done.new_commit} already.\n"
    return f"{done.plugin.name}: {done.old_commit} -> {done.new_commit}\n{_contents(done.plugin)}"


async def _enable(api: PluginsApi, options: Mapping[str, Any]) -> str:
    await api.enable(options["name"])
    return f"{options['name']} is enabled.\n"


async def _disable(api: PluginsApi, options: Mapping[str, Any]) -> str:
    await api.enable(options["name"], enabled=False)
    return f"{options['name']} is disabled.\n"


async def _remove(api: PluginsApi, options: Mapping[str, Any]) -> str:
    await api.remove(options["name"])
    return f"{options['name']} is removed.\n"


ACTIONS: Final[Mapping[str, PluginCall]] = {
    "list": _list,
    "install": _install,
    "update": _update,
    "enable": _enable,
    "disable": _disable,
    "remove": _remove,
}


def _line(plugin: PluginEntry) -> str:
    state = "for all users" if plugin.for_all else "enabled" if plugin.enabled else "disabled"
    place = f" ({plugin.path})" if plugin.path else ""
    return f"{plugin.name} {plugin.version}, {state}: {plugin.source}{place} at {plugin.commit}\n"


def _contents(plugin: PluginEntry) -> str:
    kinds = {
        "skills": plugin.skills,
        "sub-agents": plugin.agents,
        "MCP servers": plugin.mcp_servers,
        "hooks": plugin.hooks,
        "problems": plugin.problems,
    }
    return "".join(f"  {kind}: {', '.join(names)}\n" for kind, names in kinds.items() if names)
