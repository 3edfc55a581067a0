"""The file editor and the searches: from the call of the tool to its observation, in a real sandbox."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

from agent_core.runtime.action_runner import DirectContext
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.tools.file_editor import FileEditorAction, edit
from agent_core.tools.file_search import GrepAction, GrepExecutor
from bench.figures import Figure, p50, percentile
from bench.stage import Stage

LINES = 400
FILES = 'mkdir many && cd many && for n in $(seq {0}); do echo "def f$n(): return $n" > f$n.py; done; cd ..'


async def measure(stage: Stage) -> list[Figure]:
    """Edits of one file, each under a key of its own, as a conversation makes them; and a search in 2,000 files."""
    async with stage.running_sandbox("editing") as sandbox:
        path = f"{sandbox.working_dir}/file.py"
        text = "".join(f"value_{number} = {number}\n" for number in range(LINES))
        await _edit(sandbox, "bench:0", {"command": "create", "path": path, "file_text": text})
        taken: list[float] = []
        began = time.process_time()
        calls = list(itertools.islice(_calls(path), stage.few(500, 10)))
        for number, action in enumerate(calls, 1):
            start = time.perf_counter()
            await _edit(sandbox, f"bench:{number}", action)
            taken.append((time.perf_counter() - start) * 1000)
            await sandbox.ack([f"bench:{number}"])
        spent = (time.process_time() - began) * 1000 / len(calls)
        files = stage.few(2000, 20)
        args = {"session": "default", "command": FILES.format(files), "timeout": 60}
        await sandbox.request("shell.run", args, limit_seconds=90)
        searches: list[float] = []
        for _ in range(stage.few(9, 1)):
            start = time.perf_counter()
            await GrepExecutor().carry_out(GrepAction(pattern=r"return 1999\b"), DirectContext(sandbox), None)
            searches.append((time.perf_counter() - start) * 1000)
    where = f"p50; p95 {percentile(taken, 95):.1f} ms, {spent:.1f} ms of the server's processor time with the ack"
    return [
        Figure("editor operation, call → observation", p50(taken), "ms", 5, note=where),
        Figure(f"grep in {files} files, call → observation", p50(searches), "ms"),
    ]


def _calls(path: str) -> Iterator[dict[str, Any]]:
    """View, replace, insert and undo, over and over."""
    for number in itertools.count():
        line = number % LINES
        changed = {"old_str": f"value_{line} = {line}\n", "new_str": f"value_{line} = {line} + 1\n"}
        yield {"command": "str_replace", "path": path, **changed}
        yield {"command": "view", "path": path, "view_range": [1, 40]}
        yield {"command": "insert", "path": path, "insert_line": line, "new_str": "# a remark"}
        yield {"command": "undo_edit", "path": path}
        yield {"command": "undo_edit", "path": path}


async def _edit(sandbox: SandboxConnection, key: str, action: dict[str, Any]) -> None:
    result = await edit(FileEditorAction.model_validate(action), DirectContext(sandbox), key, {})
    if result["is_error"]:
        raise RuntimeError(f"{action} failed: {result['content']}")
