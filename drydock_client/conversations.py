"""Making, listing and steering conversations."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from drydock_client.calls import Calls, conversation_path
from drydock_client.errors import NotDrydockError, NotFoundError
from drydock_client.reading import parsed, parsed_list
from drydock_client.results import Conversation, ConversationPage, Port, Rewound

PAGE: Final = 100
"""The most that a server gives at a time."""


class ConversationCalls(Calls):
    """See `client.DrydockClient`."""

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

        Args:
            message: the first one, with which the agent begins to work; without one it waits.
            images: of the first message, as data URLs or web addresses.
            repository: cloned into the workspace: ``owner/name`` or an http(s) address.
            branch: of the repository; by default its own choice.
            git_provider: of the repository, such as ``github``; by default the first whose account has it.
            instructions: for the agent, besides the server's own.
            options: further fields of the request (``agent_options``, ``client_tools``, ``mcp_config``, …).
            idempotency_key: with the same key there is one conversation, however often this is called.

        Raises:
            InvalidError: a field is wrong; `field` says which.
            KeyRefusedError: the server's key or the model's is missing, or the repository is out of reach.
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
        wish = {name: value for name, value in body.items() if value is not None}
        key = idempotency_key or uuid.uuid4().hex
        return await self._made(await self._http.json("POST", "/api/conversations", body=wish, key=key))

    async def import_conversation(
        self, trajectory: Sequence[Mapping[str, Any]], *, title: str | None = None, idempotency_key: str | None = None
    ) -> Conversation:
        """Make a stopped conversation of a recorded one, such as `trajectory` returns: shown as it was, not done again.

        Args:
            trajectory: its events in the protocol's own form, also of a first-generation server.
            title: by default the beginning of its first message.
            idempotency_key: with the same key there is one conversation, however often this is called.

        Raises:
            InvalidError: an event cannot be kept; the message names its place and the field.
        """
        body: dict[str, Any] = {"trajectory": list(trajectory)} | ({} if title is None else {"title": title})
        key = idempotency_key or uuid.uuid4().hex
        return await self._made(await self._http.json("POST", "/api/conversations/import", body=body, key=key))

    async def fork(
        self,
        conversation_id: str,
        *,
        event_id: int | None = None,
        reset_metrics: bool = True,
        copy_files: bool = True,
        idempotency_key: str | None = None,
    ) -> Conversation:
        """Make a stopped conversation that begins as this one did, up to an event (by default all of it).

        Args:
            conversation_id: which; it is left as it is.
            event_id: the last event that the new one has.
            reset_metrics: whether its costs begin at nothing.
            copy_files: whether it has the files, too, as they were then.
            idempotency_key: with the same key there is one fork, however often this is called.

        Raises:
            InvalidError: there is no such event.
        """
        body = {"event_id": event_id, "reset_metrics": reset_metrics, "copy_files": copy_files}
        key = idempotency_key or uuid.uuid4().hex
        path = conversation_path(conversation_id, "fork")
        return await self._made(await self._http.json("POST", path, body=body, key=key))

    async def rewind(self, conversation_id: str, event_id: int | None) -> Rewound:
        """Take it back to right behind an event, or (None) before its first one; its files go back where they can.

        Raises:
            InvalidError: there is no such event.
        """
        path = conversation_path(conversation_id, "rewind")
        return parsed(Rewound, await self._http.json("POST", path, body={"event_id": event_id}))

    async def ports(self, conversation_id: str) -> list[Port]:
        """What listens in its sandbox, lowest port first, with previews; nothing while it does not run."""
        answer = await self._http.json("GET", conversation_path(conversation_id, "ports"))
        return parsed_list(Port, answer.get("ports") if isinstance(answer, dict) else None)

    async def _made(self, answer: object) -> Conversation:
        made = answer.get("conversation_id") if isinstance(answer, dict) else None
        if not isinstance(made, str):
            raise NotDrydockError(f"The server made a conversation without an id: {answer!r:.200}")
        return await self.conversation(made)

    async def conversation(self, conversation_id: str) -> Conversation:
        """The facts of a conversation.

        Raises:
            NotFoundError: there is none of this id.
        """
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
    ) -> ConversationPage:
        """One page of the conversations, newest first; `page_id` is the `next_page_id` of the page before."""
        query = {
            "limit": limit,
            "page_id": page_id,
            "selected_repository": repository,
            "conversation_trigger": trigger,
        }
        return parsed(ConversationPage, await self._http.json("GET", "/api/conversations", query=query))

    async def conversations(
        self, *, repository: str | None = None, trigger: str | None = None, page_size: int = PAGE
    ) -> AsyncIterator[Conversation]:
        """All conversations, newest first, page by page as they are asked for."""
        page_id: str | None = None
        while True:
            page = await self.conversation_page(
                limit=page_size, page_id=page_id, repository=repository, trigger=trigger
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
        """See to it that it runs; returns once its log is open, while its sandbox may still be starting."""
        await self._http.json("POST", conversation_path(conversation_id, "start"), body={}, repeatable=True)
        return await self.conversation(conversation_id)

    async def stop(self, conversation_id: str) -> Conversation:
        """End its session and its sandbox; its log and its files stay."""
        await self._http.json("POST", conversation_path(conversation_id, "stop"), repeatable=True)
        return await self.conversation(conversation_id)
