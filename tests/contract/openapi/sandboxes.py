"""What the sandboxes in memory answer, in the runner's forms: a workspace with a folder, a file and a repository."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_core.testing.fake_sandbox import FakeAnswer, FakeHandler, FakeRequest, FakeRunnerError, command_result
from tests.contract.rest.conftest import FACTS

TEXT = b"Ahoy\n"
_FILE = {"kind": "file", "link": False, "modified": 1.5, "hidden": False}
_FOLDER = {"kind": "folder", "link": False, "size": None, "modified": 1.5, "hidden": False}
_STATUS = {
    "path": "",
    "branch": "main",
    "head": "a" * 40,
    "upstream": None,
    "ahead": 0,
    "behind": 0,
    "base": {"name": "origin/main", "commit": "b" * 40},
    "changes": [{"status": "M", "path": "ahoy.txt"}],
    "left_out": 0,
    "is_cut": False,
}
_COMMIT = {"hash": "a" * 40, "parents": [], "author": "Ann", "email": "ann@example.com", "date": "2026-11-01T10:00:00Z"}
_ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "shell.kill": {},
    "workspace.snapshot": {"note": "nothing is kept here"},
    "workspace.unpack": {},
    "workspace.facts": FACTS,
    "folder.list": {
        "path": "",
        "entries": [{"name": "sea", **_FOLDER}, {"name": "ahoy.txt", "size": len(TEXT), **_FILE}],
        "left_out": 0,
    },
    "transfer.drop": {},
    "transfer.write": {"id": "w"},
    "transfer.put": {},
    "transfer.keep": {},
    "git.status": {"repositories": [_STATUS], "errors": []},
    "git.diff": {"original": "", "modified": "Ahoy\n"},
    "git.log": {"commits": [{**_COMMIT, "refs": ["main"], "subject": "Begin", "body": ""}], "has_more": False},
    "ports.list": {"ports": [{"port": 8080, "addresses": ["127.0.0.1"], "pid": 7, "process": "sea", "command": "sea"}]},
}


def _answering(answer: Mapping[str, Any]) -> FakeHandler:
    async def handle(call: FakeRequest) -> FakeAnswer:
        return answer

    return handle


async def _shell(call: FakeRequest) -> FakeAnswer:
    return command_result("done")


async def _open(call: FakeRequest) -> FakeAnswer:
    path = str(call.args["path"])
    if path.startswith("/etc"):
        raise FakeRunnerError("forbidden", f"{path} leads out of the workspace")
    if "no" in path:
        raise FakeRunnerError("not_found", f"{path} is not there")
    is_folder = path in ("", "sea")
    return {
        "kind": "folder" if is_folder else "file",
        "name": path,
        "size": None if is_folder else len(TEXT),
        "modified": 1,
        "tag": "1",
        "id": "r",
    }


async def _next(call: FakeRequest) -> FakeAnswer:
    start = int(call.args.get("offset", 0))
    return {"eof": True}, TEXT[start:]


async def _pack(call: FakeRequest) -> FakeAnswer:
    return {"packed": None, "eof": True, "entries": 0}, b""


HANDLERS: Mapping[str, FakeHandler] = {
    **{name: _answering(answer) for name, answer in _ANSWERS.items()},
    "shell.run": _shell,
    "workspace.pack": _pack,
    "transfer.read": _open,
    "transfer.next": _next,
}
