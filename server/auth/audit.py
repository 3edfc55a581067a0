"""Records of the audit log: their one written form, the chain that they make, and whether one is whole.

A record is a line of JSON as RFC 8785 has it, of text, whole numbers, true, false, lists and objects: keys in order, no
space, one way to write each. It names the SHA-256 of the record before it, so that none can be changed, taken out or
put in without all that follow; the last one of all is in a head, which the server signs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from server.auth.identity import COOKIE_PREFIX, Identity, presented_token
from server.auth.signing import is_signed

NONE: Final = ""
"""The hash before the first record."""
MAX_PROBLEMS: Final = 20
"""So many are told of one log."""
BROKEN: Final = "audit.broken"
"""The action of a record that a server writes itself, where it could not go on from what it found."""
PRUNED: Final = "audit.pruned"

_KIND: Final = "drydock-audit-head"
_MAX_TEXT: Final = 1000
_MAX_DETAILS: Final = 8192
_EXACT: Final = 2**53
_FIELDS: Final = {"action", "actor", "address", "at", "details", "means", "number", "previous", "target"}


class Means(StrEnum):
    """By what somebody was known who did something."""

    TOKEN = "token"  # noqa: S105 - the name of a means
    SESSION = "session"
    OPEN = "open"
    """Nothing is asked for: a server without a token."""
    CLI = "cli"
    SYSTEM = "system"


class Actor(NamedTuple):
    """Who does something, by what means, and from which address."""

    user_id: str = ""
    name: str = ""
    means: Means = Means.SYSTEM
    address: str = ""


SYSTEM: Final = Actor()
"""The server itself."""
ACTOR: Final[ContextVar[Actor]] = ContextVar("actor", default=SYSTEM)
"""Whose request is being answered: who does what is recorded meanwhile, unless something else is said."""


NOBODY: Final = Identity("-")
"""Stands for a stranger, of whom but the address is known."""


def actor_of(identity: Identity, scope: Mapping[str, Any], headers: Mapping[str, str], *, key: str = "") -> Actor:
    """Who sends a request with these headers (names in lower case), or connects with this `key`."""
    if key or presented_token(headers):
        means = Means.TOKEN
    else:
        means = Means.SESSION if COOKIE_PREFIX in headers.get("cookie", "") else Means.OPEN
    client = scope.get("client")
    return Actor(identity.user_id, identity.name, means, str(client[0]) if client else "")


class AuditEntry(NamedTuple):
    """What is to be recorded: `action` is ``noun.verb``; `target` a kind and an id. Nothing of it may be secret."""

    action: str
    actor: Actor
    target: tuple[str, str] = ("", "")
    details: Mapping[str, Any] = {}


class AuditRecord(NamedTuple):
    """A record as it is stored: its text, the hash of that, and what it is found by."""

    number: int
    at: datetime | None
    user_id: str
    action: str
    text: str
    hash: str


class Head(NamedTuple):
    """The end of the log, and the stump that is left of its beginning: the last record that was removed, 0 for none."""

    number: int = 0
    hash: str = NONE
    stump_number: int = 0
    stump_hash: str = NONE
    signature: str = ""
    public_key: str = ""

    def signed_text(self) -> bytes:
        """What the signature is of."""
        stump = {"hash": self.stump_hash, "number": self.stump_number}
        return canonical({"hash": self.hash, "kind": _KIND, "number": self.number, "stump": stump}).encode()

    def problem(self, public: bytes | None) -> str:
        """What is wrong with the signature, "" for nothing; None for `public` takes any key."""
        if public is not None and self.public_key != public.hex():
            return "the end of the log is signed with another key than this server's"
        try:
            signature, own = bytes.fromhex(self.signature), bytes.fromhex(self.public_key)
        except ValueError:
            return "the signature of the log's end cannot be read"
        return "" if is_signed(self.signed_text(), signature, own) else "the log's end is not what was signed"


def canonical(value: Any) -> str:
    """The one way to write a value: RFC 8785, for what has keys of ASCII and no numbers but whole ones below 2^53."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def hash_of(text: str) -> str:
    """What the next record names this one by, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def time_of(moment: datetime | None) -> str:
    """A moment as records have it: UTC, to the microsecond."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def make_record(entry: AuditEntry, *, number: int, previous: str, at: datetime) -> AuditRecord:
    """The record of `entry` behind the one with the hash `previous`."""
    details = _plain(dict(entry.details))
    if len(canonical(details)) > _MAX_DETAILS:
        details = {"left_out": "more than a record may have"}
    actor = entry.actor
    fields = {
        "action": _plain(entry.action),
        "actor": {"id": _plain(actor.user_id), "name": _plain(actor.name)},
        "address": _plain(actor.address),
        "at": time_of(at),
        "details": details,
        "means": str(actor.means),
        "number": number,
        "previous": previous,
        "target": {"id": _plain(entry.target[1]), "kind": _plain(entry.target[0])},
    }
    text = canonical(fields)
    return AuditRecord(number, at, fields["actor"]["id"], fields["action"], text, hash_of(text))


