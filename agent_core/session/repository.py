"""The repository that a conversation begins with in its workspace, and the name on its commits."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from pydantic import SecretStr

from agent_core.errors import SandboxError, SandboxLostError, ToolError
from agent_core.events.control import ForeignEvent
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice
from agent_core.spelling import spelled
from agent_core.tools.context import SandboxAccess

SETTING_UP = "STATUS$SETTING_UP_WORKSPACE"
NOT_ALLOWED = "STATUS$GIT_PROVIDER_AUTHENTICATION_ERROR"
IDENTITY_SECONDS = 30.0
_ADDRESS = re.compile(r"https?://[^/]*/")
_NAME = re.compile(r"[\w.~-]+(/[\w.~-]+)*", re.ASCII)

_WORDS = {
    "authentication": "its provider wants a valid token that may read it ({reason})",
    "not_found": "there is no such repository, or the token may not see it ({reason})",
    "no_branch": "it has no branch {branch!r}",
    "unreachable": "the sandbox cannot reach it ({reason})",
    "no_git": "git is not installed in the image of the sandbox",
}


@spelled
@dataclass(frozen=True, slots=True)
class Repository:
    """A repository that is cloned into the workspace when its conversation starts for the first time.

    The token goes to git and to nobody else: it stays out of the sandbox's files, environment, arguments and log. `url`
    is http or https, without a user's name. An empty `branch` is the repository's choice, `depth` 0 its whole history.
    A `problem` says why it cannot be had in this sandbox; then it is not tried.
    """

    name: str
    url: str
    branch: str = ""
    username: str = ""
    token: SecretStr | None = None
    depth: int = 0
    limit_seconds: float = 600.0
    problem: str = ""

    @property
    def folder(self) -> str:
        """The name of its folder in the workspace, if it can have one."""
        return folder_of(self.name)


@spelled
@dataclass(frozen=True, slots=True)
class GitSetup:
    """A repository to begin with, and whose name and mail address stand on commits (empty: as they are)."""

    repository: Repository | None = None
    user_name: str = ""
    user_email: str = ""


def folder_of(name: str) -> str:
    """The folder for a repository of this name or address, empty when there can be none."""
    name = _ADDRESS.sub("", name)
    last = name.rstrip("/").rpartition("/")[2].removesuffix(".git")
    return last if _NAME.fullmatch(name.strip("/")) and ".." not in name and last.strip(".") else ""


async def set_up(setup: GitSetup, sandbox: SandboxAccess, stream: EventStream) -> None:
    """Clone and configure in a sandbox that has just come up; a repository that is there is left alone.

    A failure is logged for the user and the agent, and the conversation goes on, unless the sandbox is lost.
    """
    if setup.user_name or setup.user_email:
        args = {"name": setup.user_name, "email": setup.user_email}
        try:
            found = (await sandbox.request("git.identity", args, limit_seconds=IDENTITY_SECONDS)).result
        except SandboxLostError:
            raise
        except (SandboxError, ToolError) as error:
            found = {"error": error}
        if found.get("error") and found.get("code") != "no_git":
            await _report(stream, f"The name for commits could not be set: {found['error']}", "")
    if setup.repository is not None:
        await _clone(setup.repository, sandbox, stream)


async def _clone(repository: Repository, sandbox: SandboxAccess, stream: EventStream) -> None:
    def progress(text: str) -> None:
        try:
            shown = str(json.loads(text)["progress"])
        except (ValueError, KeyError, TypeError):
            shown = "..."
        stream.publish(StatusNotice(SETTING_UP, f"Cloning {repository.name}: {shown}"))

    stream.publish(StatusNotice(SETTING_UP, f"Setting up workspace: cloning {repository.name}..."))
    found: dict[str, object] = {}
    if not repository.folder:
        found = {"error": "its name must be words with slashes between them, such as owner/name"}
    elif repository.problem:
        found = {"error": repository.problem}
    else:
        args = {
            "url": repository.url,
            "folder": repository.folder,
            "branch": repository.branch,
            "username": repository.username,
            "password": repository.token.get_secret_value() if repository.token is not None else "",
            "depth": repository.depth,
            "timeout": repository.limit_seconds,
        }
        limit = repository.limit_seconds + 60
        try:
            found = (await sandbox.request("git.clone", args, limit_seconds=limit, on_output=progress)).result
        except SandboxLostError:
            raise
        except (SandboxError, ToolError) as error:
            found = {"error": str(error)}
    if found.get("error"):
        reason = str(found["error"])
        why = _WORDS.get(str(found.get("code")), "{reason}").format(reason=reason, branch=repository.branch)
        error_id = NOT_ALLOWED if found.get("code") == "authentication" else ""
        await _report(stream, f"The repository {repository.name} could not be cloned: {why}.", error_id)


async def _report(stream: EventStream, text: str, error_id: str) -> None:
    payload = {"content": text, "extras": {"error_id": error_id}}
    shown = ForeignEvent(source="environment", name="error", is_action=False, payload=payload)
    await stream.add_events([shown, MessageEvent(source="environment", llm_message=Message.user(text))])
