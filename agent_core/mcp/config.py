"""Configuration of the servers that an agent may use, and the references in it, such as ``${NAME:-default}``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SerializationInfo, field_serializer, field_validator, model_validator

from agent_core.events.masking import DUMP_MASK, EXPOSE_SECRETS, SENSITIVE_NAME, address_with, secrets_in_address
from agent_core.events.messages import Frozen

_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")


def is_reference(text: str) -> bool:
    """Whether a text holds something to be looked up."""
    return _REFERENCE.search(text) is not None


def names_in(value: Any) -> set[str]:
    """The names that the texts in `value` refer to, at any depth."""
    if isinstance(value, str):
        return {match[1] or match[3] for match in _REFERENCE.finditer(value)}
    if isinstance(value, Mapping):
        return names_in(list(value.values()))
    if isinstance(value, list | tuple):
        return {name for item in value for name in names_in(item)}
    return set()


def expanded(value: Any, values: Mapping[str, str]) -> Any:
    """`value` with the references in its texts (not keys) replaced, once; unknown ones without a default stay."""

    def replacement(match: re.Match[str]) -> str:
        found = values.get(match[1] or match[3])
        return found or (match[2] if match[2] is not None else match[0] if found is None else found)

    if isinstance(value, str):
        return _REFERENCE.sub(replacement, value)
    if isinstance(value, Mapping):
        return {key: expanded(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [expanded(item, values) for item in value]
    return value


_NAMED = re.compile(
    r"(?P<before>(?P<name>-{0,2}[A-Za-z_][\w.-]*)(?:=|:\s*(?:(?:Bearer|Basic|Token)\s+)?))(?P<value>.+)", re.DOTALL
)
_PLACE_OF_SECRET = re.compile(r"(?:file|path|dir|folder)$", re.IGNORECASE)


def arguments_with(args: Sequence[str], change: Callable[[str, str], str]) -> list[str]:
    """A program's arguments with each secret in them as `change` makes it of its place and itself.

    Secrets are what follows a name that tells of one (``--api-key=…``, ``--api-key …``, ``TOKEN=…``,
    ``Authorization: Bearer …``), and those in addresses.
    """
    found: list[str] = []
    is_announced = False
    for number, word in enumerate(args):
        change_here = partial(_changed_at, change, f"args.{number}")
        named = _NAMED.fullmatch(word)
        if is_announced and not word.startswith("-"):
            found.append(change_here("", word))
        elif named is not None and _tells_of_secret(named["name"]):
            found.append(named["before"] + change_here("", named["value"]))
        else:
            found.append(address_with(word, change_here))
        is_announced = word.startswith("-") and named is None and _tells_of_secret(word)
    return found


def _changed_at(change: Callable[[str, str], str], field: str, place: str, secret: str) -> str:
    return change(f"{field}.{place}".rstrip("."), secret)


def _tells_of_secret(name: str) -> bool:
    return bool(SENSITIVE_NAME.search(name)) and not _PLACE_OF_SECRET.search(name)


CONNECT_SECONDS = 30.0
"""Until a server has to have listed its tools, unless its `timeout` says otherwise."""
CALL_SECONDS = 300.0
"""Until a call has to be answered, unless the server's `timeout` says otherwise."""
MAX_SECONDS = 86_400.0

_TRANSPORTS = {"shttp": "http", "streamable-http": "http", "streamable_http": "http", "streamableHttp": "http"}
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_MIN_SECRET = 4

TimeoutSeconds = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]


class McpAuth(Frozen):
    """How the client shows to an HTTP server who it is.

    ``api_key`` sends `key` in a header (``X-API-Key``, or `header`), ``bearer`` sends `token`, ``basic`` sends
    `username` and `password`, ``header`` sends `value` in the header `name`. With ``oauth2``, and with ``none`` where a
    server asks for it, a person signs in at a browser: with ``oauth2`` as the client `client_id` (and `client_secret`)
    that was registered for that by hand, and for the rights in `scope`, where those are given.
    """

    type: Literal["none", "api_key", "bearer", "basic", "header", "oauth2"] = "none"
    key: str = Field(default="", repr=False)
    header: str = "X-API-Key"
    token: str = Field(default="", repr=False)
    username: str = ""
    password: str = Field(default="", repr=False)
    name: str = ""
    value: str = Field(default="", repr=False)

    client_id: str = ""
    client_secret: str = Field(default="", repr=False)
    scope: str = ""

    @field_validator("type", mode="before")
    @classmethod
    def _usual_name(cls, value: Any) -> Any:
        return "oauth2" if value == "oauth" else value

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        needed = {"api_key": ("key",), "bearer": ("token",), "basic": ("username",), "header": ("name", "value")}
        for field in needed.get(self.type, ()):
            if not getattr(self, field):
                raise ValueError(f"{field}: must be given for auth of type {self.type!r}")
        if self.client_secret and not self.client_id:
            raise ValueError("client_id: must be given beside client_secret")
        return self

    @field_serializer("key", "token", "password", "value", "client_secret")
    def _written(self, value: str, info: SerializationInfo) -> str:
        return _shown(value, info)

    @property
    def secrets(self) -> list[str]:
        values = (self.key, self.token, self.password, self.value, self.client_secret)
        return [value for value in values if value]


def _auth(value: Any) -> Any:
    if value in (None, "none"):
        return McpAuth()
    if isinstance(value, Mapping) and DUMP_MASK in value.values():
        return McpAuth()  # written without its secret, which has to be given again
    return {"type": value} if isinstance(value, str) else value