def _plain(value: Any) -> Any:
    """A value as any database keeps it, and as a record may have it."""
    if isinstance(value, str):
        text = value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < _EXACT else str(value)
    if isinstance(value, Mapping):
        return {str(key).encode("ascii", "replace").decode(): _plain(one) for key, one in value.items()}
    if isinstance(value, Iterable):
        return [_plain(one) for one in value]
    return _plain(str(value))


def shown_fields(record: AuditRecord) -> dict[str, Any]:
    """What a record says; of one that was changed so that it says nothing any more, what it is found by."""
    if fields := _fields(record.text):
        return fields
    nobody = {"actor": {"id": record.user_id, "name": ""}, "means": "", "address": "", "target": {"kind": "", "id": ""}}
    known = {"number": record.number, "at": time_of(record.at), "action": record.action, "previous": ""}
    return {**nobody, **known, "details": {"unreadable": True}}


class ChainCheck:
    """Looks through a log, record by record from its stump on.

    `problems` are what is wrong, in the order of the log, and do not hide what is behind them: each record is compared
    with the one before it. `breaks` are those that a server has found and written down itself; `notes` are no fault.
    `noted`: numbers and hashes that were the end of this log once.
    """

    def __init__(self, head: Head | None, noted: Iterable[tuple[int, str]] = ()) -> None:
        self._head = head or Head()
        self._noted = tuple(noted)
        self._number, self._hash = self._head.stump_number, self._head.stump_hash
        self._last_at = ""
        self.records = 0
        self.problems: list[str] = []
        self.breaks: list[str] = []
        self.notes: list[str] = []

    @property
    def last(self) -> tuple[int, str]:
        """The number and the hash of the last record."""
        return self._number, self._hash

    def take(self, record: AuditRecord) -> None:
        """The next record, as it is stored."""
        number, fields, actual = record.number, _fields(record.text), hash_of(record.text)
        wrong = _contradiction(record, fields, actual)
        is_break = not wrong and fields["action"] == BROKEN and number > self._number
        if is_break:
            if len(self.breaks) < MAX_PROBLEMS:
                reason = fields["details"].get("reason", "")
                self.breaks.append(f"record {number} was written where the log was found broken: {reason}")
        elif number <= self._number:
            self._tell(f"record {number} comes behind record {self._number}")
        elif number > self._number + 1:
            self._tell(f"{_records(self._number + 1, number - 1)} missing")
        if wrong:
            self._tell(f"record {number} was changed: {wrong}")
        elif number == self._number + 1 and fields["previous"] != self._hash and not is_break:
            self._tell(f"record {number} does not follow the one before it: one of the two was changed")
        if any(number == noted and mark != actual for noted, mark in self._noted):
            self._tell(f"record {number} is another one than it was when it was the end of the log")
        at = fields.get("at", "")
        if at < self._last_at and len(self.notes) < MAX_PROBLEMS:
            self.notes.append(f"at record {number} the clock went back, from {self._last_at} to {at}")
        self.records += 1
        self._number, self._hash, self._last_at = number, actual, at or self._last_at

    def end(self, public: bytes | None) -> None:
        """All records were taken. `public`: the key of the server; None: whoever has signed it."""
        self.end_unsigned()
        if (self.records or self._head.number) and (wrong := self._head.problem(public)):
            self._tell(wrong)

    def end_unsigned(self) -> None:
        """The same without a look at the signature."""
        head, last = self._head, max([self._head.number, *(number for number, _ in self._noted)])
        if last > self._number:
            self._tell(f"{_records(self._number + 1, last)} missing from the end")
        elif head.number < self._number:
            self._tell(f"{_records(head.number + 1, self._number)} behind the end that was signed")
        elif head.hash != self._hash:
            self._tell(f"record {self._number} is not the one that was signed as the end")

    def _tell(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


def _records(first: int, last: int) -> str:
    return f"record {first} is" if first == last else f"records {first} to {last} are"


def _fields(text: str) -> dict[str, Any]:
    """What a record says; empty where it is not written as records are."""
    try:
        fields = json.loads(text)
        is_one = isinstance(fields, dict) and fields.keys() == _FIELDS and canonical(fields) == text
    except (ValueError, TypeError, RecursionError):
        return {}
    strings = ("action", "address", "at", "means", "previous")
    is_one = is_one and all(isinstance(fields[name], str) for name in strings) and isinstance(fields["details"], dict)
    return fields if is_one and _has(fields["actor"], "id", "name") and _has(fields["target"], "id", "kind") else {}


def _has(value: Any, *names: str) -> bool:
    return isinstance(value, dict) and value.keys() == {*names} and all(isinstance(one, str) for one in value.values())


def _contradiction(record: AuditRecord, fields: Mapping[str, Any], actual: str) -> str:
    """How what is stored of a record contradicts itself."""
    if not fields:
        return "it is not written as records are"
    if record.hash != actual:
        return "its hash is not that of what it says"
    stored = (fields["number"], fields["at"], fields["actor"].get("id"), fields["action"])
    found_by = (record.number, time_of(record.at), record.user_id, record.action)
    for name, says, beside in zip(("number", "time", "user", "action"), stored, found_by, strict=True):
        if says != beside:
            return f"the {name} by which it is found is not the one that it says"
    return ""
