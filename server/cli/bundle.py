"""``drydock bundle``: one file with this installation and the sandbox images, for machines without a network."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, TextIO

from agent_core.runtime.docker.engine import DockerEngine
from agent_core.runtime.docker.images import missing_error
from agent_core.version import VERSION
from server.cli import bundle_installer
from server.errors import ConfigurationError

SAVE_SECONDS: Final = 1800.0
_CONNECT_SECONDS: Final = 15.0
_LEVEL: Final = 1
"""Of compression: what is in images and libraries gets little smaller with more, and takes many times as long."""

_LEFT_OUT: Final = frozenset({"_distutils_hack", "_virtualenv.py", "pip", "pkg_resources", "setuptools", "uv", "wheel"})
"""What an environment has to install things with, or to be one."""


def bundle(out: TextIO, *, file: Path, images: Sequence[str] = (), replace: bool = False) -> int:
    """Write the file, whole or not at all; returns the exit status."""
    site = _site()
    if file.exists() and not replace:
        raise ConfigurationError(f"{file} is there already; name another file, or give --force")
    half = file.with_name(f".{file.name}.half")
    try:
        with zipfile.ZipFile(half, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
            archive.write(bundle_installer.__file__, "__main__.py")
            archive.writestr(bundle_installer.FACTS, json.dumps(_facts(images), indent=1))
            for path in _files_of(site):
                archive.write(path, f"site/{path.relative_to(site).as_posix()}")
            if images:
                asyncio.run(_save_all(archive, images))
        os.replace(half, file)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror or error}") from error
    finally:
        half.unlink(missing_ok=True)
    size = file.stat().st_size // 1_000_000
    out.write(f"{file}: {size} MB, with {', '.join(images) or 'no image'}\n")
    out.write(f"Where there is no network: python{platform.python_version().rpartition('.')[0]} {file.name} FOLDER\n")
    return 0


def _site() -> Path:
    """The folder of this environment's packages."""
    site = Path(sysconfig.get_path("purelib"))
    if not Path(__file__).is_relative_to(site):
        raise ConfigurationError(
            "this is a checkout, of which no bundle can be made: `make bundle` installs it elsewhere first"
        )
    if sys.prefix == sys.base_prefix:
        raise ConfigurationError("this Python has more than Drydock: install that in an environment of its own (venv)")
    return site


def _facts(images: Sequence[str]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "python": platform.python_version().rpartition(".")[0],
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "images": list(images),
    }


def _files_of(site: Path) -> Iterator[Path]:
    for path in sorted(site.rglob("*")):
        first = path.relative_to(site).parts[0]
        is_ours = first.partition("-")[0] not in _LEFT_OUT and not first.endswith(".pth")  # those name places here
        if is_ours and path.is_file():
            yield path


async def _save_all(archive: zipfile.ZipFile, images: Sequence[str]) -> None:
    engine = DockerEngine(None, _CONNECT_SECONDS)
    try:
        for number, name in enumerate(images):
            with archive.open(f"images/{number}.tar", "w", force_zip64=True) as member:
                await _save_one(engine, name, member)
    finally:
        await engine.close()


async def _save_one(engine: DockerEngine, name: str, member: IO[bytes]) -> None:
    if await engine.call_unless("look for the image", lambda client: client.inspect_image(name), 404) is None:
        raise missing_error(name, "it is not in the engine")
    abandoned = threading.Event()
    await engine.call(
        f"save {name}",
        lambda client: _save(client, name, member, abandoned),
        limit=SAVE_SECONDS,
        on_abandon=abandoned.set,
    )


def _save(client: Any, name: str, member: IO[bytes], abandoned: threading.Event) -> None:
    for piece in client.get_image(name):
        if abandoned.is_set():
            return
        member.write(piece)
