"""Tools of servers as the agent has them: their arguments against the server's schema, and results as observations."""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, ValidationError

from agent_core.bounded_regex import does_match
from agent_core.errors import DrydockError, ToolError
from agent_core.events.messages import ImageContent, TextContent
from agent_core.events.plain_text import one_line
from agent_core.events.schema import Action, Observation, types_of
from agent_core.events.schema import problems_in as problems_in
from agent_core.mcp.config import expanded, is_reference, names_in
from agent_core.tools.context import ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.spec import DeclaredResources, ToolAnnotations
from agent_core.tools.truncation import maybe_truncate

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock
    from mcp.types import Tool as RemoteTool

MAX_SCHEMA_CHARS = 200_000
MAX_PROBLEMS = 5
JUDGING_SECONDS = 0.5
_MAX_SHOWN_CHARS = 200
_ABOUT_THE_TEXT = frozenset({"pattern", "format", "minLength", "maxLength", "enum", "const"})

_BY_NAMES = ("patternProperties", "additionalProperties", "unevaluatedProperties")
_ends: ContextVar[float] = ContextVar("_ends", default=inf)


def parameters_from(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments as models are offered it; raises `ValueError` unless it describes an object."""
    if schema.get("type", "object") != "object":
        raise ValueError(f"its inputSchema describes a value of type {schema['type']!r}, not an object")
    if len(text := json.dumps(dict(schema))) > MAX_SCHEMA_CHARS:
        raise ValueError(f"its inputSchema has {len(text)} characters; at most {MAX_SCHEMA_CHARS} are taken")
    properties = schema.get("properties") or {}
    if not isinstance(properties, Mapping):
        raise ValueError("the properties in its inputSchema are no object")
    whole: dict[str, Any] = {**schema, "type": "object", "properties": dict(properties)}
    _validator(json.dumps(whole, sort_keys=True))
    return whole


def problems_of(parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """What is wrong with `arguments`, each with its place; values, which may be long or secret, are not repeated.

    Of a text that refers to a secret only its type is judged. What cannot be judged here, or not within
    `JUDGING_SECONDS`, is left to the server.
    """
    # Lazy: its specifications take time to load, and only conversations with such servers need them.
    from referencing.exceptions import Unresolvable

    validator = _validator(json.dumps(parameters, sort_keys=True))
    found: list[str] = []
    ends = _ends.set(time.monotonic() + JUDGING_SECONDS)
    try:
        for error in validator.iter_errors(dict(arguments)):
            if error.validator in _ABOUT_THE_TEXT and isinstance(error.instance, str) and is_reference(error.instance):
                continue
            found.append(_in_words(error))
            if len(found) == MAX_PROBLEMS:
                break
    except (ValueError, TimeoutError, Unresolvable, RecursionError):
        return found
    finally:
        _ends.reset(ends)
    return found


def _in_words(error: Any) -> str:
    place = ".".join(str(part) for part in error.absolute_path) or "arguments"
    expected = json.dumps(error.validator_value, ensure_ascii=False, default=str)
    shown = expected if len(expected) <= _MAX_SHOWN_CHARS else f"{expected[:_MAX_SHOWN_CHARS]}…"
    match error.validator:
        case "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            return f"{place}: {missing} must be given"
        case "additionalProperties" | "unevaluatedProperties":
            known = sorted(error.schema.get("properties", {}))
            return f"{place}: there is an argument that the tool does not know; it knows {known}"
        case "type":
            return f"{place}: must be of type {shown}"
        case "enum":
            return f"{place}: must be one of {shown}"
        case _:
            return f"{place}: does not fit {error.validator} {shown}"


@lru_cache(maxsize=256)
def _validator(schema_text: str) -> Any:
    # Lazy for the reason given above.
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, extend, validator_for
    from referencing import Registry

    schema = json.loads(schema_text)
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema, format_checker=None)  # patterns may be in another dialect than Python's
    except SchemaError as error:
        place = ".".join(str(part) for part in error.absolute_path) or "its root"
        raise ValueError(f"its inputSchema is no valid JSON schema: at {place}: {error.message[:200]}") from None
    except RecursionError:
        raise ValueError("its inputSchema is nested too deeply") from None
    keywords = {name: _in_time(judge) for name, judge in kind.VALIDATORS.items()} | {"pattern": _in_time(_pattern)}
    if "patternProperties" in schema_text:  # they would be matched without a limit
        keywords |= dict.fromkeys(_BY_NAMES, lambda *_: ())
    return extend(kind, keywords)(schema, registry=Registry())  # an empty registry: nothing is ever fetched


def _in_time(judge: Callable[..., Iterable[Any] | None]) -> Callable[..., Iterable[Any] | None]:
    """A keyword of JSON schema that raises `TimeoutError` when the time for a call's arguments is over."""

    def judged(*what: Any) -> Iterable[Any] | None:
        if time.monotonic() > _ends.get():
            raise TimeoutError
        return judge(*what)

    return judged


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if validator.is_type(instance, "string") and not does_match(pattern, instance, "search"):
        yield ValidationError("does not match")


MAX_TEXT_CHARS = 30_000
MAX_IMAGES = 10
MAX_IMAGE_BYTES = 5 * 1024 * 1024
_BEGINNINGS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
"""How images begin, whatever type a server says they have: providers refuse one whose type is wrong."""
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


class MCPToolObservation(Observation):
    """The result of a call of a remote tool. The first text of its content names the tool that was executed."""

    name: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)

    def to_result(self) -> dict[str, Any]:
        """The result in the form in which the protocol's servers give it, less what was left out of it."""
        blocks: list[dict[str, Any]] = []
        for part in self.content[1:]:
            if isinstance(part, TextContent):
                blocks.append({"type": "text", "text": part.text})
                continue
            for url in part.image_urls:
                match = _DATA_URL.fullmatch(url)
                blocks.append(
                    {"type": "image", "data": match[2], "mimeType": match[1]}
                    if match
                    else {"type": "text", "text": url}
                )
        return {"content": blocks, "isError": self.is_error}


