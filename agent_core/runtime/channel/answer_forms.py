"""The form of the answer to each request of a runner: the one place where answers are checked.

A runner is a program in the sandbox, where an agent and whatever it has fetched can replace it: names, sizes, kinds,
counts and ids in its answers are an attacker's. No byte is kept that its request has not asked for, and keys that a
form does not name are dropped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from agent_core.tools.truncation import maybe_truncate
from runtime_images.runner import wire

Args = Mapping[str, Any]
Check = Callable[[Any, Args], Any]
Field = Check | tuple[Check, Any]
SizeLimit = int | Callable[[Args], int]

MAX_PATH: Final = 16 * 1024
"""Characters of a path, in which every byte may have become an escape."""
MAX_NAME: Final = 1024
LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999, the latest that can be shown."""
_IDENT: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
_DATA_URL: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,")
_HASH: Final = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})?", re.ASCII)
_BROKEN: Final = re.compile("[\0\ud800-\udfff]")


class UnexpectedError(ValueError):
    """Something that no runner of ours sends; the message says what and where."""

    def __init__(self, problem: str, place: str = "") -> None:
        super().__init__(f"{place or 'it'} {problem}")
        self._problem = problem
        self._place = place

    def within(self, field: str) -> UnexpectedError:
        return UnexpectedError(self._problem, f"{field}.{self._place}" if self._place else field)


def limit_of(limit: SizeLimit, args: Args) -> int:
    """The limit for this request."""
    return limit if isinstance(limit, int) else limit(args)


def accepted(holds: Callable[[Any], bool], problem: str) -> Check:
    """A value that passes this test."""

    def check(value: Any, _: Args) -> Any:
        if not holds(value):
            raise UnexpectedError(problem)
        return value

    return check


