"""What a program says in a conversation."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from drydock_client.calls import Calls, conversation_path
from drydock_client.errors import NotDrydockError
from drydock_client.results import Sent

EVENT_ID_HEADER: Final = "X-Event-Id"


class SayingCalls(Calls):
    """See `client.DrydockClient`."""

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

        Args:
            conversation_id: which.
            text: what; may be empty where there are images or files.
            images: data URLs or web addresses.
            files: paths of files in its workspace, such as uploads return.
            idempotency_key: with the same key it is said once, however often this is called.
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
        """Have the agent stop after what it is doing, and whatever runs be interrupted.

        An agent that waits for confirmation goes on waiting: `confirm` answers it.
        """
        return await self._change_state(conversation_id, "paused")

    async def resume(self, conversation_id: str) -> Sent:
        """Have the agent go on."""
        return await self._change_state(conversation_id, "running")

    async def confirm(self, conversation_id: str, *, accept: bool, remember: bool = False, feedback: str = "") -> Sent:
        """Answer an agent that waits for confirmation.

        Args:
            conversation_id: which.
            accept: whether what waits may be done.
            remember: with it, everything that comes later in this conversation may, too.
            feedback: without it, why not; the agent reads it.

        Raises:
            ValueError: `remember` goes with accepting, `feedback` with refusing.
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
        """The tools that clients of the conversation carry out (`ToolCall`), as they were declared."""
        answer = await self._http.json("GET", conversation_path(conversation_id, "client-tools"))
        found = answer.get("client_tools") if isinstance(answer, dict) else None
        if not isinstance(found, list):
            raise NotDrydockError(f"A list of tools has another form than it should: {answer!r:.200}")
        return found

    async def declare_client_tools(self, conversation_id: str, tools: Sequence[Mapping[str, Any]]) -> None:
        """Declare these in place of all that were: each has a ``name``, a ``description`` and ``parameters``.

        Raises:
            InvalidError: one of them cannot be used; `field` says which.
            ConflictError: another tool of the agent has that name.
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
        """Say what came of a `ToolCall`; saying the same again is harmless.

        Args:
            conversation_id: which.
            call_id: of the call.
            content: a text, or a list of MCP's blocks ``text`` and ``image``.
            is_error: whether it failed.

        Raises:
            ConflictError: it was answered otherwise, or nobody waits for it any more.
        """
        args = {"call_id": call_id, "content": content, "is_error": is_error}
        return await self.send_action(conversation_id, "client_tool_result", args)

    async def _change_state(self, conversation_id: str, state: str, *, remember: bool = False) -> Sent:
        args = {"agent_state": state, **({"remember": True} if remember else {})}
        return await self.send_action(conversation_id, "change_agent_state", args)