def observation_of(name: str, arguments: Mapping[str, Any], result: CallToolResult) -> MCPToolObservation:
    """The observation for a server's answer to a call."""
    parts = [part for block in result.content for part in _parts_of(block)]
    if not result.content and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    texts = [part for part in parts if isinstance(part, str)]
    images = [part for part in parts if isinstance(part, ImageContent)]
    if len(images) > MAX_IMAGES:
        texts.append(f"[{len(images) - MAX_IMAGES} of {len(images)} images were left out.]")
    if sum(map(len, texts)) > MAX_TEXT_CHARS:
        texts = [maybe_truncate("\n".join(texts), MAX_TEXT_CHARS)]
    return MCPToolObservation(
        content=[
            TextContent(text=f"[Tool '{name}' executed.]"),
            *(TextContent(text=text) for text in texts),
            *images[:MAX_IMAGES],
        ],
        is_error=bool(result.is_error),
        name=name,
        arguments=dict(arguments),
    )


def failed_observation(name: str, arguments: Mapping[str, Any], text: str) -> MCPToolObservation:
    """The observation for a call that the server could not answer."""
    texts = (f"[Tool '{name}' failed.]", maybe_truncate(text, MAX_TEXT_CHARS))
    content: list[TextContent | ImageContent] = [TextContent(text=one) for one in texts]
    return MCPToolObservation(content=content, is_error=True, name=name, arguments=dict(arguments))


def _parts_of(block: ContentBlock) -> list[str | ImageContent]:
    match block.type:
        case "text":
            return [block.text]
        case "image":
            return [_image(block.data, block.mime_type)]
        case "audio":
            return [f"[Audio of type {block.mime_type} was left out: it cannot be shown here.]"]
        case "resource_link":
            described = f" ({block.description})" if block.description else ""
            return [f"[Resource {block.name}{described}: {block.uri}]"]
        case "resource":
            resource: Any = block.resource
            if isinstance(text := getattr(resource, "text", None), str):
                return [f"[Resource {resource.uri}]\n{text}"]
            kind = resource.mime_type or "an unknown type"
            if kind in IMAGE_TYPES:
                return [_image(resource.blob, kind)]
            return [f"[Resource {resource.uri} of type {kind} was left out: it is no text.]"]


def _image(data: str, kind: str) -> str | ImageContent:
    if kind not in IMAGE_TYPES:
        return f"[An image of type {kind} was left out; models take {', '.join(sorted(IMAGE_TYPES))}.]"
    if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        return f"[An image was left out: it is larger than {MAX_IMAGE_BYTES} bytes.]"
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return "[An image was left out: it is not valid base64.]"
    seen = next((known for begin, known in _BEGINNINGS if content.startswith(begin)), kind)
    return ImageContent(image_urls=[f"data:{seen};base64,{data}"])


MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 8_192

_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]+")
_TYPES: dict[str, tuple[type, ...]] = {"integer": (int,), "number": (int, float), "boolean": (bool,)}


class MCPToolAction(Action):
    """A call of a remote tool; `data` are the arguments as the model gave them."""

    data: dict[str, Any] = Field(default_factory=dict)

    def __str__(self) -> str:
        return one_line(", ".join(f"{name}={value!r}" for name, value in self.data.items()))