class McpServer(Frozen):
    """One server: a program of this host that is spoken to over its standard input and output, or an address.

    ``$NAME``, ``${NAME}`` and ``${NAME:-default}`` in any text stand for values that are looked up when it is
    connected. Values of headers and variables whose name says that they are secret are masked in JSON.

    Attributes:
        transport: ``stdio``, ``http`` (streamable HTTP; ``shttp`` and ``streamable-http`` mean the same) or ``sse``;
            by default what `command` or `url` says.
        command, args, env, cwd: of a program; it gets `env` and a few harmless variables of this process.
        url, headers, auth: of an address.
        timeout: seconds for connecting (default 30) and for each call (default 300).
        sse_read_timeout: seconds without any event after which a stream of an HTTP server counts as broken (default an
            hour).
        keep_alive: False connects for each call anew.
        enabled: False leaves it out.
        lends_secrets: False looks up no secrets for it, neither in its configuration nor in the arguments of calls.
    """

    url: str | None = Field(default=None, max_length=8192)
    transport: Literal["stdio", "http", "sse"] | None = None
    command: str | None = Field(default=None, min_length=1)
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    cwd: str | None = None
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    auth: Annotated[McpAuth, BeforeValidator(_auth)] = Field(default_factory=McpAuth)
    timeout: TimeoutSeconds | None = None
    sse_read_timeout: TimeoutSeconds | None = None
    keep_alive: bool = True
    enabled: bool = True
    lends_secrets: bool = True
    description: str = ""
    icon: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _other_spellings(cls, data: Any) -> Any:
        """``type`` stands for the transport, ``disabled`` for the opposite of `enabled`."""
        if not isinstance(data, Mapping):
            return data
        values = dict(data)
        if "type" in values and "transport" not in values:
            values["transport"] = values.pop("type")
        if isinstance(values.get("disabled"), bool) and "enabled" not in values:
            values["enabled"] = not values.pop("disabled")
        return values

    @field_validator("transport", mode="before")
    @classmethod
    def _usual_name(cls, value: Any) -> Any:
        return _TRANSPORTS.get(value, value) if isinstance(value, str) else value

    @field_validator("keep_alive", mode="before")
    @classmethod
    def _none_is_the_default(cls, value: Any) -> Any:
        return True if value is None else value

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is None or is_reference(value):
            return value
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https", "ws", "wss") and bool(parts.hostname)
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("must be a complete http or https address, for example https://host/mcp")
        return value

    @field_validator("env", "headers", mode="before")
    @classmethod
    def _masked_is_not_given(cls, value: Any) -> Any:
        """A value that was written without its secret has to be given again."""
        if isinstance(value, Mapping):
            return {name: text for name, text in value.items() if text != DUMP_MASK}
        return value

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if _HEADER_NAME.fullmatch(name) is None:
                raise ValueError(f"{name!r} is no name of a header; use letters, digits and hyphens")
            if "\n" in text or "\r" in text:
                raise ValueError(f"the value of {name!r} must be one line")
        return value

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if (self.url is None) == (self.command is None):
            raise ValueError("give either command (a program of this host) or url (an address), not both")
        if (self.transport == "stdio") != (self.command is not None) and self.transport is not None:
            field = "command" if self.transport == "stdio" else "url"
            raise ValueError(f"transport: {self.transport} needs {field}")
        return self

    @field_serializer("env", "headers")
    def _written(self, value: dict[str, str], info: SerializationInfo) -> dict[str, str]:
        return {name: _shown(text, info) if SENSITIVE_NAME.search(name) else text for name, text in value.items()}

    @property
    def kind(self) -> Literal["stdio", "http", "sse"]:
        return self.transport or ("stdio" if self.command is not None else "http")

    @property
    def may_sign_in(self) -> bool:
        """Whether a person may sign in there: it is an address, and is shown nothing else."""
        has_header = any(name.lower() == "authorization" for name in self.headers)
        return self.url is not None and (self.auth.type == "oauth2" or (self.auth.type == "none" and not has_header))

    @property
    def connect_seconds(self) -> float:
        return self.timeout or CONNECT_SECONDS

    @property
    def call_seconds(self) -> float:
        return self.timeout or CALL_SECONDS

    @property
    def secrets(self) -> list[str]:
        """The values in it that nobody else should see, other than those that are looked up."""
        named = [(name, text) for pairs in (self.env, self.headers) for name, text in pairs.items()]
        found = [text for name, text in named if SENSITIVE_NAME.search(name)] + self.auth.secrets
        found += secrets_in_address(self.url or "")
        arguments_with(self.args, lambda place, secret: found.append(secret) or secret)  # type: ignore[func-returns-value]
        words = [word for text in found for word in (text, text.rpartition(" ")[2])]  # "Bearer …"
        return [word for word in dict.fromkeys(words) if len(word) >= _MIN_SECRET and not is_reference(word)]


def _shown(value: str, info: SerializationInfo) -> str:
    exposed = bool(info.context and info.context.get(EXPOSE_SECRETS))
    return value if exposed or info.mode != "json" or not value or is_reference(value) else DUMP_MASK


def mcp_servers(value: Any) -> Any:
    """The servers of a configuration, by name: the map itself, or the one under ``mcpServers``; a validator."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a map of names to servers, not {type(value).__name__}")
    if "mcpServers" in value:
        if len(value) > 1:
            raise ValueError("has mcpServers and other keys beside it; put all servers into mcpServers")
        return mcp_servers(value["mcpServers"])
    if any(not isinstance(name, str) or not name.strip() for name in value):
        raise ValueError("each server needs a name that is not empty")
    return dict(value)


McpServerMap = Annotated[dict[str, McpServer], BeforeValidator(mcp_servers)]
"""A field with servers by name."""
