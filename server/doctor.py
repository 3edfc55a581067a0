"""``drydock doctor``: looks at everything that a server needs here, and says what to do about what is missing."""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, TextIO

from agent_core.errors import DrydockError
from agent_core.runtime.docker_provider import DockerProvider
from agent_core.runtime.local import LocalProvider
from agent_core.version import VERSION
from server.auth.origin import check_bind
from server.auth.tokens import resolve_token
from server.db.instance_lock import prepare_data_dir
from server.page import page_folder
from server.settings import Settings
from server.typed_in import shown_address

CHECK_SECONDS = 20.0
MIN_PYTHON = (3, 11)


class Finding(NamedTuple):
    """One thing that was looked at. `needed`: without it the server does not run as configured."""

    name: str
    ok: bool
    text: str
    needed: bool = True


def doctor(settings: Settings, out: TextIO) -> int:
    """Print what was found; returns 0 when the server can run as configured, 1 when not."""
    findings = asyncio.run(_examine(settings))
    out.write(f"Drydock {VERSION}\n")
    for finding in findings:
        mark = "ok  " if finding.ok else ("MISS" if finding.needed else "--  ")
        out.write(f"  {mark} {finding.name:<11} {finding.text}\n")
    broken = [finding for finding in findings if finding.needed and not finding.ok]
    out.write("Everything that is needed is there.\n" if not broken else f"{len(broken)} to mend: see MISS above.\n")
    return 1 if broken else 0


async def _examine(settings: Settings) -> list[Finding]:
    engine, image = await _bounded("docker", lambda: _docker(settings))
    (local,) = await _bounded("bubblewrap", lambda: _local(settings))
    wish = settings.sandbox
    works = engine.ok and image.ok
    docker_needed = wish == "docker" or (wish == "auto" and not local.ok)
    local_needed = wish == "local" or (wish == "auto" and not works)
    return [
        _python(),
        _data_dir(settings),
        _access(settings),
        engine._replace(needed=docker_needed),
        image._replace(needed=docker_needed and engine.ok),
        local._replace(needed=local_needed),
        _page(settings),
        _model(settings),
    ]


async def _bounded(name: str, check: Callable[[], Awaitable[tuple[Finding, ...]]]) -> tuple[Finding, ...]:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await check()
    except (DrydockError, TimeoutError) as error:
        finding = Finding(name, ok=False, text=str(error) or "did not answer in time")
        return (finding, finding._replace(name="image")) if name == "docker" else (finding,)


def _python() -> Finding:
    ok = sys.version_info[:2] >= MIN_PYTHON
    return Finding("python", ok, platform.python_version() + ("" if ok else ": install Python 3.11 or newer"))


def _data_dir(settings: Settings) -> Finding:
    try:
        folder = prepare_data_dir(settings.data_dir)
    except DrydockError as error:
        return Finding("data folder", ok=False, text=str(error))
    return Finding("data folder", ok=True, text=f"{folder} can be written")


def _access(settings: Settings) -> Finding:
    try:
        token = resolve_token(settings)
        check_bind(settings, token)
    except DrydockError as error:
        return Finding("access", ok=False, text=str(error))
    kind = "a token is asked for" if token else "no token: this machine only"
    return Finding("access", ok=True, text=f"listens on {settings.host} port {settings.port}, {kind}")


async def _docker(settings: Settings) -> tuple[Finding, Finding]:
    provider = DockerProvider()
    try:
        engine = await provider.check()
        found = Finding("docker", engine.ok, f"{engine.reason} {engine.fix}".strip())
        if not engine.ok:
            return found, Finding("image", ok=False, text=f"{settings.sandbox_image}: not looked for without an engine")
        image = await provider.check_image(settings.sandbox_image)
        return found, Finding("image", image.ok, f"{settings.sandbox_image}: {image.reason} {image.fix}".strip())
    finally:
        await provider.close()


async def _local(settings: Settings) -> tuple[Finding]:
    provider = LocalProvider(str(settings.data_dir.absolute()), start_seconds=settings.sandbox_start_seconds)
    try:
        found = await provider.check()
    finally:
        await provider.close()
    return (Finding("bubblewrap", found.ok, f"{found.reason} {found.fix}".strip()),)


def _page(settings: Settings) -> Finding:
    folder = page_folder(settings)
    if (folder / "index.html").is_file():
        return Finding("page", ok=True, text=f"built, in {_shown(folder)}")
    if settings.page is not None:
        return Finding("page", ok=False, text=f"no index.html in {_shown(folder)}: name a folder with a built page")
    return Finding("page", ok=False, text=f"not built in {_shown(folder)}: run `make setup`", needed=False)


def _model(settings: Settings) -> Finding:
    if settings.llm_model is None:
        text = "none configured: the built-in demo runs until one is set on the settings page, or with LLM_MODEL"
        return Finding("model", ok=False, text=text, needed=False)
    where = f" at {shown_address(settings.llm_base_url)}" if settings.llm_base_url else ""
    key = "with a key" if settings.llm_api_key else "without a key"
    return Finding("model", ok=True, text=f"{settings.llm_model}{where}, {key}")


def _shown(folder: Path) -> str:
    return str(folder.absolute())
