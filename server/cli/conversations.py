"""``drydock conversations``: what a running server's agents did, from a terminal or a script."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from agent_core.errors import DrydockError
from agent_core.events.plain_text import one_line
from drydock_client import (
    AgentState,
    BusyError,
    ClientError,
    Conversation,
    DrydockClient,
    Event,
    LimitError,
    NotFoundError,
    State,
    Unknown,
    UnreachableError,
)
from server.cli import recordings
from server.cli.event_view import EventView, state_in_words
from server.cli.printing import Printer, ask, read_text
from server.settings.running_server import client_of, error_of

T = TypeVar("T")

LOOKED_AT: Final = 10_000
"""Conversations that are looked through for the beginning of an id, or for a text."""
ID_ON_TERMINAL: Final = 12
POLL_SECONDS: Final = 0.7
PATIENCE_SECONDS: Final = 120.0
"""How long `tail -f` waits for a server that is away."""
PAGE: Final = 100
ASK_SECONDS: Final = 1.0
"""How long a server may take that a shell asks for ids."""


def conversations(
    url: str | None, key_file: Path | None, environment: Mapping[str, str], *, action: str, options: Mapping[str, Any]
) -> int:
    """Carry out one of `ACTIONS` with its options; returns the exit status.

    Raises `DrydockError`: `NoServerError` where no server was reached.
    """
    client = client_of(url, key_file, environment)
    printer = Printer()
    if action == "import":
        names = ("file", "title", "replay")
        wanted = {name: options[name] for name in names}
        return recordings.import_recording(url, key_file, environment, **wanted, out=sys.stdout)
    if action == "export":
        whole_id = _run(client, lambda: Finder(client).found(options["conversation"])).id
        return _export(url, key_file, environment, whole_id, options["output"], options["workspace"])
    return _run(client, lambda: ACTIONS[action](Finder(client), options, printer))


def newest(url: str | None, key_file: Path | None, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Ids and titles of the newest conversations, for shells: nothing where no server answers at once."""

    async def asked() -> list[tuple[str, str]]:
        async with asyncio.timeout(ASK_SECONDS), client_of(url, key_file, environment) as client:
            page = await client.conversation_page(limit=PAGE)
        return [(one.id, one_line(one.title, 60)) for one in page.results]

    try:
        return asyncio.run(asked())
    except (ClientError, DrydockError, TimeoutError):
        return []


def _run(client: DrydockClient, work: Callable[[], Awaitable[T]]) -> T:
    async def in_session() -> T:
        async with client:
            return await work()

    try:
        return asyncio.run(in_session())
    except ClientError as error:
        raise error_of(error) from error


def _export(
    url: str | None,
    key_file: Path | None,
    environment: Mapping[str, str],
    conversation_id: str,
    output: Path | None,
    workspace: bool,
) -> int:
    if not workspace:
        file = recordings.STANDARD if output is None else output
        return recordings.export_recording(
            url, key_file, environment, conversation_id=conversation_id, file=file, out=sys.stdout
        )
    if output is None and sys.stdout.isatty():
        raise DrydockError("--workspace makes a tar file, which is nothing for a terminal: name a file with -o FILE")
    file = recordings.STANDARD if output is None else output
    return recordings.export_whole(url, key_file, environment, conversation_id=conversation_id, file=file)


class Finder:
    """Finds conversations by what a person types."""

    def __init__(self, client: DrydockClient) -> None:
        self.client = client

    async def found(self, text: str) -> Conversation:
        """The one of this id, or the only one whose id begins so; raises `DrydockError`."""
        try:
            return await self.client.conversation(text)
        except NotFoundError:
            pass
        matches = [one async for one in self.newest(text) if text and one.id.startswith(text)]
        if not matches:
            raise DrydockError(f"no conversation's id begins with {text!r}; `drydock conversations list` shows them")
        if len(matches) > 1:
            some = ", ".join(one.id[: len(text) + 6] for one in matches[:4])
            raise DrydockError(f"{text!r} is the beginning of {len(matches)} ids ({some} …); type some more of it")
        return matches[0]

    async def newest(self, search: str = "") -> AsyncIterator[Conversation]:
        """All, or those whose title, repository or id has this text; a server that does not look for it sends all."""
        count = 0
        async for one in self.client.conversations(page_size=PAGE, search=search or None):
            yield one
            count += 1
            if count == LOOKED_AT:
                return

    async def all_found(self, texts: Iterable[str]) -> list[Conversation]:
        by_id = {one.id: one for one in [await self.found(text) for text in texts]}
        return list(by_id.values())


