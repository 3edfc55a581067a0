"""The conformance suite of sandboxes: several things at once, programs that are spoken to, and ports.

Used like `agent_core.testing.sandbox_contract`.
"""

# ruff: noqa: S101 - these are tests, with a home that users of the library can import

from __future__ import annotations

import asyncio

import pytest

from agent_core.errors import SandboxLostError
from agent_core.runtime.channel.tunnels import PortError
from agent_core.testing.sandbox_kit import SandboxKit, output, run


class SandboxTogetherContract:
    """Requests beside one another; programs and ports beside requests."""

    async def test_requests_that_do_not_disturb_one_another_run_together_and_each_has_its_own_answer(
        self, kit: SandboxKit
    ) -> None:
        sandbox = kit.connect()
        await sandbox.start()
        waits = run(sandbox, "until [ -e flag ]; do sleep 0.02; done; echo seen", args={"session": "waiting"})
        waiting = asyncio.create_task(waits)
        edits = [
            {"command": "create", "path": f"{sandbox.working_dir}/file{number}", "file_text": f"text {number}\n"}
            for number in range(30)
        ]
        shells = [run(sandbox, f"echo shell {number}", args={"session": f"s{number}"}) for number in range(6)]
        asked = [sandbox.request("file.edit", edit) for edit in edits]
        done = await asyncio.gather(*asked, *shells)
        assert [reply.result["path"] for reply in done[: len(edits)]] == [edit["path"] for edit in edits]
        assert [said["output"].strip() for said in done[len(edits) :]] == [f"shell {number}" for number in range(6)]
        assert await output(sandbox, "cat file0 file29; touch flag") == "text 0\ntext 29"
        assert (await waiting)["output"].strip() == "seen"

    async def test_a_program_in_the_sandbox_can_be_spoken_to_and_ends_with_its_connection(
        self, kit: SandboxKit
    ) -> None:
        sandbox = kit.connect()
        order = {"command": ["sh", "-c", 'echo "$$ $OWN $PWD"; exec cat'], "env": {"OWN": "yes"}}
        program = await sandbox.start_program(order)
        data = bytes(range(256)) * 1000
        await program.write(data)
        received = b""
        while len(received) < len(data) or not received.endswith(data):
            received += await program.read()
        pid, own, place = received.removesuffix(data).decode().split()
        assert (own, place) == ("yes", sandbox.working_dir)
        program.close()
        gone = f"for i in $(seq 50); do kill -0 {pid} 2>&- || break; sleep 0.1; done; kill -0 {pid} 2>&- || echo gone"
        assert await output(sandbox, gone) == "gone"

    async def test_what_listens_is_listed_and_reached_without_any_network(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(network="none")
        with pytest.raises(SandboxLostError):
            await sandbox.connect_port(80)  # no sandbox is made for it
        serve = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=0, bind='127.0.0.1')"
        await output(sandbox, "echo served > file")
        pid = int((await output(sandbox, f'python3 -c "{serve}" > log 2>&1 & echo $!')).split()[-1])

        async def port() -> int:
            found = (await sandbox.request("ports.list", {}, limit_seconds=30)).result["ports"]
            return next((int(one["port"]) for one in found if "http.server" in (one["command"] or "")), 0)

        async with asyncio.timeout(30):
            while not (number := await port()):  # noqa: ASYNC110 - a program says nothing when it listens
                await asyncio.sleep(0.05)
        connection = await sandbox.connect_port(number)
        await connection.write(b"GET /file HTTP/1.0\r\n\r\n")
        received = b""
        while data := await connection.read():
            received += data
        assert received.endswith(b"\r\n\r\nserved\n")
        await output(sandbox, f"kill {pid}; wait {pid}; true")
        with pytest.raises(PortError):
            await sandbox.connect_port(number)
