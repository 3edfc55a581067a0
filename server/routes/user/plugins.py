"""Plugins of a user: skills, hooks, MCP servers and sub-agents from git addresses, each at one commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, Field

from server.db.repositories.plugins import SERVER, PluginTakenError
from server.db.repositories.user_settings import StoredSettings
from server.dependencies import IdentityDependency, Services, ServicesDependency
from server.errors import ReplyError
from server.routes.query import LINKED, PagingDependency
from server.routes.replies import Confirmation, errors
from server.routes.route_classes import make_router
from server.session.agents.plugin_fetch import PluginError
from server.session.agents.plugins import InstalledPlugin, servers_of_plugin, source_of
from server.wire.envelope import wire_time

router = make_router("/api")

PluginName = Annotated[str, Path(max_length=1000)]
SourcePart = Annotated[str, Field(max_length=1000)]


class PluginEntry(BaseModel):
    """An installed plugin, and what it brings."""

    name: str
    version: str
    description: str
    source: str
    ref: str = Field(description="What was asked for; an update asks for it again. Empty: the repository's choice.")
    path: str = Field(description="The plugin's folder in the repository; empty: the whole of it.")
    commit: str = Field(description="The full hash of what is installed.")
    enabled: bool
    for_all: bool = Field(
        description="Whether the operator has installed it for all users, who can switch it off alone."
    )
    installed_at: str = Field(description="UTC, ISO 8601 with microseconds and `Z`.")
    skills: list[str] = Field(description="Names; those of commands as they are called, such as `tools:review`.")
    agents: list[str]
    mcp_servers: list[str]
    hooks: list[str] = Field(description="The events that it has hooks for.")
    problems: list[str] = Field(description="What is wrong with its files; conversations tell it, too.")


class PluginList(BaseModel):
    """A user's plugins, behind those that are there for all."""

    plugins: list[PluginEntry]


class NewPlugin(BaseModel, strict=True):
    """The body of ``POST /api/plugins``."""

    source: SourcePart = Field(description="The https address of a git repository.")
    ref: SourcePart = Field("", description="A branch, a tag or a commit; empty: the repository's choice.")
    path: SourcePart = Field("", description="The plugin's folder in the repository; empty: the whole of it.")


class PluginSwitch(BaseModel, strict=True):
    """The body of ``PATCH /api/plugins/{name}``."""

    enabled: bool


class PluginUpdateWish(BaseModel, strict=True):
    """The body of ``POST /api/plugins/{name}/update``."""

    ref: SourcePart | None = Field(None, description="Another branch, tag or commit; null: as it was installed.")


class PluginChange(BaseModel):
    """What an update has changed; the commits are the same where there was nothing new."""

    old_commit: str
    new_commit: str
    plugin: PluginEntry


@router.get("/plugins", response_model=PluginList, responses={200: LINKED})
async def list_plugins(
    services: ServicesDependency, identity: IdentityDependency, paging: PagingDependency
) -> dict[str, Any]:
    """The installed plugins; an addition to the protocol, like all routes of plugins."""
    user = await services.database.settings.get(identity.user_id)
    disabled = (user.disabled_plugins if user is not None else None) or ()
    found = [_public(one) for one in await services.plugins.all(identity.user_id, disabled)]
    place = sorted(found, key=_place)
    return {"plugins": paging.linked(place, _place, int, str)}


@router.post("/plugins", response_model=PluginEntry, status_code=201, responses=errors(400, 403, 409))
async def install_plugin(body: NewPlugin, services: ServicesDependency, identity: IdentityDependency) -> dict[str, Any]:
    """Fetch a plugin by git and install it as it is now; conversations have it from their next start on."""
    async with _changing(services):
        source = source_of(body.source, body.ref, body.path)
        user = await services.database.settings.get(identity.user_id)
        return _public(await services.plugins.install(identity.user_id, source, user))