def kind_of(conversation: Conversation) -> str:
    """Which of `parser.STATES` a conversation is in."""
    match conversation.agent_state:
        case AgentState.AWAITING_USER_INPUT | AgentState.AWAITING_USER_CONFIRMATION:
            return "waiting"
        case AgentState.FINISHED:
            return "finished"
        case AgentState.ERROR | AgentState.REJECTED:
            return "failed"
        case None | AgentState.PAUSED | AgentState.STOPPED:
            return "stopped"
    return "running"


async def _list(known: Finder, options: Mapping[str, Any], printer: Printer) -> int:
    wanted, state = (options["search"] or "").casefold(), options["state"]
    found: list[Conversation] = []
    async for one in known.newest(options["search"] or ""):
        about = f"{one.title}\n{one.selected_repository or ''}\n{one.id}".casefold()
        if wanted in about and (state is None or kind_of(one) == state):
            found.append(one)
        if len(found) == options["limit"]:
            break
    if options["json"]:
        printer.print(*(json.dumps(public(one), ensure_ascii=False) for one in found))
    elif options["quiet"]:
        printer.print(*(one.id for one in found))
    else:
        printer.print(*_table(found, printer))
    return 0


def _table(found: list[Conversation], printer: Printer) -> list[str]:
    if not found:
        return ["There is none."] if printer.is_terminal else []
    length = ID_ON_TERMINAL if printer.is_terminal else None
    rows = [("ID", "AGENT", "CHANGED", "COST", "TITLE")]
    for one in found:
        cost = f"{one.accumulated_cost:.2f} $" if one.accumulated_cost else ""
        changed = ago(one.last_updated_at or one.created_at)
        place = f"{one.title} ({one.selected_repository})" if one.selected_repository else one.title
        rows.append((one.id[:length], _what_it_does(one), changed, cost, one_line(place, 200)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    width = shutil.get_terminal_size().columns if printer.is_terminal else 10_000
    lines = ["  ".join([*(cell.ljust(size) for cell, size in zip(row, widths, strict=False)), row[4]]) for row in rows]
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]


def _what_it_does(conversation: Conversation) -> str:
    if kind_of(conversation) == "running" and conversation.why_it_waits:
        return "waits for its turn"
    return state_in_words(conversation.agent_state)


def ago(moment: datetime | None) -> str:
    """How long ago that was, roughly."""
    if moment is None:
        return ""
    seconds = max(0, int((datetime.now(UTC) - moment).total_seconds()))
    for size, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {name} ago"
    return "just now"


async def _show(known: Finder, options: Mapping[str, Any], printer: Printer) -> int:
    conversation = await known.found(options["conversation"])
    view = EventView(colour=printer.has_colour, full=options["full"])
    if options["json"]:
        printer.print(json.dumps({"type": "conversation", **public(conversation)}, ensure_ascii=False))
    else:
        printer.print(*_facts(conversation, known.client.base_url, view))
    if options["lines"] is not None:
        for event in await _last(known.client, conversation.id, options["lines"]):
            _print(event, printer, view, as_json=options["json"])
        return 0
    async for event in known.client.events(conversation.id):
        _print(event, printer, view, as_json=options["json"])
    return 0


def _facts(one: Conversation, base_url: str, view: EventView) -> list[str]:
    repository = " ".join(filter(None, (one.selected_repository, one.selected_branch)))
    facts = {
        "id": one.id,
        "agent": _what_it_does(one),
        "why": one.why_it_waits,
        "repository": repository,
        "begun": ago(one.created_at),
        "changed": ago(one.last_updated_at),
        "cost": f"{one.accumulated_cost:.4f} US dollars" if one.accumulated_cost else "",
        "page": f"{base_url}/conversations/{one.id}",
    }
    lines = [f"  {name:<12}{one_line(value)}" for name, value in facts.items() if value]
    return [view.painted(one_line(one.title), "1"), *lines, ""]


async def _last(client: DrydockClient, conversation_id: str, count: int) -> list[Event | Unknown]:
    """The last events, oldest first."""
    return [event async for event in client.events(conversation_id, limit=count, reverse=True)][::-1]


def _print(event: Event | Unknown, printer: Printer, view: EventView, *, as_json: bool) -> None:
    if not as_json:
        printer.print(*view.lines(event))
    elif (wire := public_event(event)) is not None:
        printer.print(json.dumps(wire, ensure_ascii=False))


async def _tail(known: Finder, options: Mapping[str, Any], printer: Printer) -> int:
    conversation = await known.found(options["conversation"])
    view = EventView(colour=printer.has_colour, full=options["full"])
    since: int | None = options["since"]
    if since is None:
        events = await _last(known.client, conversation.id, options["lines"])
    else:
        events = [event async for event in known.client.events(conversation.id, after=since)]
    position = -1 if since is None else since
    lost: float | None = None
    while True:
        for event in events:
            _print(event, printer, view, as_json=options["json"])
            position = position if event.id is None else event.id
        if not options["follow"]:
            return 0
        # Asked for, not followed: to follow a conversation starts it.
        await asyncio.sleep(POLL_SECONDS)
        try:
            events = [event async for event in known.client.events(conversation.id, after=position)]
            if lost is not None:
                printer.tell("The server answers again.")
            lost = None
        except (UnreachableError, LimitError, BusyError):
            events = []
            if lost is None:
                printer.tell("The server does not answer; trying again.")
            lost = time.monotonic() if lost is None else lost
            if time.monotonic() - lost > PATIENCE_SECONDS:
                raise


async def _send(known: Finder, options: Mapping[str, Any], printer: Printer) -> int:
    text = read_text(options["text"])
    conversation = await known.found(options["conversation"])
    sent = await known.client.send(conversation.id, text)
    printer.print(str(sent.id))
    if printer.is_terminal:
        printer.tell(f"That is its event {sent.id}. `drydock conversations tail -f {conversation.id}` shows the rest.")
    return 0


async def _stop(known: Finder, options: Mapping[str, Any], printer: Printer) -> int:
    return await _each(known, options, printer, known.client.stop, "stopped")


async def _delete(known: Finder, options: Mapping[str, Any], printer: Printer) -> int:
    if not options["yes"]:
        found = await known.all_found(options["conversation"])
        for one in found:
            printer.tell(f"  {one.id}  {one_line(one.title)}")
        question = "Delete this conversation" if len(found) == 1 else f"Delete these {len(found)} conversations"
        if ask(f"{question}, with all files? [y/N] ", "add --yes") not in ("y", "yes"):
            printer.tell("Nothing was deleted.")
            return 1
    return await _each(known, options, printer, known.client.delete, "deleted")


async def _each(
    known: Finder,
    options: Mapping[str, Any],
    printer: Printer,
    call: Callable[[str], Awaitable[object]],
    done: str,
) -> int:
    """Make the call for each conversation that was named; 1 where one could not be, which does not stop the others."""
    failed = 0
    for text in options["conversation"]:
        try:
            conversation = await known.found(text)
            await call(conversation.id)
            printer.print(f"{conversation.id} {done}")
        except UnreachableError:
            raise
        except (ClientError, DrydockError) as error:
            failed += 1
            printer.tell(f"drydock: {text!r} was not {done}: {error}")
    return 1 if failed else 0


ACTIONS: Final[Mapping[str, Callable[[Finder, Mapping[str, Any], Printer], Awaitable[int]]]] = {
    "list": _list,
    "show": _show,
    "tail": _tail,
    "send": _send,
    "stop": _stop,
    "delete": _delete,
}


def public(conversation: Conversation) -> dict[str, Any]:
    """The facts in the form of the protocol."""
    return conversation.model_dump(mode="json", by_alias=True, exclude_unset=True)


def public_event(event: Event | Unknown) -> dict[str, Any] | None:
    """An event in the form of the protocol; None for what clients are sent nothing of."""
    match event:
        case Unknown():
            return event.data if isinstance(event.data, dict) else None
        case State():
            facts = event.model_dump(mode="json", exclude_unset=True)
            state, timestamp = facts.pop("state"), facts.pop("timestamp", None)
            event_id = facts.pop("id", None)
            facts.pop("agent_state", None)
            told = {"id": event_id, "timestamp": timestamp}
            return {
                **{name: value for name, value in told.items() if value is not None},
                "source": "environment",
                "observation": "agent_state_changed",
                "content": "",
                "extras": {"agent_state": state, **facts},
            }
    wire = event.model_dump(mode="json", exclude_unset=True)
    return None if "null" in (wire.get("action"), wire.get("observation")) else wire
