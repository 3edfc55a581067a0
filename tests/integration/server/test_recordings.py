"""``drydock import`` and ``drydock export`` against a real server, as a person types them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from server.cli import TO_DOCTOR
from tests.integration.server.conftest import WAIT_SECONDS, ServerProcess
from tests.integration.server.forks import ROOT

RECORDING = ROOT / "tests" / "contract" / "rest" / "first_generation.json"
TOKEN = "the-token-of-this-very-test"


async def drydock(*arguments: str, standard_input: str | None = None, **environment: str) -> tuple[int, str, str]:
    """Run the command; its status, what it printed, and its errors."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "server", *arguments),
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_SECONDS):
        out, err = await process.communicate((standard_input or "").encode())
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_recordings_go_in_and_out_by_the_command_line(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", "--sandbox", "unconfined", environment={"DRYDOCK_TOKEN": TOKEN})
    await server.start()
    try:
        known = {"DRYDOCK_URL": server.url, "DRYDOCK_API_KEY": TOKEN}
        recorded: list[dict[str, Any]] = json.loads(RECORDING.read_text("utf-8"))
        status, first, error = await drydock("import", str(RECORDING), "--title", "Old", **known)
        assert (status, error) == (0, "")
        status, text, error = await drydock("export", first.strip(), **known)
        assert (status, error) == (0, "")
        assert json.loads(text) == [{**event, "timestamp": event["timestamp"] + "Z"} for event in recorded]
        status, second, error = await drydock("import", "-", standard_input=text, **known)
        assert (status, error) == (0, "")
        copy = tmp_path / "copy.json"
        assert await drydock("export", second.strip(), "-o", str(copy), **known) == (0, "", "")
        assert copy.read_text("utf-8") == text
        marked = tmp_path / "marked.json"
        marked.write_text(RECORDING.read_text("utf-8"), encoding="utf-8-sig")  # as some editors save it
        status, third, error = await drydock("import", str(marked), "--replay", **known)
        assert (status, error) == (0, "")
        assert len({first, second, third}) == 3

        for arguments, problem in (
            (("import", str(tmp_path / "none.json")), "none.json cannot be read: No such file or directory"),
            (("import", "-"), "- is no valid JSON"),
            (("export", "unknown"), "Conversation unknown not found"),
            (("import", str(RECORDING), "--replay", "--title", "x"), "--title: a conversation that is replayed"),
            (("import", str(RECORDING), "--url", "nowhere"), "--url: "),
        ):
            status, out, error = await drydock(*arguments, **known)
            assert (status, out) == (2, "")
            assert error.startswith("drydock: ")
            assert problem in error
            assert len(error.splitlines()) == 1
        broken = json.dumps([*recorded[:3], {**recorded[6], "args": {}}])
        status, _, error = await drydock("import", "-", standard_input=broken, **known)
        assert (status, "trajectory: event 3: args.command is missing" in error) == (2, True)
        status, _, error = await drydock("import", str(RECORDING), DRYDOCK_URL=server.url)
        assert (status, "token" in error) == (2, True)
    finally:
        await server.close()


async def test_a_page_that_is_not_there_is_one_line_and_no_server(tmp_path: Path) -> None:
    arguments = ("serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--page", str(tmp_path / "none"))
    status, out, error = await drydock(*arguments)
    assert (status, out) == (2, "")
    assert error.startswith(f"drydock: page: {tmp_path / 'none'} is no folder; name the folder")
    assert error.splitlines()[1:] == TO_DOCTOR.splitlines()