class McpTool(ToolDefinition[MCPToolAction, MCPToolObservation]):
    """A tool that a server offers; `remote_name` is what the server calls it."""

    tool_parameters: dict[str, Any]
    remote_name: str
    server: str

    @property
    def parameters(self) -> dict[str, Any]:
        return self.tool_parameters

    def action_from_arguments(self, arguments: Mapping[str, Any]) -> MCPToolAction:
        values = {key: self._read(key, value) for key, value in arguments.items()}
        if problems := problems_of(self.tool_parameters, values):
            raise ToolError("; ".join(problems))
        return MCPToolAction(data=values)

    def declared_resources(self, action: Action) -> DeclaredResources:
        keys = () if self.annotations.readOnlyHint else (f"mcp:{self.server}",)
        return DeclaredResources(keys=keys, declared=True)

    def _read(self, name: str, value: Any) -> Any:
        """A number or a truth value that a model wrote as text, as what it is; anything else as it is."""
        if not isinstance(value, str):
            return value
        expected = types_of(self.tool_parameters["properties"].get(name), self.tool_parameters)
        types = [kind for each in expected for kind in _TYPES.get(each, ())]
        if not types or "string" in expected:
            return value
        try:
            found = json.loads(value.strip().lower())
        except ValueError:
            return value
        return found if type(found) in types else value


def tool_of(
    remote: RemoteTool,
    *,
    server: str,
    call: Callable[..., Awaitable[MCPToolObservation]],
    lends_secrets: bool = True,
) -> McpTool:
    """The definition for a listed tool; raises `ValueError`, which says why it cannot be offered to a model.

    ``call(tool, shown, sent, limit_seconds, told)`` carries out a call of it; ``told(text)`` is called with its
    progress. Its name is the server's, with ``_`` for what models' providers do not take in names.
    """
    name = _UNUSABLE.sub("_", remote.name)[:MAX_NAME_CHARS]
    if not name.strip("_"):
        raise ValueError("its name has no letter or digit")
    hints = remote.annotations.model_dump(by_alias=True, exclude_none=True) if remote.annotations is not None else {}
    known = {field: hints[field] for field in ToolAnnotations.model_fields if field in hints}
    if remote.title and "title" not in known:
        known["title"] = remote.title
    tool = McpTool(
        name=name,
        description=(remote.description or remote.title or remote.name)[:MAX_DESCRIPTION_CHARS],
        action_type=MCPToolAction,
        observation_type=MCPToolObservation,
        annotations=ToolAnnotations(**known),
        tool_parameters=parameters_from(remote.input_schema),
        remote_name=remote.name,
        server=server,
    )

    async def execute(action: MCPToolAction, context: ToolContext | None = None) -> MCPToolObservation:
        sent = action.data
        if lends_secrets and (names := names_in(sent)):  # of secrets; the environment is not looked at
            found = await context.secrets_for(" ".join(sorted(names))) if context is not None else {}
            sent = dict(expanded(sent, {name: value for name, value in found.items() if name in names}))
            json.dumps(sent)  # what cannot be sent is refused here
        if context is None:
            return await call(tool, action.data, sent, None, lambda text: None)
        return await call(tool, action.data, sent, context.hard_timeout, context.emit_output)

    return tool.set_executor(execute)


class OwnTool(McpTool):
    """A tool that is carried out in this process; its arguments are checked by `arguments_type`.

    Secrets that they refer to are not put in: what such a tool sends may be read by everybody.
    """

    arguments_type: type[BaseModel]

    def action_from_arguments(self, arguments: Mapping[str, Any]) -> MCPToolAction:
        try:
            self.arguments_type.model_validate(dict(arguments))
        except ValidationError as error:
            raise ToolError(problems_in(error, MAX_PROBLEMS)) from error
        return MCPToolAction(data=dict(arguments))


def own_tool(
    name: str,
    description: str,
    arguments_type: type[BaseModel],
    run: Callable[[Any, str], Awaitable[str]],
    *,
    parameters: dict[str, Any],
    annotations: ToolAnnotations,
    server: str,
) -> OwnTool:
    """A tool that calls ``run(arguments, key)`` and tells the agent the text that it returns.

    `key` is the same for each attempt at the same call, and empty outside of a conversation.
    `parameters` is the JSON schema of the arguments. A `DrydockError` of `run` is told as the call's failure.
    """
    tool = OwnTool(
        name=name,
        description=description,
        action_type=MCPToolAction,
        observation_type=MCPToolObservation,
        annotations=annotations,
        tool_parameters=parameters,
        arguments_type=arguments_type,
        remote_name=name,
        server=server,
    )

    async def execute(action: MCPToolAction, context: ToolContext | None = None) -> MCPToolObservation:
        try:
            key = context.idempotency_key if context is not None else ""
            text = await run(arguments_type.model_validate(action.data), key)
        except ValidationError as error:
            return failed_observation(name, action.data, problems_in(error, MAX_PROBLEMS))
        except DrydockError as error:
            return failed_observation(name, action.data, str(error))
        content = [TextContent(text=f"[Tool '{name}' executed.]"), TextContent(text=text)]
        return MCPToolObservation(content=list(content), name=name, arguments=dict(action.data))

    return tool.set_executor(execute)
