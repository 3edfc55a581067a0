"""`McpConfig`: MCP servers as the protocol configures them, in three lists; and what an agent is given of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
)

from agent_core.errors import DrydockError
from agent_core.events.masking import address_with
from agent_core.mcp.config import McpServer, arguments_with, is_reference
from agent_core.mcp.servers import McpRules
from agent_core.skills.skill import SKILL_LEVELS, SkillLevel
from server.settings.text_fields import OneLine, SettingText, from_json, shown_address, whole_address

HIDDEN = "**********"
"""What clients are shown in the place of a stored secret, and may send back for it."""

MAX_SERVERS: Final = 400
"""Of one kind: all are compared with all."""

_SCHEMES: Final = ("http", "https", "ws", "wss")
_ADDRESSES: Final = ("sse_servers", "shttp_servers")


def hidden_address(address: str) -> str:
    """The address with `HIDDEN` in the place of each secret in it."""
    return address_with(address, lambda place, secret: secret if is_reference(secret) else HIDDEN)


class HiddenSecretError(DrydockError, ValueError):
    """`HIDDEN` was sent for a secret that is not stored; the message names the place and the fix."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


def _server_url(value: str) -> str:
    return whole_address(value, _SCHEMES, "https://host/mcp")


def _as_object(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


class McpOAuthClient(_Strict):
    """A client that was registered by hand where an MCP server's users sign in; `scope` has the rights to ask for."""

    client_id: OneLine
    client_secret: OneLine | None = None
    scope: OneLine | None = None


class SseServer(_Strict):
    """An MCP server reached by server-sent events; `oauth` says as what client its users sign in (an addition)."""

    url: SettingText
    api_key: OneLine | None = None
    oauth: McpOAuthClient | None = None

    _check_url = field_validator("url")(_server_url)

    @model_serializer(mode="wrap")
    def _without_empty_addition(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if name != "oauth" or value is not None}


class ShttpServer(SseServer):
    """An MCP server reached by streamable HTTP; `timeout` is in seconds, for connecting and for each call."""

    timeout: int | None = Field(60, ge=1, le=3600)


class StdioServer(_Strict):
    """An MCP server that is a program; where it runs is the server's to say (setting `mcp_programs`)."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=100)
    command: SettingText = Field(pattern=r"^\S+$")
    args: list[SettingText] = Field(default_factory=list)
    env: dict[str, SettingText] = Field(default_factory=dict)


class McpConfig(_Strict):
    """The MCP servers of a user, of a conversation, or of the whole server."""

    sse_servers: list[Annotated[SseServer, BeforeValidator(_as_object)]] = Field(default_factory=list)
    stdio_servers: list[StdioServer] = Field(default_factory=list)
    shttp_servers: list[Annotated[ShttpServer, BeforeValidator(_as_object)]] = Field(default_factory=list)

    @field_validator("sse_servers", "stdio_servers", "shttp_servers", mode="before")
    @classmethod
    def _are_few(cls, value: object) -> object:
        if isinstance(value, list) and len(value) > MAX_SERVERS:
            raise ValueError(f"there are {len(value)} servers; configure {MAX_SERVERS} at most")
        return value

    @field_validator("sse_servers", "stdio_servers", "shttp_servers")
    @classmethod
    def _are_distinct(cls, value: list[Any]) -> list[Any]:
        seen: set[str] = set()
        for one in value:
            identity = one.name if isinstance(one, StdioServer) else one.url
            if identity in seen:
                raise ValueError(
                    f"two servers are {shown_address(identity)!r}; leave one out, or give it another name or URL"
                )
            seen.add(identity)
        return value

    def followed_by(self, other: McpConfig) -> McpConfig:
        """These servers and then those of `other` that are not among them (by name, or by URL)."""
        return McpConfig(
            sse_servers=_joined(self.sse_servers, other.sse_servers, "url"),
            stdio_servers=_joined(self.stdio_servers, other.stdio_servers, "name"),
            shttp_servers=_joined(self.shttp_servers, other.shttp_servers, "url"),
        )

    def without_secrets(self) -> Self:
        return self._changed(lambda place, secret: "")

    def hidden(self) -> Self:
        """The same servers with `HIDDEN` for each key, each variable's value, each secret in addresses and arguments.

        References (``$NAME``) stay.
        """
        return self._changed(lambda place, secret: secret if is_reference(secret) else HIDDEN)

    def restored(self, stored: McpConfig, *, follows: bool = False) -> Self:
        """The same servers with what is `stored` for the same server (by name, or by URL) wherever `HIDDEN` stands.

        With `follows`, for who edits the stored ones themselves, secrets go along with a server that got another name,
        address or kind, and with a variable that got another name, as long as it can be only that one; but none that
        was sent encrypted is sent in the clear. Otherwise a key goes to no other address than the one it was entered
        for. Where nothing is stored it raises `HiddenSecretError`.
        """
        known = _secrets_by_place(stored)
        former = _Moves(self, stored) if follows else None

        def look_up(place: _Place, secret: str) -> str:
            found = known.get(place.identity) if secret == HIDDEN else secret
            if found is None and former is not None and (before := former.place(place)) is not None:
                found = known.get(before)
            if found is None:
                raise HiddenSecretError(
                    f"mcp_config.{place.kind}.{place.number}.{place.field}: {HIDDEN} stands for a stored secret, and "
                    "none is stored for this server; send the secret itself"
                )
            return found

        return self._changed(look_up)

    def identities(self, kind: str) -> list[str]:
        """The names of the servers of a kind, or their URLs as clients are shown them."""
        return [one.name if isinstance(one, StdioServer) else hidden_address(one.url) for one in getattr(self, kind)]

    def but_for(self, own: McpConfig) -> McpConfig:
        """These servers without those that a client was shown of the whole server's `own`."""
        shown = own.without_secrets()
        return McpConfig(
            sse_servers=[one for one in self.sse_servers if one not in shown.sse_servers],
            stdio_servers=[one for one in self.stdio_servers if one not in shown.stdio_servers],
            shttp_servers=[one for one in self.shttp_servers if one not in shown.shttp_servers],
        )

    def _changed(self, change: Callable[[_Place, str], str]) -> Self:
        """A copy with each secret as `change` makes it."""

        def address(place: _Place, one: SseServer) -> SseServer:
            named = place._replace(server=hidden_address(one.url))
            key = change(named._replace(field="api_key"), one.api_key) if one.api_key else ""
            oauth = one.oauth
            if oauth is not None and oauth.client_secret:
                secret = change(named._replace(field="oauth.client_secret"), oauth.client_secret) or None
                oauth = oauth.model_copy(update={"client_secret": secret})
            url = address_with(one.url, lambda part, secret: change(named._replace(field=f"url.{part}"), secret))
            return one.model_copy(update={"url": url, "api_key": key or None, "oauth": oauth})

        def program(place: _Place, one: StdioServer) -> StdioServer:
            named = place._replace(server=one.name)
            env = {
                name: value and change(named._replace(field=f"env.{name}"), value) for name, value in one.env.items()
            }
            args = arguments_with(one.args, lambda part, secret: change(named._replace(field=part), secret))
            return one.model_copy(update={"env": env, "args": args})

        update: dict[str, list[Any]] = {
            kind: [make(_Place(kind, number), one) for number, one in enumerate(getattr(self, kind))]
            for kind, make in (("sse_servers", address), ("stdio_servers", program), ("shttp_servers", address))
        }
        return self.model_copy(update=update)


def _programs(value: object) -> object:
    """What this setting was once: whether there may be programs."""
    word = str(value).lower() if isinstance(value, bool | str) else ""
    return {"true": "sandbox", "false": "never"}.get(word, value)


Programs = Annotated[Literal["sandbox", "host", "never"], BeforeValidator(_programs)]
OptionalServers = Annotated[McpConfig | None, BeforeValidator(from_json)]


class _Place(NamedTuple):
    """Where in a configuration a secret stands."""

    kind: str
    number: int
    server: str = ""
    field: str = ""

    @property
    def identity(self) -> _Identity:
        return (self.kind, self.server, self.field)


_Identity = tuple[str, str, str]


def _secrets_by_place(config: McpConfig) -> dict[_Identity, str]:
    known: dict[_Identity, str] = {}

    def note(place: _Place, secret: str) -> str:
        known[place.identity] = secret
        return secret

    config._changed(note)
    return known


class _Moves:
    """Which stored places became which others in an edited configuration, where only one can have become one."""

    def __init__(self, edited: McpConfig, stored: McpConfig) -> None:
        now = _secrets_by_place(edited)
        before = {place: secret for place, secret in _secrets_by_place(stored).items() if not is_reference(secret)}
        self._servers: dict[tuple[str, str], tuple[str, str]] = {}
        hidden = [place for place, secret in now.items() if secret == HIDDEN and place not in before]
        there = {(kind, one) for kind in McpConfig.model_fields for one in edited.identities(kind)}
        left = list(dict.fromkeys(place[:2] for place in before if place[:2] not in there))
        new = [one for one in dict.fromkeys(place[:2] for place in hidden) if one not in {p[:2] for p in before}]
        for one in new:
            kinds = _ADDRESSES if one[0] in _ADDRESSES else (one[0],)
            same = [old for old in left if old[1] == one[1] and old[0] in kinds]  # sent by another protocol now
            rivals = [other for other in new if other[0] == one[0]]
            found = same or ([old for old in left if old[0] == one[0]] if len(rivals) == 1 else [])
            if len(found) == 1 and not _is_in_the_clear(found[0][1], one[1]):
                self._servers[one] = found[0]
        self._before = before
        self._now = now
        self._hidden = hidden

    def place(self, place: _Place) -> _Identity | None:
        """Where this secret was stored; None: that cannot be told."""
        kind, server = self._servers.get((place.kind, place.server), (place.kind, place.server))
        if (same := (kind, server, place.field)) in self._before:
            return same
        left = [
            one
            for one in self._before
            if one[:2] == (kind, server) and (place.kind, place.server, one[2]) not in self._now
        ]
        new = [
            one
            for one in self._hidden
            if one[:2] == (place.kind, place.server) and (kind, server, one[2]) not in self._before
        ]
        return left[0] if len(left) == len(new) == 1 else None


def _is_in_the_clear(before: str, now: str) -> bool:
    encrypted = ("https://", "wss://")
    return before.startswith(encrypted) and not now.startswith(encrypted)


class AgentServers(NamedTuple):
    """MCP servers of an agent: the servers by name, and what they may do."""

    servers: dict[str, McpServer]
    rules: McpRules

    @property
    def secrets(self) -> list[str]:
        """The values in them that nobody else should see."""
        return [value for server in self.servers.values() for value in server.secrets]


def read_config(stored: Mapping[str, Any] | None) -> McpConfig:
    """A stored configuration; what is of another form than today's is left out of it."""
    try:
        return McpConfig.model_validate(stored or {})
    except ValidationError:
        found = McpConfig()
    for kind in McpConfig.model_fields:
        servers = stored.get(kind) if stored is not None else None
        for server in servers if isinstance(servers, list) else []:
            with suppress(ValidationError):
                found = found.followed_by(McpConfig.model_validate({kind: [server]}))
    return found


_REFUSED_LEVELS: Final[dict[str, frozenset[SkillLevel]]] = {
    "sandbox": frozenset(),
    "host": frozenset({"plugin"}),  # nothing of a plugin runs outside of a sandbox
    "never": frozenset(SKILL_LEVELS),
}
"""Skills from where may bring no programs, by the place where programs run."""


def agent_servers(
    own: McpConfig | None, users: McpConfig, *, programs: Literal["sandbox", "host", "never"] = "sandbox"
) -> AgentServers:
    """The servers of the whole server and then the user's, as an agent takes them.

    `programs` says where programs run; with ``never`` those of the user are left out, with a word about it. References
    to variables are not looked up in this process's environment: it has secrets of others.
    """
    first = own or McpConfig()
    servers: dict[str, McpServer] = {}
    refused: set[str] = set()
    every = first.followed_by(users)
    own_programs = {one.name for one in first.stdio_servers}
    for program in every.stdio_servers:
        servers[program.name] = McpServer(command=program.command, args=program.args, env=program.env)
        if programs == "never" and program.name not in own_programs:
            refused.add(program.name)
    for transport, addresses in (("sse", every.sse_servers), ("http", every.shttp_servers)):
        for address in addresses:
            name = _unused(shown_address(address.url), servers)
            values: dict[str, Any] = {"url": address.url, "transport": transport}
            values["timeout"] = getattr(address, "timeout", None)
            if address.api_key:
                values["auth"] = {"type": "bearer", "token": address.api_key}
            elif address.oauth is not None:
                values["auth"] = {"type": "oauth2", **address.oauth.model_dump(exclude_none=True)}
            servers[name] = McpServer.model_validate(values)
    where: Literal["sandbox", "host"] = "host" if programs == "host" else "sandbox"
    rules = McpRules(
        environment={},
        refused_programs=frozenset(refused),
        refused_levels=_REFUSED_LEVELS[programs],
        programs=where,
    )
    return AgentServers(servers, rules)


def _joined(first: Iterable[Any], second: Iterable[Any], identity: str) -> list[Any]:
    found: dict[str, Any] = {}
    for one in (*first, *second):
        found.setdefault(getattr(one, identity), one)
    return list(found.values())[:MAX_SERVERS]


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    others = (f"{name} ({number})" for number in range(2, len(taken) + 3))
    return next(one for one in (name, *others) if one not in taken)
