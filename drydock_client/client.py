"""The asynchronous client of a server."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Final, Self

from drydock_client.errors import ClientError, LimitError, NotDrydockError, NotFoundError, spelled
from drydock_client.events import RESTING, Event, State, Unknown, read_event
from drydock_client.http import DEFAULT_URL, Http, Query, without_none
from drydock_client.live import Connector, Following, LiveConnection
from drydock_client.programs import ProgramsApi
from drydock_client.resources import (
    PIECE,
    FilesApi,
    GitApi,
    PluginsApi,
    SecretsApi,
    SettingsApi,
    SkillsApi,
    WebhooksApi,
    conversation_path,
)
from drydock_client.results import (
    Conversation,
    ConversationPage,
    EventPage,
    Port,
    Rewound,
    Sent,
    listed,
    parsed,
    parsed_list,
)

PAGE: Final = 100
_LAST_LOOK_SECONDS: Final = 3.0

EVENT_ID_HEADER: Final = "X-Event-Id"


@spelled
class DrydockClient:
    """A client of one server, for programs with an event loop.

    ::

        async with DrydockClient("http://127.0.0.1:3000", api_key="…") as client:
            conversation = await client.create_conversation(message="Count the lines of code.")
            await client.wait(conversation.id, limit_seconds=600)

    `base_url` may have a path, `timeout` is in seconds for one call with its repetitions (of files, for each piece);
    `ca_file` holds the certificates of whom to trust in place of the usual authorities. Calls may be cancelled, and
    made at the same time; requests are repeated where that is safe (see `http.Http`). All
    errors are `ClientError`.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> None:
        http = Http(base_url, api_key, timeout, ca_file)
        self._http = http
        self._followings: set[Following] = set()
        self.files = FilesApi(http)
        self.git = GitApi(http)
        self.settings = SettingsApi(http)
        self.secrets = SecretsApi(http)
        self.skills = SkillsApi(http)
        self.plugins = PluginsApi(http)
        self.webhooks = WebhooksApi(http)
        self.programs = ProgramsApi(http)

    @property
    def base_url(self) -> str:
        return self._http.base_url

    async def __aenter__(self) -> Self:
        self._http.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self.end_followings()
        finally:
            await self._http.close()

    async def create_conversation(
        self,
        *,
        message: str | None = None,
        images: Sequence[str] = (),
        repository: str | None = None,
        branch: str | None = None,
        git_provider: str | None = None,
        instructions: str | None = None,
        options: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Conversation:
        """Make a conversation; it is durable, and starting, when this returns.

        The agent begins to work with `message` (`images`: data URLs or web addresses); without one it waits.
        `repository`, ``owner/name`` or an http(s) address, is cloned, by default its own default `branch`, from the
        first `git_provider` (such as ``github``) whose account has it. `options` are further fields of the request
        (``agent_options``, ``client_tools``, ``mcp_config``, …). With the same `idempotency_key` there is one
        conversation, however often this is called.

        Raises `InvalidError`, whose `field` says what is wrong, and `KeyRefusedError` where the server's key or the
        model's is missing, or the repository is out of reach.
        """
        body = {
            "initial_user_msg": message,
            "image_urls": list(images) or None,
            "repository": repository,
            "selected_branch": branch,
            "git_provider": git_provider,
            "conversation_instructions": instructions,
            **(options or {}),
        }
        return await self._make("/api/conversations", without_none(**body), idempotency_key)

    async def import_conversation(
        self, trajectory: Sequence[Mapping[str, Any]], *, title: str | None = None, idempotency_key: str | None = None
    ) -> Conversation:
        """Make a stopped conversation of a recorded one, such as `trajectory` returns: shown as it was, not done again.

        The events are in the protocol's own form, also of a first-generation server; `title` is by default the
        beginning of the first message. Raises `InvalidError`, which names the place and the field of an event that
        cannot be kept.
        """
        body = without_none(trajectory=list(trajectory), title=title)
        return await self._make("/api/conversations/import", body, idempotency_key)

    def export(self, conversation_id: str, *, files: bool = True) -> AsyncIterator[bytes]:
        """The whole conversation as one file, in pieces as they come: its log, its sub-agents' logs, its workspace."""
        query = {"files": None if files else "false"}
        return self._pieces(conversation_path(conversation_id, "archive"), query)

    async def import_archive(self, pieces: AsyncIterable[bytes], *, limit_seconds: float = 3600.0) -> Conversation:
        """Make a stopped conversation of what `export` gave, here or elsewhere; the next message goes on with it.

        Raises `InvalidError`, which says what is wrong with the file, of which nothing is left then.
        """
        answer = await self._http.json(
            "POST", "/api/conversations/import/archive", content=pieces, limit_seconds=limit_seconds, repeatable=False
        )
        return await self.conversation(_id_of(answer))

    async def _pieces(self, path: str, query: Query) -> AsyncIterator[bytes]:
        async with self._http.stream(path, query) as response:
            async for piece in response.aiter_bytes(PIECE):
                yield piece

    async def fork(
        self,
        conversation_id: str,
        *,
        event_id: int | None = None,
        reset_metrics: bool = True,
        copy_files: bool = True,
        idempotency_key: str | None = None,
    ) -> Conversation:
        """Make a stopped conversation that begins as this one did, up to `event_id` (by default all of it).

        With `reset_metrics` its costs begin at nothing; with `copy_files` it has the files as they were then. Raises
        `InvalidError` where there is no such event.
        """
        body = {"event_id": event_id, "reset_metrics": reset_metrics, "copy_files": copy_files}
        return await self._make(conversation_path(conversation_id, "fork"), body, idempotency_key)

    async def rewind(self, conversation_id: str, event_id: int | None) -> Rewound:
        """Take it back to right behind an event, or (None) before its first one; its files go back where they can.

        Raises `InvalidError` where there is no such event.
        """
        path = conversation_path(conversation_id, "rewind")
        return parsed(Rewound, await self._http.json("POST", path, body={"event_id": event_id}))

    async def ports(self, conversation_id: str) -> list[Port]:
        """What listens in its sandbox, lowest port first, with previews; nothing while it does not run."""
        answer = await self._http.json("GET", conversation_path(conversation_id, "ports"))
        return parsed_list(Port, answer.get("ports") if isinstance(answer, dict) else None)

    async def _make(self, path: str, body: Mapping[str, Any], idempotency_key: str | None) -> Conversation:
        answer = await self._http.json("POST", path, body=body, key=idempotency_key or uuid.uuid4().hex)
        return await self.conversation(_id_of(answer))

    async def conversation(self, conversation_id: str) -> Conversation:
        """Raises `NotFoundError`."""
        answer = await self._http.json("GET", conversation_path(conversation_id))
        if answer is None:
            raise NotFoundError(f"Conversation {conversation_id} not found", status=404)
        return parsed(Conversation, answer)

    async def conversation_page(
        self,
        *,
        limit: int = 20,
        page_id: str | None = None,
        repository: str | None = None,
        trigger: str | None = None,
        search: str | None = None,
    ) -> ConversationPage:
        """One page, newest first; `page_id` is the `next_page_id` of the page before.

        With `search` those alone whose title, repository or id has this text, in any case.
        """
        query = {
            "limit": limit,
            "page_id": page_id,
            "selected_repository": repository,
            "conversation_trigger": trigger,
            "query": search,
        }
        return parsed(ConversationPage, await self._http.json("GET", "/api/conversations", query=query))

    async def conversations(
        self,
        *,
        repository: str | None = None,
        trigger: str | None = None,
        search: str | None = None,
        page_size: int = PAGE,
    ) -> AsyncIterator[Conversation]:
        """All conversations, newest first, page by page as they are asked for; see `conversation_page`."""
        page_id: str | None = None
        while True:
            page = await self.conversation_page(
                limit=page_size, page_id=page_id, repository=repository, trigger=trigger, search=search
            )
            for conversation in page.results:
                yield conversation
            page_id = page.next_page_id
            if page_id is None:
                return

    async def rename(self, conversation_id: str, title: str) -> None:
        """Give it a title of 1 to 200 characters."""
        await self._http.json("PATCH", conversation_path(conversation_id), body={"title": title}, repeatable=True)

    async def delete(self, conversation_id: str) -> bool:
        """Stop it and delete everything of it; False when there was none of this id."""
        return await self._http.json("DELETE", conversation_path(conversation_id)) is True

    async def start(self, conversation_id: str) -> Conversation:
        """Have it run; returns once its log is open, while its sandbox may still be starting."""
        await self._http.json("POST", conversation_path(conversation_id, "start"), body={}, repeatable=True)
        return await self.conversation(conversation_id)

    async def stop(self, conversation_id: str) -> Conversation:
        """End its session and its sandbox; its log and its files stay."""
        await self._http.json("POST", conversation_path(conversation_id, "stop"), repeatable=True)
        return await self.conversation(conversation_id)

    async def send(
        self,
        conversation_id: str,
        text: str,
        *,
        images: Sequence[str] = (),
        files: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> Sent:
        """Say something to the agent; it is in the log when this returns. A conversation that does not run is started.

        `text` may be empty where there are `images` (data URLs or web addresses) or `files` (paths in the workspace,
        such as uploads return). With the same `idempotency_key` it is said once.
        """
        args = {"content": text, "image_urls": list(images), "file_urls": list(files)}
        return await self.send_action(conversation_id, "message", args, idempotency_key=idempotency_key)

    async def send_action(
        self, conversation_id: str, action: str, args: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Sent:
        """Send any action that a client may, such as ``run`` with ``{"command": "ls"}``."""
        response = await self._http.request(
            "POST",
            conversation_path(conversation_id, "events"),
            body={"action": action, "args": dict(args)},
            key=idempotency_key or uuid.uuid4().hex,
        )
        event_id = response.headers.get(EVENT_ID_HEADER, "")
        if not event_id.isdigit():
            raise NotDrydockError("The message was taken, but the server does not say as which event.")
        return Sent(id=int(event_id))

    async def pause(self, conversation_id: str) -> Sent:
        """Have the agent stop and what runs be interrupted; one that waits for confirmation goes on waiting."""
        return await self._change_state(conversation_id, "paused")

    async def resume(self, conversation_id: str) -> Sent:
        return await self._change_state(conversation_id, "running")

    async def confirm(self, conversation_id: str, *, accept: bool, remember: bool = False, feedback: str = "") -> Sent:
        """Answer an agent that waits for confirmation.

        With `accept`, `remember` allows everything that comes later, too; without it, the agent reads the `feedback`.
        Any other combination raises `ValueError`.
        """
        if accept and feedback:
            raise ValueError("feedback says why an action is refused: give it with accept=False, or send a message")
        if remember and not accept:
            raise ValueError("remember is for what is accepted: give it with accept=True")
        if feedback:
            return await self.send(conversation_id, feedback)  # a message, while it waits, refuses with these words
        if accept:
            return await self._change_state(conversation_id, "user_confirmed", remember=remember)
        return await self._change_state(conversation_id, "user_rejected")

    async def client_tools(self, conversation_id: str) -> list[dict[str, Any]]:
        answer = await self._http.json("GET", conversation_path(conversation_id, "client-tools"))
        return listed(answer, "client_tools", "A list of tools")

    async def declare_client_tools(self, conversation_id: str, tools: Sequence[Mapping[str, Any]]) -> None:
        """Replace the declared tools: each has a ``name``, a ``description`` and ``parameters``.

        Raises `InvalidError`, whose `field` says which cannot be used, and `ConflictError` for another tool's name.
        """
        body = {"client_tools": [dict(tool) for tool in tools]}
        await self._http.json("PUT", conversation_path(conversation_id, "client-tools"), body=body)

    async def answer_tool_call(
        self,
        conversation_id: str,
        call_id: int,
        content: str | Sequence[Mapping[str, Any]],
        *,
        is_error: bool = False,
    ) -> Sent:
        """Answer a `ToolCall` with a text, or a list of MCP's blocks ``text`` and ``image``; repeating it is harmless.

        Raises `ConflictError` where it was answered otherwise, or nobody waits for it any more.
        """
        args = {"call_id": call_id, "content": content, "is_error": is_error}
        return await self.send_action(conversation_id, "client_tool_result", args)

    async def _change_state(self, conversation_id: str, state: str, *, remember: bool = False) -> Sent:
        args = without_none(agent_state=state, remember=remember or None)
        return await self.send_action(conversation_id, "change_agent_state", args)

    async def event_page(
        self,
        conversation_id: str,
        *,
        after: int = -1,
        before: int | None = None,
        limit: int = 20,
        reverse: bool = False,
    ) -> EventPage:
        """The first `limit` events behind `after` (and before `before`), with `reverse` the last ones, newest first.

        Does not start the conversation.
        """
        query = {
            "start_id": after + 1,
            "end_id": None if before is None else before - 1,
            "limit": limit,
            "reverse": reverse,
        }
        answer = await self._http.json("GET", conversation_path(conversation_id, "events"), query=query)
        events = [read_event(one) for one in listed(answer, "events", "A page of events")]
        return EventPage.model_construct(events=events, has_more=answer.get("has_more") is True)

    async def events(
        self, conversation_id: str, *, after: int = -1, limit: int | None = None, reverse: bool = False
    ) -> AsyncIterator[Event | Unknown]:
        """The log page by page as it is asked for; at most `limit` events. See `event_page`."""
        count, edge = 0, None
        while limit is None or count < limit:
            size = PAGE if limit is None else min(PAGE, limit - count)
            start, end = (after, edge) if reverse else (after if edge is None else edge, None)
            page = await self.event_page(conversation_id, after=start, before=end, limit=size, reverse=reverse)
            for event in page.events:
                count += 1
                edge = edge if event.id is None else event.id
                yield event
            if not page.has_more or edge is None:
                return

    async def trajectory(self, conversation_id: str) -> list[dict[str, Any]]:
        """The whole log in the protocol's own form, for keeping, or for `replay_json` of a new conversation."""
        answer = await self._http.json("GET", conversation_path(conversation_id, "trajectory"))
        return listed(answer, "trajectory", "A trajectory")

    async def state(self, conversation_id: str) -> State | None:
        """The agent's last state in the log, with its `id`; None in a log without one. Does not start anything."""
        async for event in self.events(conversation_id, reverse=True):
            if isinstance(event, State):
                return event
        return None

    def follow(
        self, conversation_id: str, *, after: int = -1, live: bool = False, reconnect_seconds: float = 120.0
    ) -> Following:
        """Follow a conversation: what came after the event `after`, then what happens, as long as it is iterated.

        Each event that the server shows comes once, in order, however often the connection breaks; of the states that
        the agent was in meanwhile only the last is told. It starts a conversation that does not run. A slow reader
        costs a bounded amount of memory, here and at the server.

        With `live` also what is in no log comes: `Status`, `Problem`, text and output on its way, calls for clients,
        `Unknown` and `Connected`; else only `Action`, `Observation` and `State`. The server may be away for
        `reconnect_seconds`, except for the first connection.
        """
        return Following(
            conversation_id,
            Connector(
                lambda position, seen_at, seconds: LiveConnection.open(
                    self._http, conversation_id, position, seen_at, seconds
                ),
                lambda: self.conversation(conversation_id),
                self._followings,
            ),
            after=after,
            live=live,
            reconnect_seconds=reconnect_seconds,
        )

    async def end_followings(self) -> None:
        for following in list(self._followings):
            await following.aclose()

    async def wait(
        self,
        conversation_id: str,
        *,
        until: Collection[str] = RESTING,
        after: int | None = None,
        limit_seconds: float = 600.0,
    ) -> State:
        """Wait until the agent is in one of the states `until`, by default those in which it waits for somebody.

        With `after` only states after that event count, else the present one, too. Raises `LimitError` after
        `limit_seconds`.
        """
        try:
            async with asyncio.timeout(limit_seconds):
                return await self._until(conversation_id, frozenset(until), after)
        except TimeoutError as error:
            states = ", ".join(sorted(until))
            where = f"Conversation {conversation_id} was in none of the states {states} within {limit_seconds:g} s."
            raise LimitError(
                f"{where} {await self._why_it_waits(conversation_id)}".rstrip(),
                fix="Wait again, or pause it.",
            ) from error

    async def _why_it_waits(self, conversation_id: str) -> str:
        try:
            async with asyncio.timeout(_LAST_LOOK_SECONDS):
                return (await self.conversation(conversation_id)).why_it_waits
        except (ClientError, TimeoutError):
            return ""

    async def _until(self, conversation_id: str, states: frozenset[str], after: int | None) -> State:
        start = -1 if after is None else after
        if after is None:
            now = await self.state(conversation_id)
            if now is not None and now.id is not None:
                if now.state in states:
                    return now
                start = now.id
        async with self.follow(conversation_id, after=start) as items:
            async for item in items:
                if not isinstance(item, State) or item.state not in states:
                    continue
                if item.id is not None:
                    return item
                # Told on connecting, without its place: the log knows whether it is from before.
                stored = await self.state(conversation_id)
                if stored is not None and (stored.id or 0) > start and stored.state in states:
                    return stored
        raise AssertionError("unreachable: a following ends by an error or by being closed")


def _id_of(answer: object) -> str:
    conversation_id = answer.get("conversation_id") if isinstance(answer, dict) else None
    if not isinstance(conversation_id, str):
        raise NotDrydockError(f"The server made a conversation without an id: {answer!r:.200}")
    return conversation_id
