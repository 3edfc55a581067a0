"""``drydock audit``: what was done by whom at a server, looked at, checked, taken out, and shortened."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TextIO

from agent_core.errors import DrydockError
from server.auth.audit import Actor, AuditRecord, ChainCheck, Means, shown_fields
from server.auth.secrets import SecretBox
from server.auth.signing import SigningKey, fingerprint_of, pem_of, public_of
from server.cli.printing import is_terminal
from server.db.audit_files import check_file, head_line, open_audit
from server.db.database import KEY_FILE
from server.db.engine import DatabaseSettings
from server.db.repositories.audit import AuditLog, Wanted
from server.settings.settings import Settings

BROKEN_STATUS: Final = 1
_MAX_NOTED: Final = 80


def audit(settings: Settings, out: TextIO, *, action: str, **options: Any) -> int:
    """Carry out an action of ``drydock audit``; returns the exit status."""
    if action == "verify" and options["file"] is not None:
        return _verify_file(settings, out, **options)
    return asyncio.run(_ACTIONS[action](settings, out, **options))


def operator() -> Actor:
    """Whoever runs a command on the server's machine, by the name that the system has for them."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have none
        name = f"uid {os.getuid()}"
    return Actor(name=name, means=Means.CLI)


def opened_audit(settings: Settings) -> AbstractAsyncContextManager[AuditLog]:
    """The audit log of the server with these settings, which may be running; see `open_audit`."""
    database = DatabaseSettings(url=settings.database_url, synchronous=settings.database_synchronous)
    return open_audit(settings.data_dir.absolute(), database)


async def _list(settings: Settings, out: TextIO, *, limit: int, **filters: Any) -> int:
    async with opened_audit(settings) as log:
        found = await log.page(_wanted(filters), limit=limit)
    for record in reversed(found):
        out.write(f"{_line(record)}\n")
    return 0


async def _export(settings: Settings, out: TextIO, *, output: Path | None, **filters: Any) -> int:
    wanted = _wanted(filters)
    async with opened_audit(settings) as log:
        with _target(out, output) as target:
            await _write(log, target, wanted)
    return 0


@contextmanager
def _target(out: TextIO, output: Path | None) -> Iterator[TextIO]:
    if output is None:
        yield out
        return
    try:
        with output.open("x", encoding="utf-8", newline="\n") as target:
            yield target
    except FileExistsError:
        raise DrydockError(f"{output} exists; name another file") from None
    except OSError as error:
        raise DrydockError(f"{output} cannot be written: {error.strerror or error}") from error


async def _write(log: AuditLog, target: TextIO, wanted: Wanted) -> None:
    is_whole, head = wanted == Wanted(), await log.head()
    async for record in log.records(wanted):
        if head is None or record.number > head.number:  # appended since
            break
        target.write(f"{record.text}\n")
    if is_whole and head is not None:
        target.write(f"{head_line(head)}\n")


async def _verify(settings: Settings, out: TextIO, *, head: str | None, key: Path | None, file: None = None) -> int:
    del key, file
    async with opened_audit(settings) as log:
        return _tell(out, "audit log", await log.verify(*_noted(head)), log.key.public)


def _verify_file(settings: Settings, out: TextIO, *, file: Path, head: str | None, key: Path | None) -> int:
    key_file = settings.data_dir.absolute() / KEY_FILE
    try:
        if key is not None:
            public: bytes | None = public_of(key.read_text("ascii"))
        else:
            public = SigningKey(SecretBox.open(key_file)).public if key_file.exists() else None
        found = check_file(file, public, _noted(head))
    except ValueError as error:
        raise DrydockError(f"{key} holds no public key of this kind: {error}") from error
    except OSError as error:
        raise DrydockError(f"{error.filename or file} cannot be read: {error.strerror or error}") from error
    status = _tell(out, found.kind, found.check, found.public)
    if public is None and found.public is not None:
        out.write("Whose key that is, this machine does not know: compare it with `drydock audit key` of the server.\n")
    return status


async def _prune(settings: Settings, out: TextIO, *, before: datetime, yes: bool) -> int:
    async with opened_audit(settings) as log:
        if not yes:
            if not is_terminal(sys.stdin):
                raise DrydockError("say --yes, since there is no terminal to ask at; export what is removed first")
            out.write(f"Remove all records of before {before.isoformat()}? `drydock audit export` keeps them. [y/N] ")
            out.flush()
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                return BROKEN_STATUS
        removed = await log.prune(before, operator())
    out.write(f"Removed {removed} records; the log is verified from there on.\n")
    return 0


async def _key(settings: Settings, out: TextIO) -> int:
    async with opened_audit(settings) as log:
        out.write(f"{pem_of(log.key.public)}SHA-256 {fingerprint_of(log.key.public)}\n")
    return 0


_ACTIONS: Final[Mapping[str, Callable[..., Coroutine[Any, Any, int]]]] = {
    "list": _list,
    "export": _export,
    "verify": _verify,
    "prune": _prune,
    "key": _key,
}


def _tell(out: TextIO, kind: str, check: ChainCheck, public: bytes | None) -> int:
    number, mark = check.last
    for problem in (*check.problems, *check.breaks):
        out.write(f"BROKEN: {_shown(problem)}.\n")
    for note in check.notes:
        out.write(f"Note: {_shown(note)}.\n")
    signed = f", signed with the key {fingerprint_of(public)}" if public is not None and check.records else ""
    if check.problems or check.breaks:
        out.write(f"The {kind} is not what was written: see above, the first place first.\n")
        return BROKEN_STATUS
    if check.records:
        out.write(f"The {kind} is whole: {check.records} records{signed}.\nIts end is {number}:{mark}\n")
    else:
        out.write(f"The {kind} has no records yet.\n")
    return 0


def _wanted(filters: dict[str, Any]) -> Wanted:
    return Wanted(filters["actor"], filters["action_of"] or "", filters["since"], filters["until"])


def _noted(head: str | None) -> tuple[tuple[int, str], ...]:
    """What ``--head NUMBER:HASH`` says."""
    if head is None:
        return ()
    number, _, mark = head.partition(":")
    if len(head) > _MAX_NOTED or not number.isdecimal() or len(mark) != 64:
        raise DrydockError("--head is NUMBER:HASH, as `drydock audit verify` has printed it")
    return ((int(number), mark),)


def _line(record: AuditRecord) -> str:
    fields = shown_fields(record)
    actor, target = fields["actor"], fields["target"]
    who = actor["name"] or actor["id"] or "-"
    what = f"{target['kind']} {target['id']}".strip()
    details = json.dumps(fields["details"], ensure_ascii=False) if fields["details"] else ""
    at = fields["at"][:19].replace("T", " ")
    words = (record.number, at, fields["action"], who, fields["means"], fields["address"], what, details)
    return _shown("  ".join(str(word) for word in words if word != ""))


def _shown(text: str) -> str:
    """What strangers have typed is not to move the cursor, nor anything else of a terminal."""
    return "".join(one if one.isprintable() else "?" for one in text)
