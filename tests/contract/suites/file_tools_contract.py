"""The conformance suite of the tools that search and change files: they do the same in every provider's sandboxes.

A test module inherits from the class and gives it a fixture ``kit`` (a `SandboxKit`).
"""

from __future__ import annotations

import asyncio

import pytest

from agent_core.events.schema import Action
from agent_core.runtime.action_runner import DirectContext
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.testing.sandbox_contract import SandboxKit, eventually, output, run
from agent_core.tools.apply_patch import ApplyPatchAction, ApplyPatchExecutor, ApplyPatchObservation
from agent_core.tools.file_editor import (
    BLANK_PLAN,
    FileEditorObservation,
    PlanningFileEditorAction,
    PlanningFileEditorExecutor,
    PlanningFileEditorObservation,
)
from agent_core.tools.file_search import GlobAction, GlobExecutor, GrepAction, GrepExecutor
from agent_core.tools.gemini_files import (
    EditAction,
    GeminiFileExecutor,
    ListDirectoryAction,
    ReadFileAction,
    WriteFileAction,
)

PROJECT = """
mkdir -p src/deep .hidden build && cd src && git init -q .. && echo build/ > ../.gitignore
printf 'class Boat:\\n    pass\\n' > boat.py && printf 'class Ship' > deep/ship.py && printf 'a\\0class' > deep/binary
cp boat.py ../.hidden/ && cp boat.py ../build/ && ln -s .. deep/loop && mkfifo deep/fifo && cd ..
mkdir locked && cp src/boat.py locked/ && chmod 0 locked
touch -d '2020-01-01' src/boat.py && touch -d '2021-01-01' src/deep/ship.py
"""
ENDLESS = GrepAction(pattern=r"(?=((a+)+)b)x")
"""A search that takes for ever in a line of many a."""


