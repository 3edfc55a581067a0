"""Images of sandboxes: whether they are there, how they are had, and the command that helps when they cannot be."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Collection
from typing import Any

from agent_core.errors import SandboxError
from agent_core.runtime.docker.engine import DockerEngine, EngineRefusedError
from agent_core.runtime.sandbox import Availability, Progress

DEFAULT_IMAGE = "drydock/sandbox:base"
BROWSER_IMAGE = "drydock/sandbox:browser"
OWN_IMAGES = "drydock/sandbox"
"""Our own images are built, never pulled: anybody could register such a name."""

PULL_SECONDS = 600.0
"""Bounds getting an image, on top of the limit of a start."""
_CHECK_SECONDS = 10.0
_INSTALL_PYTHON = (
    "(apt-get update && apt-get install -y --no-install-recommends python3 bash)"
    " || apk add --no-cache python3 bash || dnf install -y python3 bash"
)


def is_own(image: str) -> bool:
    """Whether an image is one that we build."""
    return image == OWN_IMAGES or image.startswith((f"{OWN_IMAGES}:", f"{OWN_IMAGES}@"))


def is_listed(image: str, names: Collection[str]) -> bool:
    """Whether an image is among those that an engine lists, by tag or digest."""
    return any(name in names for name in _names(image))


def _names(image: str) -> tuple[str, ...]:
    """The names under which an engine may list an image."""
    if "@" in image:
        name, _, digest = image.partition("@")
        tagless = name if ":" not in name.rpartition("/")[2] else name.rpartition(":")[0]
        return image, f"{_familiar(tagless)}@{digest}"
    whole = image if ":" in image.rpartition("/")[2] else f"{image}:latest"
    return whole, _familiar(whole)


def _familiar(name: str) -> str:
    return name.removeprefix("docker.io/").removeprefix("library/")


def derive_command(image: str) -> str:
    """One command that makes an image with Python and bash from one without."""
    name = image.split("@")[0].rsplit("/", 1)[-1].replace(":", "-")
    dockerfile = f"FROM {image}\\nUSER root\\nRUN {_INSTALL_PYTHON}\\n"
    return f"printf {shlex.quote(dockerfile)} | docker build -t {shlex.quote(f'{name}-python')} -"


def no_python_error(image: str, found: str, *, path: str | None = None) -> SandboxError:
    """The error for an image in which the runner cannot run; `found` says what was seen.

    `path` is what somebody has chosen instead of the image's own PATH.
    """
    if path is not None:
        return SandboxError(
            f"There is no Python 3.8 or newer on the PATH {path!r} that was chosen for the sandbox ({found}).",
            code="no_python",
            fix="Leave PATH out of runtime_startup_env_vars, or have the folders of the image's programs in it.",
        )
    name = derive_command(image).rsplit("-t ", 1)[1].removesuffix(" -")
    return SandboxError(
        f"The image {image} has no Python 3.8 or newer on its PATH ({found}), which a sandbox needs.",
        code="no_python",
        fix=f"Make one that has it, and use {name}: {derive_command(image)}",
    )


def missing_error(image: str, reason: str) -> SandboxError:
    """The error for an image that cannot be had."""
    return SandboxError(f"The sandbox image {image} is not there: {reason}.", code="image_missing", fix=_fix(image))


async def check_image(engine: DockerEngine, image: str) -> Availability:
    """Whether an image is here, or a registry says that it can be pulled."""
    try:
        if await engine.call_unless("look for the image", lambda client: client.inspect_image(image), 404) is not None:
            return Availability(True, f"the image {image} is there")
    except EngineRefusedError as error:
        return Availability(False, str(error))
    if is_own(image):
        return Availability(False, f"the image {image} has not been built", _fix(image))
    try:
        await engine.call(
            "find the image in its registry", lambda client: client.inspect_distribution(image), limit=_CHECK_SECONDS
        )
    except SandboxError as error:
        return Availability(
            False, f"the image {image} is not there, and its registry does not give it ({error})", _fix(image)
        )
    return Availability(True, f"the image {image} can be pulled")


async def ensure_image(engine: DockerEngine, image: str, progress: Progress) -> None:
    """Pull an image unless it is here; raises `SandboxError` with the command that helps."""
    if await engine.call_unless("look for the image", lambda client: client.inspect_image(image), 404) is not None:
        return
    if is_own(image):
        raise missing_error(image, "it has not been built")
    progress("STATUS$BUILDING_RUNTIME", f"Pulling the image {image}")
    abandoned = threading.Event()
    try:
        await engine.call(
            "pull the image",
            lambda client: _pull(client, image, abandoned),
            limit=PULL_SECONDS + 1,
            on_abandon=abandoned.set,
        )
    except EngineRefusedError as error:
        raise missing_error(image, f"it cannot be pulled ({error.explanation.strip().rstrip('.')})") from error
    finally:
        abandoned.set()


def _pull(client: Any, image: str, abandoned: threading.Event) -> None:
    end = time.monotonic() + PULL_SECONDS
    name, _, digest_or_tag = image.partition("@") if "@" in image else image.rpartition(":")
    if not name or "/" in digest_or_tag:
        name, digest_or_tag = image, "latest"
    for step in client.pull(name, tag=digest_or_tag, stream=True, decode=True):
        if "error" in step:
            raise missing_error(image, f"it cannot be pulled ({str(step['error']).strip().rstrip('.')})")
        if abandoned.is_set() or time.monotonic() > end:
            raise missing_error(image, f"it could not be pulled within {PULL_SECONDS:g} s")


def _fix(image: str) -> str:
    if is_own(image):
        browser = " browser" if image == BROWSER_IMAGE else ""
        return f"Build it with: drydock image{browser} (in a checkout: make {browser.strip() or 'sandbox'}-image)"
    return f"Get it with: docker pull {shlex.quote(image)}"