def is_number(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


flag = accepted(lambda value: isinstance(value, bool), "is neither true nor false")
ident = accepted(lambda value: isinstance(value, str) and _IDENT.fullmatch(value) is not None, "is no identifier")
commit = accepted(lambda value: isinstance(value, str) and _HASH.fullmatch(value) is not None, "is no hash of a commit")
"""The hash of a commit, or nothing."""


def integer(lowest: int, highest: int) -> Check:
    """A whole number in this range."""
    problem = f"is no whole number from {lowest} to {highest}"
    return accepted(lambda value: is_number(value) and lowest <= value <= highest, problem)


def moment(last: int) -> Check:
    """A time since 1970, brought into the range from 0 to `last`: files may have any."""

    def check(value: Any, _: Args) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UnexpectedError("is no time")
        return min(max(value, 0), last)

    return check


def one_of(*choices: str) -> Check:
    """One of these words."""
    return accepted(lambda value: isinstance(value, str) and value in choices, f"is none of {', '.join(choices)}")


def asked_for(name: str) -> Check:
    """One of the texts in this argument of the request."""

    def check(value: Any, args: Args) -> str:
        if not isinstance(value, str) or value not in args.get(name, ()):
            raise UnexpectedError("was not asked for")
        return value

    return check


def text(limit: SizeLimit) -> Check:
    """A text, cut in its middle where it is over the limit, without what no store and no client can carry."""
    return lambda value, args: maybe_truncate(_whole(value), limit_of(limit, args))


def whole_text(limit: int) -> Check:
    """A text that is no use when it is cut."""

    def check(value: Any, _: Args) -> str:
        if isinstance(value, str) and len(value) > limit:
            raise UnexpectedError(f"has more than {limit} characters")
        return _whole(value)

    return check


def name(value: Any, _: Args) -> str:
    """The name of one file: nothing that leads elsewhere."""
    shown = _whole(value)
    if not 0 < len(shown) <= MAX_NAME or shown in (".", "..") or "/" in shown or "\0" in value:
        raise UnexpectedError("is no name of a file")
    return shown


def inner_path(value: Any, _: Args) -> str:
    """A path that stays below where it begins; empty for that place itself."""
    shown = _whole(value)
    if len(shown) > MAX_PATH or shown.startswith("/") or "\0" in value or ".." in shown.split("/"):
        raise UnexpectedError("is no path below the folder")
    return shown


def picture(limit: int) -> Check:
    """A picture as a data URL, or an empty text: never an address."""

    def check(value: Any, _: Args) -> str:
        if not isinstance(value, str) or len(value) > limit:
            raise UnexpectedError(f"is no picture of at most {limit} characters")
        if value and (_DATA_URL.match(value) is None or not value.isascii() or not value.isprintable() or '"' in value):
            raise UnexpectedError("is no data URL of a picture")
        return value

    return check


def or_none(check: Check) -> Check:
    """Null, or what the check takes."""
    return lambda value, args: None if value is None else check(value, args)


def dropped_over(limit: int) -> Check:
    """A text, None where it is over the limit."""
    return lambda value, _: None if value is None or len(found := _whole(value)) > limit else found


def list_of(check: Check, most: SizeLimit) -> Check:
    """A list of at most so many values."""

    def check_all(value: Any, args: Args) -> list[Any]:
        limit = limit_of(most, args)
        if not isinstance(value, list) or len(value) > limit:
            raise UnexpectedError(f"is no list of at most {limit}")
        return [check(one, args) for one in value]

    return check_all


def first_of(check: Check, most: int) -> Check:
    """The first values of a list of any length."""

    def check_some(value: Any, args: Args) -> list[Any]:
        if not isinstance(value, list):
            raise UnexpectedError("is no list")
        return [check(one, args) for one in value[:most]]

    return check_some


def valid_of(check: Check, most: int) -> Check:
    """Those values of a list that pass, at most so many."""

    def check_some(value: Any, args: Args) -> list[Any]:
        found: list[Any] = []
        for one in value[: 2 * most] if isinstance(value, list) else ():
            with suppress(UnexpectedError):
                found.append(check(one, args))
        return found[:most]

    return check_some


def otherwise(check: Check, default: Any) -> Check:
    """What passes, or else the default."""

    def check_or(value: Any, args: Args) -> Any:
        try:
            return check(value, args)
        except UnexpectedError:
            return [] if default == [] else default

    return check_or


def record(**fields: Field) -> Check:
    """An object with these fields; those with a default may be missing, and all others are dropped."""
    checks = {field: one if isinstance(one, tuple) else (one,) for field, one in fields.items()}

    def check(value: Any, args: Args) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise UnexpectedError("is no object")
        found: dict[str, Any] = {}
        for field, (look, *default) in checks.items():
            if field in value:
                try:
                    found[field] = look(value[field], args)
                except UnexpectedError as error:
                    raise error.within(field) from None
            elif default:
                found[field] = [] if default == [[]] else default[0]
            else:
                raise UnexpectedError("is missing", field)
        return found

    return check


def _whole(value: Any) -> str:
    if not isinstance(value, str):
        raise UnexpectedError("is no text")
    return without_halves(value)


def without_halves(found: str) -> str:
    """The text without NUL and surrogates, which no store and no client can carry."""
    if found.isascii():
        return found.replace("\0", "\ufffd") if "\0" in found else found
    return _BROKEN.sub("\ufffd", found)


SMALL: Final = 128 * 1024
"""Bytes of the JSON of a frame that nothing allows to be larger: greetings, live output, errors, short answers."""
MAX_LIVE: Final = 16 * 1024
MAX_ERROR: Final = 10_000

_MIB: Final = 1024 * 1024
_ESCAPED: Final = 6
_SIDE: Final = 9 * _MIB
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
    """Form of the answers to one operation: a result, bytes of JSON and attachment, live output."""

    result: Check
    json_bytes: SizeLimit = SMALL
    blob_bytes: SizeLimit = 0
    is_live: bool = False

    def most_json(self, args: Args) -> int:
        return min(wire.MAX_JSON, max(SMALL, limit_of(self.json_bytes, args)))

    def most_blob(self, args: Args) -> int:
        return min(wire.MAX_BLOB, limit_of(self.blob_bytes, args))


def _output(args: Args) -> int:
    return int(args.get("max_output", _COMMAND_OUTPUT))


def _output_bytes(args: Args) -> int:
    return _ESCAPED * _output(args) + 512 * 1024


def _browser_text(args: Args) -> int:
    return 64_000 * max(1, len(args.get("calls", ())))


def _edit_bytes(other: str, most: int) -> SizeLimit:
    return lambda args: most if args.get("command") in other.split() else _ESCAPED * (2 * _CONTENT + _DIFF) + _MIB


def _found(args: Args) -> int:
    return int(args.get("limit", 100))


def _blob_bytes(default: int) -> SizeLimit:
    return lambda args: default if args.get("limit") is None else int(args["limit"])


_NOTHING: Final = AnswerForm(record())
_CHANGED: Final[Mapping[str, Field]] = {
    "is_error": flag,
    "path": (_PATH, ""),
    "prev_exist": (flag, False),
    "old_content": (dropped_over(_CONTENT), None),
    "new_content": (dropped_over(_CONTENT), None),
    "diff": (or_none(text(_DIFF)), None),
}
_TEXT_FILE: Final = record(path=_PATH, content=text(64 * 1024))
_CHANGE: Final = record(status=one_of("M", "A", "D", "U"), path=inner_path)
_REPOSITORY: Final = record(
    path=inner_path,
    branch=(or_none(text(1000)), None),
    head=(or_none(commit), None),
    upstream=(or_none(text(1000)), None),
    ahead=(_COUNT, 0),
    behind=(_COUNT, 0),
    base=(or_none(record(name=text(1000), commit=commit)), None),
    changes=(list_of(_CHANGE, 2000), []),
    left_out=(_COUNT, 0),
    is_cut=(flag, False),
)
_COMMIT: Final = record(
    hash=commit,
    parents=list_of(commit, 1000),
    author=text(1000),
    email=text(1000),
    date=text(100),
    refs=list_of(text(1000), 10_000),
    subject=text(10_000),
    body=text(2000),
)
_ENTRY: Final = record(
    name=name,
    kind=one_of("file", "folder", "missing", "other"),
    link=flag,
    size=or_none(_COUNT),
    modified=or_none(moment(LAST_SECOND)),
    hidden=flag,
)
_PORT: Final = record(
    port=integer(1, 65535),
    addresses=(otherwise(list_of(text(64), 1000), []), []),
    pid=(otherwise(_NUMBER, None), None),
    process=(otherwise(_WORD, None), None),
    command=(otherwise(_WORD, None), None),
)
_SEARCHED: Final = AnswerForm(
    record(
        root=(_PATH, ""),
        files=(list_of(_PATH, _found), []),
        truncated=(flag, False),
        unreadable=(_COUNT, 0),
        too_large=(_COUNT, 0),
        error=(text(4000), ""),
    ),
    lambda args: min(_SIDE, _found(args) * 24 * 1024 + SMALL),
)

_OPENED: Final = record(
    id=ident, kind=one_of("file", "folder"), size=or_none(_COUNT), modified=moment(2**63 - 1), tag=ident
)


def _opened(value: Any, args: Args) -> dict[str, Any]:
    found: dict[str, Any] = _OPENED(value, args)
    if (found["size"] is None) != (found["kind"] == "folder"):
        raise UnexpectedError(f"is not that of a {found['kind']}", "size")
    return found


FORMS: Final[Mapping[str, AnswerForm]] = {
    "browser.run": AnswerForm(
        record(
            status=one_of("completed", "failed", "timeout", "interrupted", "crashed", "unavailable"),
            text=(text(_browser_text), ""),
            error=(text(64_000), ""),
            notices=(list_of(text(4000), 100), []),
            downloads=(first_of(_PATH, 100), []),
            url=(text(64_000), ""),
            tabs=(first_of(record(id=text(100), url=text(16_000), title=(text(4000), "")), 200), []),
            active=(integer(-1, 1000), -1),
            focused=(text(1000), ""),
            tree=(text(64_000), ""),
            screenshot=(picture(_WINDOW), ""),
            screenshot_path=(_PATH, ""),
            marks=(picture(_WINDOW), ""),
        ),
        lambda args: 2 * _WINDOW + _ESCAPED * (_browser_text(args) + 128_000) + 2 * _MIB,
    ),
    "cancel": _NOTHING,
    "code.lint": AnswerForm(
        record(problems=(list_of(record(line=_NUMBER, text=text(2000)), 100), []), error=(text(4000), "")),
        _SIDE,
    ),
    "disk.state": AnswerForm(record(bytes=(_COUNT, 0), entries=(_COUNT, 0), over=(flag, False), stops=(_COUNT, 0))),
    "environment.set": _NOTHING,
    "file.edit": AnswerForm(
        record(text=text(64_000), **_CHANGED, image=(or_none(picture(_PICTURE)), None)),
        _edit_bytes("view", _PICTURE + _MIB),
    ),
    "file.range": AnswerForm(
        record(
            text=(text(64_000), ""),
            **_CHANGED,
            first=(_COUNT, 0),
            last=(_COUNT, 0),
            lines=(_COUNT, 0),
            content=(whole_text(_FILE), ""),
            version=(whole_text(200), ""),
        ),
        _edit_bytes("read", 24 * _MIB),
    ),
    "file.read": AnswerForm(
        record(path=(whole_text(2 * MAX_PATH), ""), size=(_COUNT, 0), offset=(_COUNT, 0), eof=(flag, True)),
        SMALL,
        _blob_bytes(wire.MAX_BLOB),
    ),
    "file.whole": AnswerForm(record(text=text(400_000), **_CHANGED), _edit_bytes("read list", 3 * _MIB)),
    "file.write": _NOTHING,
    "folder.list": AnswerForm(
        record(path=inner_path, entries=list_of(_ENTRY, 10_000), left_out=(_COUNT, 0)),
        10_000 * (_ESCAPED * 255 + 200),
    ),
    "git.clone": AnswerForm(
        record(
            cloned=(flag, False),
            branch=(or_none(text(1000)), None),
            mark=(or_none(integer(0, 2**53 - 1)), None),
            **_NAMED,
        ),
        is_live=True,
    ),
    "git.diff": AnswerForm(
        record(modified=(whole_text(_MIB + 4096), ""), original=(whole_text(_MIB + 4096), ""), **_NAMED),
        _SIDE + 4 * _MIB,
    ),
    "git.identity": AnswerForm(record(**_NAMED)),
    "git.instructions": AnswerForm(
        record(files=(list_of(_TEXT_FILE, 200), []), **_NAMED), _SIDE + 8 * _MIB, is_live=True
    ),
    "git.log": AnswerForm(
        record(
            commits=(list_of(_COMMIT, lambda args: int(args.get("limit", 50))), []),
            has_more=(flag, False),
            start=(commit, ""),
            **_NAMED,
        ),
        _SIDE,
    ),
    "git.status": AnswerForm(
        record(repositories=(list_of(_REPOSITORY, 20), []), errors=(list_of(text(4000), 20), []), **_NAMED),
        _SIDE,
    ),
    "journal.ack": _NOTHING,
    "journal.lookup": AnswerForm(record(state=one_of("unknown", "running", "done"))),
    "kernel.restart": _NOTHING,
    "kernel.run": AnswerForm(
        record(
            status=one_of("completed", "error", "timeout", "interrupted", "kernel_died", "unavailable"),
            output=(text(_output), ""),
            omitted=(_COUNT, 0),
            images=(list_of(picture(_CELL_PICTURES), 10), []),
            working_dir=(_PATH, ""),
            python=(_PATH, ""),
            notice=(text(16_000), ""),
        ),
        lambda args: _output_bytes(args) + _CELL_PICTURES,
        is_live=True,
    ),
    "log.end": _NOTHING,
    "patch.apply": AnswerForm(
        record(
            text=text(64_000),
            is_error=flag,
            paths=(list_of(_PATH, lambda args: len(args.get("patch", ""))), []),
            diff=(or_none(text(_DIFF)), None),
            fuzz=(_COUNT, 0),
        ),
        lambda args: _ESCAPED * (4 * len(args.get("patch", "")) + _DIFF) + _MIB,
    ),
    "ping": _NOTHING,
    "ports.list": AnswerForm(record(ports=(valid_of(_PORT, 500), [])), 2 * _MIB),
    "processes.freeze": AnswerForm(record(frozen=(flag, False))),
    "processes.thaw": _NOTHING,
    "search.glob": _SEARCHED,
    "search.grep": _SEARCHED,
    "shell.interrupt": AnswerForm(record(interrupted=(flag, False))),
    "shell.kill": AnswerForm(record(killed=(flag, False))),
    "shell.run": AnswerForm(
        record(
            status=one_of(
                "completed", "soft_timeout", "hard_timeout", "interrupted", "not_executed", "reset", "shell_lost"
            ),
            exit_code=(_NUMBER, -1),
            prefix=(text(1000), ""),
            output=(text(_output), ""),
            omitted=(_COUNT, 0),
            working_dir=(_PATH, ""),
            pid=(_NUMBER, -1),
            python=(or_none(_PATH), None),
            username=(_WORD, ""),
            hostname=(_WORD, ""),
            running=(flag, False),
            notice=(text(16_000), ""),
            shell_ended=(flag, False),
        ),
        _output_bytes,
        is_live=True,
    ),
    "transfer.drop": _NOTHING,
    "transfer.keep": _NOTHING,
    "transfer.next": AnswerForm(record(eof=flag), SMALL, _blob_bytes(_PART)),
    "transfer.put": _NOTHING,
    "transfer.read": AnswerForm(_opened),
    "transfer.write": AnswerForm(record(id=ident)),
    "workspace.facts": AnswerForm(
        record(
            working_dir=(_PATH, ""),
            user=(_WORD, ""),
            hostname=(_WORD, ""),
            os=(_WORD, ""),
            python=(_WORD, ""),
            git=(
                or_none(
                    record(
                        branch=(or_none(text(1000)), None),
                        remote=(or_none(text(4000)), None),
                        root=(or_none(_PATH), None),
                    )
                ),
                None,
            ),
            instructions=(first_of(_TEXT_FILE, 100), []),
            skills=(list_of(_TEXT_FILE, 200), []),
            agents=(list_of(_TEXT_FILE, 200), []),
        ),
        16 * _MIB,
    ),
    "workspace.pack": AnswerForm(record(eof=flag), SMALL, _PACK),
    "workspace.restore": AnswerForm(record(restored=or_none(asked_for("names")))),
    "workspace.snapshot": _NOTHING,
    "workspace.unpack": _NOTHING,
}
"""The form of the answer to each operation of the runner."""


UNLISTED: Final = AnswerForm(
    accepted(lambda value: isinstance(value, dict), "is no object"), SMALL, SMALL, is_live=True
)


def form_of(op: str) -> AnswerForm:
    """What may be answered to this operation."""
    return FORMS.get(op, UNLISTED)
