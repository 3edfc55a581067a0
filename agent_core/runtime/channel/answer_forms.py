"""The form of the answer to each request of a runner: the one place where answers are checked.

A runner is a program in the sandbox, where an agent and whatever it has fetched can replace it: names, sizes, kinds,
counts and ids in its answers are an attacker's. No byte is kept that its request has not asked for, and keys that a
form does not name are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent_core.runtime.channel.answer_checks import (
    LAST_SECOND,
    MAX_PATH,
    Asked,
    Check,
    Field,
    Limit,
    UnexpectedError,
    asked_for,
    commit,
    dropped_over,
    first_of,
    flag,
    ident,
    inner_path,
    integer,
    limit_of,
    list_of,
    moment,
    name,
    one_of,
    or_none,
    otherwise,
    picture,
    record,
    text,
    valid_of,
    whole_text,
)
from runtime_images.runner import wire

SMALL: Final = 128 * 1024
"""Bytes of the JSON of a frame that nothing allows to be larger: greetings, live output, errors, short answers."""
MAX_LIVE: Final = 16 * 1024
"""Characters of one piece of live output."""
MAX_ERROR: Final = 10_000

_MIB: Final = 1024 * 1024
_ESCAPED: Final = 6
"""Bytes that one character may need in JSON."""
_SIDE: Final = 9 * _MIB
"""What a process on the runner's side may print, and what is around it."""
_PICTURE: Final = 5 * _MIB + 4096
_CELL_PICTURES: Final = 8 * _MIB
_WINDOW: Final = 4 * _MIB
_CONTENT: Final = 512 * 1024
_FILE: Final = 10 * _MIB
_DIFF: Final = 96 * 1024
_PART: Final = 4 * _MIB
_PACK: Final = 8 * _MIB
_COMMAND_OUTPUT: Final = 30_000
_COUNT: Final = integer(0, 2**63 - 1)
_NUMBER: Final = integer(-(2**63), 2**63 - 1)
_WORD: Final = text(500)
_PATH: Final = text(MAX_PATH)
_NAMED: Final = {"error": (text(4000), ""), "code": (text(40), "")}


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What may be answered to one operation: a result, so many bytes of JSON and attachment, live output."""

    result: Check
    json_bytes: Limit = SMALL
    blob_bytes: Limit = 0
    is_live: bool = False

    def most_json(self, asked: Asked) -> int:
        return min(wire.MAX_JSON, max(SMALL, limit_of(self.json_bytes, asked)))

    def most_blob(self, asked: Asked) -> int:
        return min(wire.MAX_BLOB, limit_of(self.blob_bytes, asked))


def _output(asked: Asked) -> int:
    return int(asked.get("max_output", _COMMAND_OUTPUT))


def _output_bytes(asked: Asked) -> int:
    return _ESCAPED * _output(asked) + 512 * 1024


def _browser_text(asked: Asked) -> int:
    return 64_000 * max(1, len(asked.get("calls", ())))


def _edit_bytes(other: str, most: int) -> Limit:
    """Room for both contents of a file and their difference; after the command `other` for so many bytes."""
    return lambda asked: most if asked.get("command") in other.split() else _ESCAPED * (2 * _CONTENT + _DIFF) + _MIB


def _found(asked: Asked) -> int:
    return int(asked.get("limit", 100))


def _blob_bytes(default: int) -> Limit:
    return lambda asked: default if asked.get("limit") is None else int(asked["limit"])


_NOTHING: Final = record({})
_CHANGED: Final[Mapping[str, Field]] = {
    "is_error": flag,
    "path": (_PATH, ""),
    "prev_exist": (flag, False),
    "old_content": (dropped_over(_CONTENT), None),
    "new_content": (dropped_over(_CONTENT), None),
    "diff": (or_none(text(_DIFF)), None),
}
_TEXT_FILE: Final = record({"path": _PATH, "content": text(64 * 1024)})
_CHANGE: Final = record({"status": one_of(("M", "A", "D", "U")), "path": inner_path})
_REPOSITORY: Final = record(
    {
        "path": inner_path,
        "branch": (or_none(text(1000)), None),
        "head": (or_none(commit), None),
        "upstream": (or_none(text(1000)), None),
        "ahead": (_COUNT, 0),
        "behind": (_COUNT, 0),
        "base": (or_none(record({"name": text(1000), "commit": commit})), None),
        "changes": (list_of(_CHANGE, 2000), []),
        "left_out": (_COUNT, 0),
        "is_cut": (flag, False),
    }
)
_COMMIT: Final = record(
    {
        "hash": commit,
        "parents": list_of(commit, 1000),
        "author": text(1000),
        "email": text(1000),
        "date": text(100),
        "refs": list_of(text(1000), 10_000),
        "subject": text(10_000),
        "body": text(2000),
    }
)
_ENTRY: Final = record(
    {
        "name": name,
        "kind": one_of(("file", "folder", "missing", "other")),
        "link": flag,
        "size": or_none(_COUNT),
        "modified": or_none(moment(LAST_SECOND)),
        "hidden": flag,
    }
)
_PORT: Final = record(
    {
        "port": integer(1, 65535),
        "addresses": (otherwise(list_of(text(64), 1000), []), []),
        "pid": (otherwise(_NUMBER, None), None),
        "process": (otherwise(_WORD, None), None),
        "command": (otherwise(_WORD, None), None),
    }
)
_SEARCHED: Final = AnswerForm(
    record(
        {
            "root": (_PATH, ""),
            "files": (list_of(_PATH, _found), []),
            "truncated": (flag, False),
            "unreadable": (_COUNT, 0),
            "too_large": (_COUNT, 0),
            "error": (text(4000), ""),
        }
    ),
    lambda asked: min(_SIDE, _found(asked) * 24 * 1024 + SMALL),
)

_OPENED: Final = record(
    {
        "id": ident,
        "kind": one_of(("file", "folder")),
        "size": or_none(_COUNT),
        "modified": moment(2**63 - 1),
        "tag": ident,
    }
)


def _opened(value: Any, asked: Asked) -> dict[str, Any]:
    """A file has a size, and a folder none."""
    found: dict[str, Any] = _OPENED(value, asked)
    if (found["size"] is None) != (found["kind"] == "folder"):
        raise UnexpectedError(f"is not that of a {found['kind']}", "size")
    return found


FORMS: Final[Mapping[str, AnswerForm]] = {
    "browser.run": AnswerForm(
        record(
            {
                "status": one_of(("completed", "failed", "timeout", "interrupted", "crashed", "unavailable")),
                "text": (text(_browser_text), ""),
                "error": (text(64_000), ""),
                "notices": (list_of(text(4000), 100), []),
                "downloads": (first_of(_PATH, 100), []),
                "url": (text(64_000), ""),
                "tabs": (first_of(record({"id": text(100), "url": text(16_000), "title": (text(4000), "")}), 200), []),
                "active": (integer(-1, 1000), -1),
                "focused": (text(1000), ""),
                "tree": (text(64_000), ""),
                "screenshot": (picture(_WINDOW), ""),
                "screenshot_path": (_PATH, ""),
                "marks": (picture(_WINDOW), ""),
            }
        ),
        lambda asked: 2 * _WINDOW + _ESCAPED * (_browser_text(asked) + 128_000) + 2 * _MIB,
    ),
    "cancel": AnswerForm(_NOTHING),
    "code.lint": AnswerForm(
        record(
            {"problems": (list_of(record({"line": _NUMBER, "text": text(2000)}), 100), []), "error": (text(4000), "")}
        ),
        _SIDE,
    ),
    "disk.state": AnswerForm(
        record({"bytes": (_COUNT, 0), "entries": (_COUNT, 0), "over": (flag, False), "stops": (_COUNT, 0)})
    ),
    "file.edit": AnswerForm(
        record({"text": text(64_000), **_CHANGED, "image": (or_none(picture(_PICTURE)), None)}),
        _edit_bytes("view", _PICTURE + _MIB),
    ),
    "file.range": AnswerForm(
        record(
            {
                "text": (text(64_000), ""),
                **_CHANGED,
                "first": (_COUNT, 0),
                "last": (_COUNT, 0),
                "lines": (_COUNT, 0),
                "content": (whole_text(_FILE), ""),
                "version": (whole_text(200), ""),
            }
        ),
        _edit_bytes("read", 24 * _MIB),
    ),
    "file.read": AnswerForm(
        record({"size": (_COUNT, 0), "offset": (_COUNT, 0), "eof": (flag, True)}), SMALL, _blob_bytes(wire.MAX_BLOB)
    ),
    "file.whole": AnswerForm(record({"text": text(400_000), **_CHANGED}), _edit_bytes("read list", 3 * _MIB)),
    "file.write": AnswerForm(_NOTHING),
    "folder.list": AnswerForm(
        record({"path": inner_path, "entries": list_of(_ENTRY, 10_000), "left_out": (_COUNT, 0)}),
        10_000 * (_ESCAPED * 255 + 200),
    ),
    "git.clone": AnswerForm(
        record({"cloned": (flag, False), "branch": (or_none(text(1000)), None), **_NAMED}),
        is_live=True,
    ),
    "git.diff": AnswerForm(
        record({"modified": (whole_text(_MIB + 4096), ""), "original": (whole_text(_MIB + 4096), ""), **_NAMED}),
        _SIDE + 4 * _MIB,
    ),
    "git.identity": AnswerForm(record(_NAMED)),
    "git.log": AnswerForm(
        record(
            {"commits": (list_of(_COMMIT, lambda asked: int(asked.get("limit", 50))), []), "has_more": (flag, False)}
            | {"start": (commit, ""), **_NAMED}
        ),
        _SIDE,
    ),
    "git.status": AnswerForm(
        record({"repositories": (list_of(_REPOSITORY, 20), []), "errors": (list_of(text(4000), 20), []), **_NAMED}),
        _SIDE,
    ),
    "journal.ack": AnswerForm(_NOTHING),
    "journal.lookup": AnswerForm(record({"state": one_of(("unknown", "running", "done"))})),
    "kernel.restart": AnswerForm(_NOTHING),
    "kernel.run": AnswerForm(
        record(
            {
                "status": one_of(("completed", "error", "timeout", "interrupted", "kernel_died", "unavailable")),
                "output": (text(_output), ""),
                "omitted": (_COUNT, 0),
                "images": (list_of(picture(_CELL_PICTURES), 10), []),
                "working_dir": (_PATH, ""),
                "python": (_PATH, ""),
                "notice": (text(16_000), ""),
            }
        ),
        lambda asked: _output_bytes(asked) + _CELL_PICTURES,
        is_live=True,
    ),
    "patch.apply": AnswerForm(
        record(
            {
                "text": text(64_000),
                "is_error": flag,
                "paths": (list_of(_PATH, lambda asked: len(asked.get("patch", ""))), []),
                "diff": (or_none(text(_DIFF)), None),
                "fuzz": (_COUNT, 0),
            }
        ),
        lambda asked: _ESCAPED * (4 * len(asked.get("patch", "")) + _DIFF) + _MIB,
    ),
    "ping": AnswerForm(_NOTHING),
    "ports.list": AnswerForm(record({"ports": (valid_of(_PORT, 500), [])}), 2 * _MIB),
    "search.glob": _SEARCHED,
    "search.grep": _SEARCHED,
    "shell.interrupt": AnswerForm(record({"interrupted": (flag, False)})),
    "shell.kill": AnswerForm(record({"killed": (flag, False)})),
    "shell.run": AnswerForm(
        record(
            {
                "status": one_of(
                    ("completed", "soft_timeout", "hard_timeout", "interrupted", "not_executed", "reset", "shell_lost")
                ),
                "exit_code": (_NUMBER, -1),
                "prefix": (text(1000), ""),
                "output": (text(_output), ""),
                "omitted": (_COUNT, 0),
                "working_dir": (_PATH, ""),
                "pid": (_NUMBER, -1),
                "python": (or_none(_PATH), None),
                "username": (_WORD, ""),
                "hostname": (_WORD, ""),
                "running": (flag, False),
                "notice": (text(16_000), ""),
                "shell_ended": (flag, False),
            }
        ),
        _output_bytes,
        is_live=True,
    ),
    "transfer.drop": AnswerForm(_NOTHING),
    "transfer.keep": AnswerForm(_NOTHING),
    "transfer.next": AnswerForm(record({"eof": flag}), SMALL, _blob_bytes(_PART)),
    "transfer.put": AnswerForm(_NOTHING),
    "transfer.read": AnswerForm(_opened),
    "transfer.write": AnswerForm(record({"id": ident})),
    "workspace.facts": AnswerForm(
        record(
            {
                "working_dir": (_PATH, ""),
                "user": (_WORD, ""),
                "hostname": (_WORD, ""),
                "os": (_WORD, ""),
                "python": (_WORD, ""),
                "git": (
                    or_none(
                        record(
                            {
                                "branch": (or_none(text(1000)), None),
                                "remote": (or_none(text(4000)), None),
                                "root": (or_none(_PATH), None),
                            }
                        )
                    ),
                    None,
                ),
                "instructions": (first_of(_TEXT_FILE, 100), []),
                "skills": (list_of(_TEXT_FILE, 200), []),
                "agents": (list_of(_TEXT_FILE, 200), []),
            }
        ),
        16 * _MIB,
    ),
    "workspace.pack": AnswerForm(record({"eof": flag}), SMALL, _PACK),
    "workspace.restore": AnswerForm(record({"restored": or_none(asked_for("names"))})),
    "workspace.snapshot": AnswerForm(_NOTHING),
    "workspace.unpack": AnswerForm(_NOTHING),
}
"""The form of the answer to each operation of the runner."""


def _any_object(value: Any, _: Asked) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnexpectedError("is no object")
    return value


UNLISTED: Final = AnswerForm(_any_object, SMALL, SMALL, is_live=True)
"""For an operation of a runner that is not ours: a small answer, as it came."""


def form_of(op: str) -> AnswerForm:
    """What may be answered to this operation."""
    return FORMS.get(op, UNLISTED)