@router.get("/plugins/{plugin_name}", response_model=PluginEntry, responses=errors(404))
async def read_plugin_entry(
    plugin_name: PluginName, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, Any]:
    """One of the user's own."""
    found = await services.plugins.get(identity.user_id, plugin_name)
    if found is None:
        raise _not_found(plugin_name)
    return _public(found)


@router.post("/plugins/{plugin_name}/update", response_model=PluginChange, responses=errors(400, 403, 404, 409))
async def update_plugin(
    plugin_name: PluginName, body: PluginUpdateWish, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, Any]:
    """Fetch it anew from where it was installed; where that fails, it stays as it was."""
    async with _changing(services):
        user = await services.database.settings.get(identity.user_id)
        done = await services.plugins.update(identity.user_id, plugin_name, user, ref=body.ref)
    if done is None:
        raise _not_found(plugin_name)
    plugin = _public(done.plugin)
    return {"old_commit": done.old_commit, "new_commit": plugin["commit"], "plugin": plugin}


@router.patch("/plugins/{plugin_name}", response_model=Confirmation, responses=errors(403, 404))
async def switch_plugin(
    plugin_name: PluginName, body: PluginSwitch, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, str]:
    """Use it, or not, from the next start of each conversation on; also one of the operator's, for this user."""
    if not await services.plugins.enable(identity.user_id, plugin_name, enabled=body.enabled):
        if not await services.plugins.is_of_server(plugin_name):
            raise _not_found(plugin_name)
        if services.settings.required_plugins and not body.enabled:
            raise ReplyError(403, {"error": "the operator has users keep this plugin (setting required_plugins)"})

        def switched(stored: StoredSettings | None) -> StoredSettings:
            settings = stored or StoredSettings()
            others = [name for name in settings.disabled_plugins or [] if name != plugin_name]
            off = others if body.enabled else [*others, plugin_name]
            return settings.model_copy(update={"disabled_plugins": off})

        await services.database.settings.change(switched, identity.user_id, sets={"disabled_plugins"})
    return {"message": f"The plugin is {'enabled' if body.enabled else 'disabled'}"}


@router.delete("/plugins/{plugin_name}", response_model=Confirmation, responses=errors(404))
async def remove_plugin(
    plugin_name: PluginName, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, str]:
    """Forget it; conversations that run have it until they are started again."""
    if not await services.plugins.remove(identity.user_id, plugin_name):
        raise _not_found(plugin_name)
    return {"message": "The plugin is removed"}


@asynccontextmanager
async def _changing(services: Services) -> AsyncIterator[None]:
    if not services.settings.user_plugins:
        raise ReplyError(403, {"error": "the operator lets users install no plugins (setting user_plugins)"})
    try:
        yield
    except PluginError as error:
        raise ReplyError(400, {"error": str(error)}) from error
    except PluginTakenError as error:
        raise ReplyError(409, {"error": str(error)}) from error


def _place(entry: dict[str, Any]) -> tuple[int, str]:
    return (0 if entry["for_all"] else 1, entry["name"])


def _public(plugin: InstalledPlugin) -> dict[str, Any]:
    stored, parts = plugin.stored, plugin.parts
    return {
        "name": stored.name,
        "version": parts.plugin.version if parts is not None else "",
        "description": parts.plugin.description if parts is not None else "",
        "source": stored.source,
        "ref": stored.ref,
        "path": stored.path,
        "commit": stored.commit,
        "enabled": stored.enabled,
        "for_all": stored.owner == SERVER,
        "installed_at": wire_time(stored.installed_at),
        "skills": [skill.name for skill in parts.plugin.skills] if parts is not None else [],
        "agents": [agent.name for agent in parts.plugin.agents] if parts is not None else [],
        "mcp_servers": servers_of_plugin(parts) if parts is not None else [],
        "hooks": [event.value for event in parts.hooks.hooks] if parts is not None else [],
        "problems": [str(problem) for problem in plugin.problems],
    }


def _not_found(name: str) -> ReplyError:
    return ReplyError(404, {"error": f"there is no plugin {name[:200]!r} of yours; GET /api/plugins lists them"})
