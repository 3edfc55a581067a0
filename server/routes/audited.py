"""`AUDITED`: which requests the audit log tells of, and what it says of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson
from fastapi import Request
from starlette.responses import Response

from server.auth.audit import ACTOR, Actor, AuditEntry
from server.dependencies import services_of
from server.errors import SENT
from server.settings.mcp_config import hidden_address

Handle = Callable[[Request], Awaitable[Response]]


class Audited(NamedTuple):
    """What is recorded of a request: its action, and the kind of thing that it is about.

    `name` is the parameter of the path, or the field of the body, that names the thing; of the fields `shown` the value
    is in the record, without what may be secret in an address, of all others the name. `answers`: the record is made
    behind what was done, with the id that this field of the answer has; else it is stored with the change.
    """

    action: str
    kind: str
    name: str = ""
    shown: tuple[str, ...] = ()
    answers: str = ""
    always: bool = False
    """Also where the change says that it was none: what it answers has another meaning."""

    async def recorded(self, request: Request, handle: Handle) -> Response:
        """The answer of `handle`, with its record."""
        audit = services_of(request).database.audit
        if self.answers:
            response = await handle(request)
            if response.status_code < 300:
                body = orjson.loads(bytes(response.body))
                await audit.record(self.action, (self.kind, str(body.get(self.answers, ""))))
            return response
        actor = ACTOR.get()
        async with audit.carried(lambda: self._entry(request, actor), always=self.always):
            return await handle(request)

    def _entry(self, request: Request, actor: Actor) -> AuditEntry:
        sent = request.scope.get(SENT)
        fields: Mapping[str, Any] = sent if isinstance(sent, dict) else {}
        target = request.path_params.get(self.name) or fields.get(self.name, "")
        details: dict[str, Any] = {"fields": sorted(fields)} if fields else {}
        details |= {name: _shown(fields[name]) for name in self.shown if name in fields}
        return AuditEntry(self.action, actor, (self.kind, str(target)), details)


def _shown(value: Any) -> Any:
    return hidden_address(value) if isinstance(value, str) and "://" in value else value


AUDITED: Final[Mapping[tuple[str, str], Audited]] = {
    ("POST", "/api/settings"): Audited("settings.changed", "settings"),
    ("POST", "/api/secrets"): Audited("secret.created", "secret", "name"),
    ("PUT", "/api/secrets/{secret_id}"): Audited("secret.changed", "secret", "secret_id"),
    ("DELETE", "/api/secrets/{secret_id}"): Audited("secret.deleted", "secret", "secret_id"),
    ("POST", "/api/add-git-providers"): Audited("git_tokens.changed", "settings"),
    ("POST", "/api/unset-provider-tokens"): Audited("git_tokens.deleted", "settings"),
    ("PUT", "/api/llm-profiles/{name}"): Audited("llm_profile.stored", "llm_profile", "name"),
    ("DELETE", "/api/llm-profiles/{name}"): Audited("llm_profile.deleted", "llm_profile", "name"),
    ("PUT", "/api/skills/{skill_name}"): Audited("skill.stored", "skill", "skill_name", always=True),
    ("PATCH", "/api/skills/{skill_name}"): Audited("skill.switched", "skill", "skill_name", ("enabled",)),
    ("DELETE", "/api/skills/{skill_name}"): Audited("skill.deleted", "skill", "skill_name"),
    ("POST", "/api/plugins"): Audited("plugin.installed", "plugin", shown=("source",)),
    ("POST", "/api/plugins/{plugin_name}/update"): Audited("plugin.updated", "plugin", "plugin_name"),
    ("PATCH", "/api/plugins/{plugin_name}"): Audited("plugin.switched", "plugin", "plugin_name", ("enabled",)),
    ("DELETE", "/api/plugins/{plugin_name}"): Audited("plugin.removed", "plugin", "plugin_name"),
    ("POST", "/api/webhooks"): Audited("webhook.created", "webhook", shown=("url",)),
    ("PATCH", "/api/webhooks/{webhook_id}"): Audited("webhook.changed", "webhook", "webhook_id", ("url",)),
    ("DELETE", "/api/webhooks/{webhook_id}"): Audited("webhook.deleted", "webhook", "webhook_id"),
    ("POST", "/api/webhooks/{webhook_id}/replay"): Audited("webhook.replayed", "webhook", "webhook_id", always=True),
    ("POST", "/api/mcp-sign-ins/{sign_in_id}"): Audited("mcp_sign_in.begun", "mcp_sign_in", "sign_in_id", always=True),
    ("DELETE", "/api/mcp-sign-ins/{sign_in_id}"): Audited("mcp_sign_in.ended", "mcp_sign_in", "sign_in_id"),
    ("PATCH", "/api/docker-hosts/{name}"): Audited("docker_host.drained", "docker_host", "name", ("draining",)),
    ("POST", "/api/auth/link/use"): Audited("link.used", "user", "name"),
    ("POST", "/api/auth/sign-out"): Audited("sign_in.ended", "sign_in"),
    ("POST", "/api/auth/password"): Audited("password.changed", "user"),
    ("POST", "/api/auth/tokens"): Audited("token.created", "token", "name", ("scopes",)),
    ("DELETE", "/api/auth/tokens/{token_id}"): Audited("token.revoked", "token", "token_id"),
    ("DELETE", "/api/auth/sign-ins/{sign_in_id}"): Audited("sign_in.ended", "sign_in", "sign_in_id"),
    ("POST", "/api/admin/users"): Audited("user.added", "user", "name", ("role",)),
    ("PATCH", "/api/admin/users/{name}"): Audited("user.changed", "user", "name", ("role", "disabled")),
    ("POST", "/api/admin/users/{name}/reset"): Audited("user.reset", "user", "name"),
    ("POST", "/api/admin/invitations"): Audited("user.invited", "user", shown=("role",)),
    ("POST", "/api/conversations/{conversation_id}/shares"): Audited(
        "share.created", "conversation", "conversation_id", ("access", "user", "expires_in")
    ),
    ("DELETE", "/api/conversations/{conversation_id}/shares/{share_id}"): Audited("share.ended", "share", "share_id"),
    ("POST", "/api/shared"): Audited("share.opened", "share"),
    ("POST", "/api/conversations/import"): Audited("conversation.imported", "conversation", answers="conversation_id"),
    ("POST", "/api/conversations/import/archive"): Audited(
        "conversation.imported", "conversation", answers="conversation_id"
    ),
}
"""By method and path. What else changes something is in the log of its conversation, or in none: a test has each."""
