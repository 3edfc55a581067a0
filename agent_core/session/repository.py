"""The repository that a conversation begins with in its workspace, what it sets up there, and the name on commits."""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pydantic import SecretStr

from agent_core.errors import SandboxError, SandboxLostError, SkillValidationError, ToolError
from agent_core.events.control import ForeignEvent
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice
from agent_core.spelling import spelled
from agent_core.tools.context import SandboxAccess
from agent_core.tools.terminal import DEFAULT_TERMINAL, TerminalAction, TerminalObservation, TerminalTool

logger = logging.getLogger(__name__)

SETTING_UP = "STATUS$SETTING_UP_WORKSPACE"
SETTING_UP_HOOKS = "STATUS$SETTING_UP_GIT_HOOKS"
SETUP_SCRIPT: Final = ".openhands/setup.sh"
HOOK_SCRIPT: Final = ".openhands/pre-commit.sh"
MARK: Final = ".git/drydock-set-up"
"""In a clone whose scripts have not been run to their end."""
HOOK_SECONDS: Final = 30.0
NOT_ALLOWED = "STATUS$GIT_PROVIDER_AUTHENTICATION_ERROR"
IDENTITY_SECONDS = 30.0
ORGANIZATION_SECONDS = 20.0
ORGANIZATION_FOLDERS = ("skills", "microagents")
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
    A `problem` says why it cannot be had in this sandbox; then it is not tried. Its own `SETUP_SCRIPT` may run for
    `setup_seconds`.
    """

    name: str
    url: str
    branch: str = ""
    username: str = ""
    token: SecretStr | None = None
    depth: int = 0
    limit_seconds: float = 600.0
    setup_seconds: float = 600.0
    problem: str = ""

    @property
    def folder(self) -> str:
        """The name of its folder in the workspace, if it can have one."""
        return folder_of(self.name)


@spelled
@dataclass(frozen=True, slots=True)
class GitSetup:
    """A repository to begin with, and whose name and mail address stand on commits (empty: as they are).

    Of `organization`, which need not exist, only the skills are read, at each start.
    """

    repository: Repository | None = None
    user_name: str = ""
    user_email: str = ""
    organization: Repository | None = None


class OrganizationSkills(NamedTuple):
    """Texts by path (from the repository's name on), what is wrong with them, and the folders that hold them."""

    files: Mapping[str, str]
    problems: tuple[SkillValidationError, ...] = ()
    folders: tuple[str, ...] = ()


def folder_of(name: str) -> str:
    """The folder for a repository of this name or address, empty when there can be none."""
    name = _ADDRESS.sub("", name)
    last = name.rstrip("/").rpartition("/")[2].removesuffix(".git")
    return last if _NAME.fullmatch(name.strip("/")) and ".." not in name and last.strip(".") else ""


async def set_up(setup: GitSetup, sandbox: SandboxAccess, stream: EventStream) -> int | None:
    """Clone and configure in a sandbox that has just come up; a repository that is there is left alone.

    Returns the newest event at the time of its clone, where its scripts are to be run (`run_scripts`): it was cloned
    now, or an earlier process has cloned it and did not come to their end.

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
            await report(stream, f"The name for commits could not be set: {found['error']}", "")
    return None if setup.repository is None else await _clone(setup.repository, sandbox, stream)


async def run_scripts(repository: Repository, sandbox: SandboxAccess, stream: EventStream, *, cloned_at: int) -> None:
    """Have the runtime run the repository's `SETUP_SCRIPT`, and install its `HOOK_SCRIPT`, where it has them.

    The first is sourced in the kept shell, so that what it exports is there for all commands; its output is in the log.
    It runs once for each clone: one that began in an earlier process, after the event `cloned_at`, is followed to its
    end. The second becomes git's hook before commits, which runs the one that was there first. A failure is logged for
    the user and the agent, and the conversation goes on.
    """
    root = f"{sandbox.working_dir.rstrip('/')}/{repository.folder}"
    begun = await _begun(stream, _setup_of(repository, root), after=cloned_at)
    if begun is not None or await _is_there(sandbox, f"{root}/{SETUP_SCRIPT}"):
        stream.publish(StatusNotice(SETTING_UP, f"Setting up workspace: {SETUP_SCRIPT}..."))
        await _run_setup(repository, begun, root, sandbox, stream)
    if await _is_there(sandbox, f"{root}/{HOOK_SCRIPT}"):
        stream.publish(StatusNotice(SETTING_UP_HOOKS, f"Setting up git hooks: {HOOK_SCRIPT}..."))
        failure = await _shell(sandbox, _INSTALL_HOOK, fresh=True, cwd=root)
        if failure:
            await report(stream, f"{HOOK_SCRIPT} of {repository.name} could not be made a hook: {failure}", "")
    if not stream.closed:
        await _shell(sandbox, f"rm -f -- {MARK}", fresh=True, cwd=root)


def _setup_of(repository: Repository, root: str) -> TerminalAction:
    command = f"cd -- {shlex.quote(root)} && source {SETUP_SCRIPT}"
    return TerminalAction(command=command, timeout=repository.setup_seconds)


async def _begun(stream: EventStream, setup: TerminalAction, *, after: int) -> ActionEvent | None:
    async for event in stream.history(after=after):
        if not isinstance(event, ActionEvent) or event.source != "environment":
            continue
        if isinstance(event.action, TerminalAction) and event.action.command == setup.command:
            return event
    return None


async def _is_there(sandbox: SandboxAccess, path: str) -> bool:
    try:
        await sandbox.request("file.read", {"path": path, "limit": 1}, limit_seconds=HOOK_SECONDS)
    except SandboxLostError:
        raise
    except (SandboxError, ToolError):
        return False
    return True


async def _run_setup(
    repository: Repository, begun: ActionEvent | None, root: str, sandbox: SandboxAccess, stream: EventStream
) -> None:
    action = _setup_of(repository, root)
    new = ActionEvent(source="environment", action=action, tool_name=TerminalTool.tool_name)
    run = begun or await stream.add_event(new)
    problem = "it was not run"
    async with stream.subscribe(after=run.id) as events:
        async for event in events:
            if getattr(event, "cause", None) != run.id:
                continue
            if isinstance(event, ObservationEvent) and isinstance(event.observation, TerminalObservation):
                problem = _problem_of(event.observation, repository.setup_seconds)
            elif isinstance(event, AgentErrorEvent):
                problem = event.error
            break
    if stream.closed:
        return
    # What the script has set for itself is not for the commands that follow: where it went, how it fails. In a shell
    # in which it goes on they would not even run.
    restore = f"set +eux +o pipefail; cd -- {shlex.quote(sandbox.working_dir)}"
    if await _shell(sandbox, restore, session=DEFAULT_TERMINAL):
        await sandbox.request("shell.kill", {"session": DEFAULT_TERMINAL}, limit_seconds=HOOK_SECONDS)
    if problem:
        await report(stream, f"{SETUP_SCRIPT} of {repository.name} failed: {problem}", "")


def _problem_of(result: TerminalObservation, seconds: float) -> str:
    if result.status == "completed" and result.exit_code == 0:  # also by its own exit, which ends the shell
        return ""
    if result.status == "completed" and not result.is_error:
        return f"it ended with exit code {result.exit_code}."
    if result.status == "hard_timeout":
        return f"it took longer than {seconds:g} s and was stopped."
    return result.notice or f"it ended as {result.status}."


async def _shell(sandbox: SandboxAccess, command: str, **where: object) -> str:
    """Run a command that is nobody's but this module's; returns what went wrong, if anything."""
    args = {**where, "command": command, "timeout": HOOK_SECONDS, "max_output": 2000}
    try:
        found = (await sandbox.request("shell.run", args, limit_seconds=HOOK_SECONDS + 30)).result
    except SandboxLostError:
        raise
    except (SandboxError, ToolError) as error:
        return str(error)
    return "" if found["exit_code"] == 0 else str(found["output"]).strip() or str(found["notice"]) or "it failed"


_HOOK_MARK: Final = "# Drydock: runs .openhands/pre-commit.sh"
_INSTALL_HOOK: Final = f"""set -e
mkdir -p .git/hooks
cd .git/hooks
if [ -e pre-commit ] && ! grep -qF {shlex.quote(_HOOK_MARK)} pre-commit; then mv -f pre-commit pre-commit.local; fi
cat > pre-commit <<'END'
#!/bin/bash
{_HOOK_MARK}, after the hook that was here before it
before="$(dirname -- "$0")/pre-commit.local"
if [ -x "$before" ]; then "$before" "$@" || exit; fi
if [ ! -f {HOOK_SCRIPT} ]; then
    echo "pre-commit: {HOOK_SCRIPT} is not there, so it is not run" >&2
    exit 0
fi
source {HOOK_SCRIPT}
END
chmod +x pre-commit"""


async def organization_skills(repository: Repository | None, sandbox: SandboxAccess) -> OrganizationSkills:
    """The files of an organisation's skills; none where it has no such repository, or the user may not read it.

    Raises `SandboxLostError`.
    """
    if repository is None or repository.problem:
        return OrganizationSkills({})
    args = {**_source(repository), "folders": list(ORGANIZATION_FOLDERS), "timeout": ORGANIZATION_SECONDS}
    try:
        reply = await sandbox.request("git.instructions", args, limit_seconds=ORGANIZATION_SECONDS + 60)
    except SandboxLostError:
        raise
    except (SandboxError, ToolError) as error:
        logger.warning("the skills of %s are left out: %s", repository.name, error)
        return OrganizationSkills({})
    found = reply.result
    if found.get("error"):
        if found.get("code") in ("not_found", "authentication", "no_git"):
            return OrganizationSkills({})
        problem = f"{repository.name}: its skills cannot be fetched: {found['error']}"
        return OrganizationSkills({}, (SkillValidationError(problem, path=repository.name),))
    files = {f"{repository.name}/{one['path']}": str(one["content"]) for one in found.get("files", [])}
    return OrganizationSkills(files, folders=tuple(f"{repository.name}/{name}" for name in ORGANIZATION_FOLDERS))


def _source(repository: Repository) -> dict[str, object]:
    return {
        "url": repository.url,
        "branch": repository.branch,
        "username": repository.username,
        "password": repository.token.get_secret_value() if repository.token is not None else "",
    }


async def _clone(repository: Repository, sandbox: SandboxAccess, stream: EventStream) -> int | None:
    cloned_at = stream.last_id

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
            **_source(repository),
            "folder": repository.folder,
            "depth": repository.depth,
            "timeout": repository.limit_seconds,
            "mark": cloned_at,
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
        await report(stream, f"The repository {repository.name} could not be cloned: {why}.", error_id)
    mark = found.get("mark")
    return cloned_at if found.get("cloned") is True else mark if isinstance(mark, int) else None


async def report(stream: EventStream, text: str, error_id: str = "") -> None:
    """Tell the user and the agent, for good, of what could not be set up."""
    payload = {"content": text, "extras": {"error_id": error_id}}
    shown = ForeignEvent(source="environment", name="error", is_action=False, payload=payload)
    await stream.add_events([shown, MessageEvent(source="environment", llm_message=Message.user(text))])
