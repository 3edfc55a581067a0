"""The conformance suite of sandboxes, the part about the disk: how much one may take, and what happens then."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace
from typing import Any

import pytest

from agent_core.errors import SandboxError, ToolError
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.channel.disk_watch import DISK_LIMIT
from agent_core.runtime.sandbox import SandboxStatus
from agent_core.testing.sandbox_contract import LIMITS, SandboxKit, eventually, output, run

MEGABYTE = 1024**2
SMALL = replace(LIMITS, disk=24 * MEGABYTE, inodes=2000)
REACHED = "disk limit of this sandbox is reached"


class SandboxDiskContract:
    """What takes too much is ended, whoever does it and however it hides; what frees room is not."""

    async def test_a_fast_writer_is_ended_and_told_why(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=SMALL)
        result = await run(sandbox, "i=0; while :; do head -c 4000000 /dev/zero > file$i; i=$((i + 1)); done")
        assert REACHED in result["notice"], result
        assert "24.0 MiB" in result["notice"]
        assert "Remove files" in result["notice"]
        state = await disk_state(sandbox)
        assert state["stops"] > 0
        assert state["bytes"] > 0.9 * SMALL.disk

    async def test_what_frees_room_runs_and_then_everything_does(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=SMALL)
        await filled(sandbox)
        assert "big" in (await run(sandbox, "ls"))["output"]
        again = await run(sandbox, "i=0; while :; do head -c 1000000 /dev/zero > more$i; i=$((i + 1)); done")
        assert REACHED in again["notice"]
        assert (await run(sandbox, "rm -f big* more*"))["exit_code"] == 0
        await eventually(lambda: is_over(sandbox, over=False))
        result = await run(sandbox, "head -c 3000000 /dev/zero > some; stat -c %s some")
        assert (result["output"].strip(), result["notice"]) == ("3000000", "")

    async def test_one_file_cannot_be_larger_than_the_limit(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=replace(LIMITS, disk=4 * MEGABYTE))
        result = await run(sandbox, "head -c 400000000 /dev/zero > one; stat -c %s one")
        assert "400000000" not in result["output"]
        await eventually(lambda: is_over(sandbox))  # with the folder that it is in
        assert int(await output(sandbox, "stat -c %s one")) <= 4 * MEGABYTE

    async def test_too_many_files_are_as_bad_as_too_large_ones(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=SMALL)
        result = await run(sandbox, "i=0; while :; do mkdir -p d$i; touch d$i/{1..100}; i=$((i + 1)); done")
        assert REACHED in result["notice"], result
        assert "of 2000" in result["notice"]
        assert (await run(sandbox, "rm -r d*"))["exit_code"] == 0
        await eventually(lambda: is_over(sandbox, over=False))

    @pytest.mark.parametrize("away", ["nohup setsid", 'nohup env -i PATH="$PATH" setsid'])
    async def test_what_runs_in_the_background_is_ended_too_and_the_next_answer_says_so(
        self, kit: SandboxKit, away: str
    ) -> None:
        sandbox = kit.connect(limits=SMALL)
        loop = "i=0; while :; do head -c 900000 /dev/zero > back$i; i=$((i + 1)); sleep 0.01; done"
        await output(sandbox, f"{away} bash -c '{loop}' > /dev/null 2>&1 & echo $!")
        await eventually(lambda: is_over(sandbox), limit=30)
        assert REACHED in (await run(sandbox, "ls | wc -l"))["notice"]
        count = (await run(sandbox, "ls | wc -l"))["output"]
        assert (await run(sandbox, "sleep 0.2; ls | wc -l"))["output"] == count

    async def test_what_forks_and_ends_again_and_again_does_not_get_away(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=SMALL)
        program = (
            "import os\nos.setsid()\ni = 0\nwhile True:\n"
            " open(f'hop{i}', 'wb').write(bytes(200000))\n i += 1\n if os.fork(): os._exit(0)\n"
        )
        path = f"{sandbox.working_dir}/hop.py"
        await sandbox.request("file.write", {"path": path}, blob=program.encode(), limit_seconds=30)
        await run(sandbox, "sh -c 'python3 hop.py > /dev/null 2>&1 &'")
        await eventually(lambda: is_over(sandbox), limit=30)
        count = (await run(sandbox, "ls | wc -l"))["output"]
        assert (await run(sandbox, "sleep 1; ls | wc -l"))["output"] == count
        assert (await disk_state(sandbox))["stops"] == 1

    async def test_files_without_a_name_count(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=SMALL)
        hidden = (
            "import os\nheld = []\nwhile True:\n"
            " file = open('hidden', 'wb', 0)\n os.unlink('hidden')\n held.append(file)\n file.write(bytes(1000000))\n"
        )
        await sandbox.request(
            "file.write", {"path": f"{sandbox.working_dir}/hide.py"}, blob=hidden.encode(), limit_seconds=30
        )
        result = await run(sandbox, "python3 hide.py")
        assert REACHED in result["notice"], result
        await eventually(lambda: is_over(sandbox, over=False))  # they went with what held them

    async def test_what_is_in_a_closed_folder_counts_and_the_folder_stays_closed(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=SMALL)
        result = await run(
            sandbox,
            "mkdir -p shut/deep; exec 9< shut/deep; chmod 000 shut; cd /proc/self/fd/9;"
            " i=0; while :; do head -c 2000000 /dev/zero > file$i; i=$((i + 1)); done",
        )
        assert REACHED in result["notice"], result
        assert await output(sandbox, f"stat -c %a {sandbox.working_dir}/shut") == "0"

    async def test_a_tree_too_deep_to_be_looked_at_hides_nothing(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=SMALL)
        deep = "mkdir deep; cd deep; for i in {1..250}; do mkdir d; cd d; done 2>&1"
        await run(sandbox, deep)
        await eventually(lambda: is_over(sandbox))
        writer = "import os\nwhile os.path.isdir('d'): os.chdir('d')\ni = 0\nwhile True:\n"
        writer += " open(str(i), 'wb').write(bytes(900000)); i += 1\n"
        result = await run(sandbox, f"cd {sandbox.working_dir}/deep; python3 -c {shlex.quote(writer)}")
        assert REACHED in result["notice"], result
        assert result["exit_code"] == 137

        async def removed() -> bool:
            # What others write to the same disk meanwhile may be taken for what is not seen, and end it.
            await run(sandbox, f"cd {sandbox.working_dir}; rm -rf deep")
            return await is_over(sandbox, over=False)

        await eventually(removed, limit=60)

    async def test_sparse_files_and_further_names_take_no_room(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=SMALL)
        await output(sandbox, "for i in 1 2 3 4 5; do truncate -s 20M sparse$i; done; head -c 9000000 /dev/zero > file")
        await output(sandbox, "for i in 1 2 3 4 5; do ln file name$i; done; sync; sleep 1.5")
        state = await disk_state(sandbox)
        assert not state["over"]
        assert state["stops"] == 0

    async def test_a_sandbox_whose_runner_does_not_watch_is_stopped_from_outside(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=SMALL)
        if await output(sandbox, "echo $PPID") == "1":
            pytest.skip("the runner is the first process here, which no other can stop")
        # Its processes are of the same user, and may stop it.
        loop = "i=0; while :; do head -c 4000000 /dev/zero > file$i; i=$((i + 1)); sleep 0.01; done"
        task = asyncio.create_task(run(sandbox, f"kill -STOP $PPID; {loop}"))
        await eventually(lambda: DISK_LIMIT in kit.statuses(), limit=60)
        (text,) = {text for _, status, text in kit.notices if status == DISK_LIMIT}
        assert "was stopped" in text
        assert "24.0 MiB" in text
        with pytest.raises(SandboxError):
            await task
        assert await sandbox.sandbox.poll() is SandboxStatus.STOPPED
        await run(sandbox, "rm -f file*")
        assert await output(sandbox, "echo fine") == "fine"

    async def test_whoever_asked_hears_what_was_ended(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=SMALL)
        await filled(sandbox)
        await eventually(lambda: DISK_LIMIT in kit.statuses(), limit=30)
        text = next(text for _, status, text in kit.notices if status == DISK_LIMIT)
        assert "What ran in the sandbox was ended" in text
        assert "24.0 MiB" in text
        assert await sandbox.sandbox.poll() is SandboxStatus.RUNNING

    async def test_a_file_that_the_runner_is_to_write_is_refused_when_there_is_no_room(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=SMALL)
        path = f"{sandbox.working_dir}/uploaded"
        with pytest.raises((SandboxError, ToolError), match=REACHED):
            await sandbox.request("file.write", {"path": path}, blob=bytes(25 * MEGABYTE), limit_seconds=30)
        await filled(sandbox)
        with pytest.raises((SandboxError, ToolError), match=REACHED):
            await sandbox.request("file.write", {"path": path}, blob=b"small", limit_seconds=30)
        await run(sandbox, "rm -f big*")
        await eventually(lambda: is_over(sandbox, over=False))
        await sandbox.request("file.write", {"path": path}, blob=b"small", limit_seconds=30)

    async def test_temporary_files_have_a_limit_of_their_own(self, kit: SandboxKit) -> None:
        if not kit.confined:
            pytest.skip("without isolation there is no /tmp of its own")
        sandbox = kit.connect(limits=SMALL)
        for folder, least in (("/tmp", 16), ("/dev/shm", 20), ("/var/tmp", 15)):
            result = await run(sandbox, f"head -c 100000000 /dev/zero > {folder}/file; stat -c %s {folder}/file")
            size = int(result["output"].split()[-1])
            assert least * MEGABYTE * 0.9 <= size <= 70 * MEGABYTE, (folder, result)
            await output(sandbox, f"rm {folder}/file")
        assert (await disk_state(sandbox))["stops"] == 0

    async def test_nothing_can_be_written_next_to_its_own_places(self, kit: SandboxKit) -> None:
        if not kit.confined:
            pytest.skip("without isolation everything can be written that its user may")
        sandbox = kit.connect(limits=SMALL)
        places = "/ /etc /usr /usr/local /opt /var /var/lib /run /home /srv /.drydock /.drydock/runner /dev"
        found = await output(sandbox, f"for place in {places}; do test -w $place && echo $place; done; true")
        assert found == ""
        home = await output(sandbox, "touch ~/file && cd ~ && pwd -P")
        assert home.startswith(("/home/", "/.drydock/home"))


async def disk_state(sandbox: SandboxConnection) -> dict[str, Any]:
    """What the runner knows about its disk."""
    return (await sandbox.request("disk.state", {}, limit_seconds=30)).result


async def is_over(sandbox: SandboxConnection, *, over: bool = True) -> bool:
    """Whether there is more than allowed, as far as the runner knows."""
    return bool((await disk_state(sandbox))["over"]) is over


async def filled(sandbox: SandboxConnection) -> None:
    """Take more than the limit, and wait until that is known."""
    await run(sandbox, "i=0; while :; do head -c 4000000 /dev/zero > big$i; i=$((i + 1)); done")
    await eventually(lambda: is_over(sandbox))
