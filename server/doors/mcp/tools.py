"""What a door of MCP offers: tools with schemas, their results, and resources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from agent_core.tools.spec import ToolAnnotations

A = TypeVar("A", bound=BaseModel)

Progress = Callable[[float, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and how to tell them how far it is.

    Attributes:
        headers: of the request, with names in lower case; empty where there are none.
        progress: ``progress(value, message)`` tells it to a client that wants to know; values must grow.
    """

    headers: Mapping[str, str]
    progress: Progress


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A result: `data` for programs, as the tool's output schema says, and `text` for models."""

    text: str
    data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorTool(Generic[A]):
    """A tool of a door.

    Attributes:
        arguments: what it takes; `parameters` is the schema that clients are shown.
        call: carries it out; a `DrydockError` fails the call. When the client gives the call up, it is cancelled.
        output: the schema of its results' data, if they have any.
    """

    name: str
    description: str
    arguments: type[A]
    parameters: dict[str, Any]
    annotations: ToolAnnotations
    call: Callable[[A, Caller], Awaitable[ToolResult]]
    output: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that can be read: the text at an address."""

    uri: str
    name: str
    title: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """Some resources; `next_cursor` None: these were the last."""

    resources: list[Resource]
    next_cursor: str | None = None


class DoorResources(Protocol):
    """The resources of a door, all of them texts of one type. Methods raise `DrydockError`."""

    template: Resource
    """How their addresses are built (RFC 6570), and what they are."""

    mime_type: str

    async def page(self, cursor: str | None) -> ResourcePage:
        """A part of their list."""
        ...

    async def read(self, uri: str) -> str | None:
        """The text at this address; None: there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Offer:
    """What one door offers."""

    name: str
    version: str
    tools: tuple[DoorTool[Any], ...]
    instructions: str = ""
    resources: DoorResources | None = None
