"""Messages to and from a model, and the bases of all values that go into the log."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import from_json

from agent_core.spelling import SpelledModel


class Frozen(BaseModel, metaclass=SpelledModel):
    """Base of every value that goes into the log: immutable, unknown fields refused, values not quoted in errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with these fields changed, unchecked; it shares everything else unless it is `deep`.

        Takes a third of the time of pydantic's: each step of an agent makes several copies.
        """
        if deep or self.__pydantic_private__ is not None or self.__pydantic_extra__ is not None:
            return super().model_copy(update=update, deep=deep)
        values, names = self.__dict__.copy(), self.__pydantic_fields_set__
        if update:
            values.update(update)
            if not names.issuperset(update):
                names = names.union(update)
        made = _new(type(self))
        _set(made, "__dict__", values)
        _set(made, "__pydantic_fields_set__", names)
        _set(made, "__pydantic_extra__", None)
        _set(made, "__pydantic_private__", None)
        return made


_new = object.__new__
_set = object.__setattr__


class Lean(Frozen):
    """Base of values of which very many are kept: a class shares one set of the names of given fields.

    Pydantic's own is often larger than the object itself. ``exclude_unset`` leaves nothing out.
    """

    _names: ClassVar[set[str]] = set()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls._names = set(cls.__pydantic_fields__)

    def model_post_init(self, context: Any, /) -> None:
        _set(self, "__pydantic_fields_set__", self._names)


class TextContent(Lean):
    """A piece of text. `cache_prompt` marks the end of a prefix worth caching at the provider."""

    type: Literal["text"] = "text"
    text: str
    cache_prompt: bool = False


class ImageContent(Lean):
    """One or more images, each an http(s) or data URL."""

    type: Literal["image"] = "image"
    image_urls: list[str]
    cache_prompt: bool = False


Content = Annotated[TextContent | ImageContent, Field(discriminator="type")]


class MessageToolCall(Lean):
    """One tool call as the model made it. `arguments` is the JSON text, valid JSON once it is in the log."""

    id: str
    name: str
    arguments: str
    origin: Literal["completion", "responses"] = "completion"
    responses_item_id: str | None = None


def _as_parts(parts: Any) -> Any:
    if isinstance(parts, str):
        return [TextContent(text=parts)]
    return [] if parts is None else parts


class Message(Lean):
    """One message of a model conversation.

    A ``tool`` message answers exactly one call (`tool_call_id`, `name`). An ``assistant`` message may carry
    `tool_calls`; its content may then be empty. A text given as `content` is one part, None is none.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: Annotated[list[Content], BeforeValidator(_as_parts)] = Field(default_factory=list)
    tool_calls: list[MessageToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    thinking_blocks: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, TextContent))

    @classmethod
    def user(cls, text: str, *, image_urls: list[str] | None = None) -> Message:
        content: list[TextContent | ImageContent] = [TextContent(text=text)]
        if image_urls:
            content.append(ImageContent(image_urls=image_urls))
        return cls(role="user", content=content)

    @classmethod
    def assistant(cls, text: str) -> Message:
        return cls(role="assistant", content=[TextContent(text=text)])


def content_to_str(contents: Sequence[TextContent | ImageContent]) -> list[str]:
    """One text for each part, for people: an image is named, not shown."""
    return [
        part.text if isinstance(part, TextContent) else f"[Image: {len(part.image_urls)} URLs]" for part in contents
    ]


class Kindred(Frozen):
    """Base of a family of models told apart by `kind`: data are read as the member that they name."""

    @classmethod
    @abstractmethod
    def member(cls, kind: str) -> type[BaseModel] | None:
        """The member of the family that is called so."""

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """The object that plain data describe, of the class that their `kind` names; raises `ValidationError`."""
        found = cls.member(str(obj.get("kind"))) if isinstance(obj, dict) else None
        if found is None or found is cls or not issubclass(found, cls):
            return super().model_validate(obj, **options)
        return found.model_validate(obj, **options)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        return cls.model_validate(from_json(json_data), **options)
