"""Groups of calls: files and repositories of workspaces, and the user's settings, secrets, skills and the like."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from drydock_client.errors import NotFoundError
from drydock_client.http import Http, Query, segment, without_none
from drydock_client.results import (
    Change,
    Diff,
    Folder,
    NewWebhook,
    OwnSkill,
    PluginChange,
    PluginEntry,
    Secret,
    Settings,
    Uploaded,
    Webhook,
    listed,
    parsed,
    parsed_list,
)


class Calls:
    """A group of calls of one client."""

    def __init__(self, http: Http) -> None:
        self._http = http


def conversation_path(conversation_id: str, what: str = "") -> str:
    """The path of a conversation's routes."""
    path = f"/api/conversations/{segment(conversation_id)}"
    return f"{path}/{what}" if what else path


PIECE = 256 * 1024


class FilesApi(Calls):
    """Files, by paths relative to the workspace or absolute below it.

    Raises `NotFoundError` for what is not there, also while the conversation does not run.
    """

    async def upload(self, conversation_id: str, files: Mapping[str, bytes], *, folder: str = "") -> Uploaded:
        """Store files by their names (which may have folders in them), in place of any that are there.

        What cannot be stored is in `skipped_files`, with its reason.
        """
        parts = [("files", (name, content)) for name, content in files.items()]
        query = {"path": folder or None}
        path = conversation_path(conversation_id, "upload-files")
        return parsed(Uploaded, await self._http.json("POST", path, query=query, files=parts, repeatable=True))

    async def list(self, conversation_id: str, path: str = "") -> Folder:
        answer = await self._http.json("GET", conversation_path(conversation_id, "files"), query={"path": path or None})
        return parsed(Folder, answer)

    async def download(self, conversation_id: str, path: str) -> bytes:
        """The bytes of a file, or a folder as a ZIP file; see `open` for large ones."""
        return await _whole(self.open(conversation_id, path))

    async def zip(self, conversation_id: str, path: str = "") -> bytes:
        """The workspace, or a folder of it, as a ZIP file."""
        return await _whole(self._pieces(conversation_path(conversation_id, "zip-directory"), {"path": path or None}))

    def open(self, conversation_id: str, path: str) -> AsyncIterator[bytes]:
        """A file, or a folder as a ZIP file, in pieces as they come."""
        return self._pieces(conversation_path(conversation_id, "download"), {"path": path})

    async def _pieces(self, path: str, query: Query) -> AsyncIterator[bytes]:
        async with self._http.stream(path, query) as response:
            async for piece in response.aiter_bytes(PIECE):
                yield piece


class GitApi(Calls):
    """Repositories of the workspace; raises `NotFoundError` where there is none, or the conversation does not run."""

    async def changes(self, conversation_id: str, *, since: str = "commit") -> list[Change]:
        """The files that differ from the last commit, or (`since` ``base``) from where the branch began.

        Raises `NotFoundError` where there is no repository, or the conversation does not run.
        """
        answer = await self._http.json("GET", conversation_path(conversation_id, "git/changes"), query={"since": since})
        return parsed_list(Change, answer)

    async def diff(self, conversation_id: str, path: str, *, since: str = "commit") -> Diff:
        query = {"path": path, "since": since}
        return parsed(Diff, await self._http.json("GET", conversation_path(conversation_id, "git/diff"), query=query))


async def _whole(pieces: AsyncIterator[bytes]) -> bytes:
    async with aclosing(pieces):  # type: ignore[type-var] # they are of a generator
        return b"".join([piece async for piece in pieces])


class SettingsApi(Calls):
    """The user's settings."""

    async def get(self) -> Settings | None:
        """None when nothing is stored yet."""
        try:
            return parsed(Settings, await self._http.json("GET", "/api/settings"))
        except NotFoundError:
            return None

    async def change(self, /, **values: Any) -> None:
        """Change the named settings, such as ``llm_model="…", llm_api_key="…"``; others stay.

        Conversations that run keep theirs until they are started again. Raises `InvalidError`, whose `field` says what
        is wrong.
        """
        await self._http.json("POST", "/api/settings", body=values, repeatable=True)


class SecretsApi(Calls):
    """The user's secrets: commands that name one have its value in their environment. Values are never told."""

    async def list(self) -> list[Secret]:
        answer = await self._http.json("GET", "/api/secrets")
        return parsed_list(Secret, listed(answer, "custom_secrets", "A list of secrets"))

    async def create(self, name: str, value: str, *, description: str = "") -> None:
        """Raises `InvalidError` where there is one of this name, or the name cannot be one."""
        await self._http.json("POST", "/api/secrets", body={"name": name, "value": value, "description": description})

    async def change(
        self, name: str, *, new_name: str | None = None, value: str | None = None, description: str | None = None
    ) -> None:
        """What is not given stays. Raises `NotFoundError`."""
        body = without_none(name=new_name or name, value=value, description=description)
        await self._http.json("PUT", f"/api/secrets/{segment(name)}", body=body)

    async def delete(self, name: str) -> None:
        """Raises `NotFoundError`."""
        await self._http.json("DELETE", f"/api/secrets/{segment(name)}")