class FileToolsContract:
    """Search, plan, patch."""

    async def test_files_are_found_by_content_and_name_newest_first(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await output(sandbox, PROJECT)
        root, context = sandbox.working_dir, DirectContext(sandbox)
        ship, boat = f"{root}/src/deep/ship.py", f"{root}/src/boat.py"
        found = await GrepExecutor().carry_out(GrepAction(pattern="^CLASS \\w+"), context, None)
        if await output(sandbox, "id -u") == "0":
            await output(sandbox, "rm -r locked")  # to root nothing is
            found = await GrepExecutor().carry_out(GrepAction(pattern="^CLASS \\w+"), context, None)
        else:
            assert "[1 directory could not be read.]" in found.text
            await output(sandbox, "chmod 700 locked && rm -r locked")
        assert found.matches == [ship, boat]
        head = f"Found 2 file(s) containing pattern '^CLASS \\w+' in '{root}':"
        assert found.text.startswith(f"{head}\n{ship}\n{boat}")
        narrow = GrepAction(pattern="class", path=f"{root}/src", include="b*.py")
        assert (await GrepExecutor().carry_out(narrow, context, None)).matches == [boat]
        await output(sandbox, "mkdir -p ~/harbour && echo keel > ~/harbour/log")
        home = await output(sandbox, "cd && pwd")
        for where in ("~", "~/harbour"):
            at_home = GrepAction(pattern="KEEL", path=where)
            assert f"{home}/harbour/log" in (await GrepExecutor().carry_out(at_home, context, None)).matches
        named = await GlobExecutor().carry_out(GlobAction(pattern="*.py"), context, None)
        assert (named.files, named.truncated) == ([ship, boat], False)
        for action in (GrepAction(pattern="("), GrepAction(pattern="x", path=boat)):
            assert (await GrepExecutor().carry_out(action, context, None)).is_error

    async def test_a_search_that_nobody_waits_for_any_more_is_gone(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await output(sandbox, "printf '%040d\\n' 0 | tr 0 a > a")
        task = asyncio.create_task(GrepExecutor().carry_out(ENDLESS, DirectContext(sandbox), None))
        await eventually(lambda: _searches(sandbox, "1"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: _searches(sandbox, "0"))
        assert (await GrepExecutor().carry_out(GrepAction(pattern="a"), DirectContext(sandbox), None)).matches

    async def test_the_plan_is_made_and_is_all_that_can_be_changed(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await output(sandbox, "echo 'x = 1' > main.py")
        executor, root = PlanningFileEditorExecutor(), sandbox.working_dir
        await executor.prepare(sandbox)
        assert await output(sandbox, "cat PLAN.md") == BLANK_PLAN.strip()

        async def do(key: str | None = None, **action: object) -> PlanningFileEditorObservation:
            return await executor.carry_out(
                PlanningFileEditorAction.model_validate(action), DirectContext(sandbox), key
            )

        assert "x = 1" in (await do(command="view", path=f"{root}/main.py")).text
        refused = await do(command="str_replace", path=f"{root}/main.py", old_str="1", new_str="2")
        assert "not allowed" in refused.text
        plan = {"command": "create", "path": f"{root}/PLAN.md", "file_text": "# 1. Objective\nSail.\n"}
        first = await do("c:1", **plan)
        assert (first.is_error, first.diff is not None) == (False, True)
        assert await do("c:1", **plan) == first
        assert (await do("c:2", **plan)).is_error
        assert await output(sandbox, "cat PLAN.md main.py") == "# 1. Objective\nSail.\nx = 1"

    async def test_a_patch_is_applied_whole_once_and_inside_the_workspace_only(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await output(sandbox, "printf 'one\\ntwo\\n' > a; ln -s /tmp out")

        async def apply(*lines: str, key: str | None = None) -> ApplyPatchObservation:
            action = ApplyPatchAction(patch="\n".join(["*** Begin Patch", *lines, "*** End Patch"]))
            return await ApplyPatchExecutor().carry_out(action, DirectContext(sandbox), key)

        change = ("*** Update File: a", "@@", " one", "-two", "+zwei", "*** Add File: sub/b", "+x")
        first = await apply(*change, key="c:1")
        assert (first.text, first.fuzz) == ("Done!\nM a\nA sub/b", 0)
        assert "-two\n+zwei" in (first.diff or "")
        assert await apply(*change, key="c:1") == first
        assert (await apply("*** Delete File: a", "*** Update File: none", "@@", "-x")).is_error
        lost = await apply("*** Update File: a", "@@ none", "-one", "+1", "*** Delete File: gone")
        assert (lost.is_error, "gone does not exist" in lost.text) == (True, True)
        await output(sandbox, "printf 'x\\r\\ny\\r\\nx\\r\\ny' > windows")
        doubtful = ("*** Update File: windows", "@@ none", " x", "-y", "+z")
        assert "stand in several places" in (await apply(*doubtful)).text
        assert not (await apply(*doubtful, "*** End of File")).is_error
        assert await output(sandbox, "od -An -c windows | tr -d ' '") == "x\\r\\ny\\r\\nx\\r\\nz"
        for outside in ("../x", "/etc/x", "out/x", "~/x"):
            assert "outside the workspace" in (await apply(f"*** Add File: {outside}", "+x")).text
        assert await output(sandbox, "cat a sub/b") == "one\nzwei\nx"

    async def test_files_are_written_edited_read_and_listed_whole(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()

        async def do(action: Action, key: str | None = None) -> FileEditorObservation:
            return await GeminiFileExecutor().carry_out(action, DirectContext(sandbox), key)

        write = WriteFileAction(file_path="sub/a", content="one\none\n")
        assert (await do(write, "c:1")).prev_exist is False
        edit = EditAction(file_path="sub/a", old_string="one", new_string="1", expected_replacements=2)
        first = await do(edit, "c:2")
        assert (first.is_error, first.new_content) == (False, "1\n1\n")
        assert await do(edit, "c:2") == first
        assert (await do(edit, "c:3")).is_error
        assert (await do(ReadFileAction(file_path="sub/a", offset=1))).text.endswith("     2\t1\n")
        assert (await do(ListDirectoryAction(dir_path="sub"))).text.endswith("\na (4 bytes)")
        assert await output(sandbox, "cat sub/a") == "1\n1"
        await do(WriteFileAction(file_path="~/at/home", content="x"), "c:4")
        assert await output(sandbox, "cat ~/at/home; ls") == "xsub"


async def _searches(sandbox: SandboxConnection, count: str) -> bool:
    # The bracket keeps the command from counting itself.
    found = (await run(sandbox, "pgrep -cf 'runner[ ]search' || true"))["output"].strip()
    return bool(found == count)
