"""What the image's health check says of servers: with TLS, below a path, and of one that is not there."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.certificates import Authority
from tests.integration.server.conftest import MakeProcess
from tests.integration.server.forks import ROOT


def command() -> list[str]:
    """As the image runs it, with this checkout's file."""
    (found,) = re.findall(r"^HEALTHCHECK .*\\\n  CMD (\[.*\])$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    words: list[str] = json.loads(found)
    copied = {"/opt/drydock/healthcheck.py": str(ROOT / "deploy" / "healthcheck.py")}
    return [copied.get(word, word) for word in words]


async def check(port: int) -> subprocess.CompletedProcess[str]:
    environment = {"DRYDOCK_PORT": str(port)}
    return await asyncio.to_thread(
        subprocess.run, command(), env=environment, capture_output=True, text=True, check=False, timeout=90
    )


@pytest.mark.parametrize("how", ["plain", "below a path", "by TLS that a file names"])
async def test_a_server_that_is_alive_is_told_so(make_process: MakeProcess, tmp_path: Path, how: str) -> None:
    options: list[str] = []
    if how == "below a path":
        (tmp_path / "drydock.toml").write_text('base_path = "/drydock"\n')
        options = ["--config", str(tmp_path / "drydock.toml")]
    elif how != "plain":
        certificate, key = Authority(tmp_path).vouch("first", "127.0.0.1")
        (tmp_path / "drydock.toml").write_text(f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n')
        options = ["--config", str(tmp_path / "drydock.toml")]
    server = await make_process("--sandbox", "unconfined", *options)
    port = urlsplit(server.url).port
    assert port is not None
    done = await check(port)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Invalid HTTP request" not in server.printed()


async def test_none_that_is_not_there(unused_tcp_port: int) -> None:
    done = await check(unused_tcp_port)
    assert done.returncode == 1
    assert "the server is not alive: " in done.stderr