class SkillsApi(Calls):
    """The user's skills: what their agents are told, from the next start of each conversation on.

    Raises `NotFoundError` for an unknown name.
    """

    async def list(self) -> list[OwnSkill]:
        return parsed_list(OwnSkill, listed(await self._http.json("GET", "/api/skills"), "skills", "A list of skills"))

    async def get(self, name: str) -> OwnSkill:
        return parsed(OwnSkill, await self._http.json("GET", _skill(name)))

    async def put(self, name: str, content: str, *, enabled: bool = True) -> OwnSkill:
        """Store a text with a header, as in files. Raises `InvalidError` where no skill can be made of it."""
        body = {"content": content, "enabled": enabled}
        return parsed(OwnSkill, await self._http.json("PUT", _skill(name), body=body, repeatable=True))

    async def enable(self, name: str, *, enabled: bool = True) -> None:
        await self._http.json("PATCH", _skill(name), body={"enabled": enabled}, repeatable=True)

    async def delete(self, name: str) -> None:
        await self._http.json("DELETE", _skill(name))


class PluginsApi(Calls):
    """The user's plugins, each at the commit that was fetched; conversations have them from their next start on.

    Raises `NotFoundError` for an unknown name, `InvalidError` where one cannot be fetched or is none, `ConflictError`
    where its name is taken.
    """

    async def list(self) -> list[PluginEntry]:
        answer = await self._http.json("GET", "/api/plugins")
        return parsed_list(PluginEntry, listed(answer, "plugins", "A list of plugins"))

    async def get(self, name: str) -> PluginEntry:
        return parsed(PluginEntry, await self._http.json("GET", _plugin(name)))

    async def install(self, source: str, *, ref: str = "", path: str = "") -> PluginEntry:
        """Install what a git repository has at a branch, tag or commit, or a folder of it."""
        body = {"source": source, "ref": ref, "path": path}
        return parsed(PluginEntry, await self._http.json("POST", "/api/plugins", body=body))

    async def update(self, name: str, *, ref: str | None = None) -> PluginChange:
        """Fetch it anew, at what it was installed from or at another `ref`."""
        return parsed(PluginChange, await self._http.json("POST", f"{_plugin(name)}/update", body={"ref": ref}))

    async def enable(self, name: str, *, enabled: bool = True) -> None:
        await self._http.json("PATCH", _plugin(name), body={"enabled": enabled}, repeatable=True)

    async def remove(self, name: str) -> None:
        await self._http.json("DELETE", _plugin(name))


def _skill(name: str) -> str:
    return f"/api/skills/{segment(name)}"


def _plugin(name: str) -> str:
    return f"/api/plugins/{segment(name)}"


class WebhooksApi(Calls):
    """The user's webhooks. What they send is signed as Standard Webhooks says.

    Raises `NotFoundError` for an unknown id, `InvalidError` for an address or a type of events that cannot be.
    """

    async def list(self) -> list[Webhook]:
        answer = await self._http.json("GET", "/api/webhooks")
        return parsed_list(Webhook, listed(answer, "results", "A list of webhooks"))

    async def create(
        self, url: str, *, events: Sequence[str] = (), conversation_id: str | None = None, secret: str | None = None
    ) -> NewWebhook:
        """Have an address told, by POST, of what is stored from now on; the result alone has the secret.

        `events` are the types to send, such as ``agent_state_changed`` (default: all), of the user's conversations or
        one. The `secret` signs what is sent; by default the server makes one. Raises `ConflictError` where there are
        too many already.
        """
        body = without_none(url=url, events=[*events], conversation_id=conversation_id, secret=secret)
        return parsed(NewWebhook, await self._http.json("POST", "/api/webhooks", body=body))

    async def get(self, webhook_id: str) -> Webhook:
        return parsed(Webhook, await self._http.json("GET", _webhook(webhook_id)))

    async def change(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        events: Sequence[str] | None = None,
        secret: str | None = None,
        active: bool | None = None,
    ) -> Webhook:
        """What is not given stays. One that is made active goes on where its receiver was."""
        body = without_none(url=url, events=None if events is None else [*events], secret=secret, active=active)
        return parsed(Webhook, await self._http.json("PATCH", _webhook(webhook_id), body=body, repeatable=True))

    async def replay(self, webhook_id: str, conversation_id: str, *, after: int = -1) -> None:
        """Send the conversation's log behind the event `after` once more, for a receiver that has lost it."""
        body = {"conversation_id": conversation_id, "after_event_id": after}
        await self._http.json("POST", f"{_webhook(webhook_id)}/replay", body=body, repeatable=True)

    async def delete(self, webhook_id: str) -> bool:
        """False when there was none of this id."""
        try:
            await self._http.json("DELETE", _webhook(webhook_id))
        except NotFoundError:
            return False
        return True


def _webhook(webhook_id: str) -> str:
    return f"/api/webhooks/{segment(webhook_id)}"
