"""The image that a repository names for its sandbox, in a file that is read once it is there."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from agent_core.errors import SandboxError, SandboxLostError, ToolError
from agent_core.events.stream import EventStream
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.sandbox import Progress
from agent_core.session.repository import SETTING_UP, report
from agent_core.tools.context import SandboxAccess
from server.session.sandbox_choice import ChosenSandbox, SandboxOptions, SandboxRefusedError

OWN_FILE: Final = ".openhands/sandbox.toml"
FILES: Final = (OWN_FILE, ".devcontainer/devcontainer.json", ".devcontainer.json")
"""The first of them that is there counts."""

_MAX_BYTES: Final = 100_000
_READ_SECONDS: Final = 30.0
# A text that does not end is taken as far as it goes: looking for its end at each quote in it would take minutes.
_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\\n])*"?)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'("(?:\\.|[^"\\\n])*"?)|,(?=\s*[}\]])')


class Choices(NamedTuple):
    """What the server makes of a repository's wish for one conversation.

    Attributes:
        choose: what the conversation has with this image; `SandboxRefusedError` where it may not have it.
        use: have the sandbox be this from its next start on; None: what is stored.
        store: keep that the repository was looked at, and what the conversation has now (None: what it had).
    """

    choose: Callable[[str], Awaitable[ChosenSandbox]]
    use: Callable[[ChosenSandbox | None], None]
    store: Callable[[ChosenSandbox | None], Awaitable[None]]


async def settle(
    folder: str, choices: Choices, connection: SandboxConnection, stream: EventStream, progress: Progress
) -> None:
    """Look once what image the repository in `folder` of the workspace names, and have the sandbox made from it.

    Its workspace stays. What may not be, or cannot be had, is told to the user and the agent, and the sandbox stays
    what it was. Raises `SandboxError` where that one does not come up again, and `DrydockError`.
    """
    wish = await read_wish(connection, f"{connection.working_dir}/{folder}")
    if wish is None:
        return  # it could not be cloned or looked at, which the next start tries again
    problem, chosen = wish.problem, None
    if wish.image:
        try:
            chosen = await choices.choose(wish.image)
        except SandboxRefusedError as error:
            problem = str(error).partition(": ")[2]
    if chosen is not None and chosen.image != connection.sandbox.spec.image:
        progress(SETTING_UP, f"Making the sandbox from {wish.image}, as {folder}/{wish.file} says")
        problem = await _remade(choices, chosen, connection, progress)
    if problem:
        text = f"The sandbox stays what it was. The file {folder}/{wish.file} of the repository: {problem.rstrip('.')}."
        await report(stream, text)
    await choices.store(None if problem else chosen)


async def _remade(choices: Choices, chosen: ChosenSandbox, connection: SandboxConnection, progress: Progress) -> str:
    """Why the sandbox could not be made from that, and is again what it was; empty when it could."""
    choices.use(chosen)
    try:
        await connection.stop()
        await connection.start(progress)
    except SandboxLostError:
        raise
    except SandboxError as error:
        choices.use(None)
        await connection.start(progress)
        return " ".join(str(error).split())
    return ""


class RepositoryWish(NamedTuple):
    """What a repository's file says: its `image` (empty: none is named), or the `problem` with it, in words."""

    file: str
    image: str = ""
    problem: str = ""


async def read_wish(sandbox: SandboxAccess, folder: str) -> RepositoryWish | None:
    """What the repository cloned into `folder` (an absolute path) wishes for; None: it is not there, or was not told.

    Raises `SandboxLostError`.
    """
    try:
        if await _read(sandbox, f"{folder}/.git/HEAD") is None:
            return None
        for file in FILES:
            if (content := await _read(sandbox, f"{folder}/{file}")) is None:
                continue
            try:
                return RepositoryWish(file, image=image_in(file, content))
            except ValueError as error:
                return RepositoryWish(file, problem=str(error))
    except SandboxLostError:
        raise
    except SandboxError:  # no answer in time
        return None
    return RepositoryWish("")


def image_in(file: str, content: bytes) -> str:
    """The image that a file of this name and content names, empty for none; ValueError: it cannot be read."""
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is no text in UTF-8") from None
    if file == OWN_FILE:
        values = _toml(text)
        if unknown := sorted(values.keys() - {"image"}):
            nearest = difflib.get_close_matches(unknown[0], ["image"], cutoff=0.5)
            hint = "did you mean image?" if nearest else "only image can be set here"
            raise ValueError(f"it sets {unknown[0][:100]!r}; {hint}")
    else:
        values = _json(text)
    image = values.get("image", "")
    try:
        return SandboxOptions.model_validate({"image": image}).image or ""
    except ValidationError:
        raise ValueError(f"image {str(image)[:200]!r} is no name of an image, such as python:3.12") from None


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"it is no valid TOML: {error}") from None


def _json(text: str) -> dict[str, Any]:
    # As editors write it: with comments, and commas before closing brackets.
    for left_out in (_COMMENT, _LAST_COMMA):
        text = left_out.sub(lambda found: found[1] or " ", text)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object")
    return values


async def _read(sandbox: SandboxAccess, path: str) -> bytes | None:
    args = {"path": path, "limit": _MAX_BYTES + 1}
    try:
        return (await sandbox.request("file.read", args, limit_seconds=_READ_SECONDS)).blob or b""
    except ToolError:  # not there, a folder, or not to be read by the sandbox's user
        return None
