"""Addresses that the server tells what happens in conversations, for programs that do not stay connected."""

from __future__ import annotations

from collections.abc import Sequence

from drydock_client.calls import Calls
from drydock_client.errors import NotDrydockError, NotFoundError
from drydock_client.http import segment
from drydock_client.reading import parsed, parsed_list
from drydock_client.results import NewWebhook, Webhook


class WebhooksApi(Calls):
    """The user's webhooks. What they send is signed as Standard Webhooks says, whose libraries check it.

    Errors: `NotFoundError` where there is no webhook of this id, `InvalidError` for an address or a type of events that
    cannot be.
    """

    async def list(self) -> list[Webhook]:
        """All of them, oldest first; their secrets are never told again."""
        answer = await self._http.json("GET", "/api/webhooks")
        if not isinstance(answer, dict):
            raise NotDrydockError(f"A list of webhooks has another form than it should: {answer!r:.200}")
        return parsed_list(Webhook, answer.get("results"))

    async def create(
        self, url: str, *, events: Sequence[str] = (), conversation_id: str | None = None, secret: str | None = None
    ) -> NewWebhook:
        """Have an address told of what is stored from now on; the result alone has the secret.

        Args:
            url: where events are sent, by POST.
            events: the types of events to send, such as ``agent_state_changed``; all by default.
            conversation_id: the only conversation to tell of; by default all of the user's.
            secret: signs what is sent; by default the server makes one.

        Raises:
            ConflictError: there are too many already.
        """
        body = {"url": url, "events": [*events], "conversation_id": conversation_id, "secret": secret}
        given = {name: value for name, value in body.items() if value is not None}
        return parsed(NewWebhook, await self._http.json("POST", "/api/webhooks", body=given))

    async def get(self, webhook_id: str) -> Webhook:
        """One of them, and how it fares."""
        return parsed(Webhook, await self._http.json("GET", _path(webhook_id)))

    async def change(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        events: Sequence[str] | None = None,
        secret: str | None = None,
        active: bool | None = None,
    ) -> Webhook:
        """Change it; what is not given stays. One that is made active goes on where its receiver was."""
        body = {"url": url, "events": None if events is None else [*events], "secret": secret, "active": active}
        given = {name: value for name, value in body.items() if value is not None}
        return parsed(Webhook, await self._http.json("PATCH", _path(webhook_id), body=given, repeatable=True))

    async def replay(self, webhook_id: str, conversation_id: str, *, after: int = -1) -> None:
        """Send what a conversation's log has behind the event `after` once more, for a receiver that has lost it."""
        body = {"conversation_id": conversation_id, "after_event_id": after}
        await self._http.json("POST", f"{_path(webhook_id)}/replay", body=body, repeatable=True)

    async def delete(self, webhook_id: str) -> bool:
        """Send it nothing more; False when there was none of this id."""
        try:
            await self._http.json("DELETE", _path(webhook_id))
        except NotFoundError:
            return False
        return True


def _path(webhook_id: str) -> str:
    return f"/api/webhooks/{segment(webhook_id)}"
