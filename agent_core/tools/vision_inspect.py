"""The tool by which a model that sees no images has another look at one for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic import Field

from agent_core.errors import ToolError
from agent_core.events.schema import Action, Observation
from agent_core.tools.context import ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import built_in
from agent_core.tools.spec import ToolAnnotations

_DESCRIPTION: Final = """Have a model that sees images look at one which the user has attached, and answer a question.

`image_index` is the number that stands in the place of the image in the user's newest message with images. The other
model knows nothing but the image and the question: ask for what you need to know, as exactly as you can."""


class VisionInspectAction(Action):
    """A question about an image."""

    image_index: int = Field(ge=0, description="Number of the image, from 0, in the newest message that has images.")
    question: str = Field(min_length=1, max_length=20_000, description="What you want to know of it.")
    profile_name: str | None = Field(
        default=None, description="Name of the stored model that is to look; the first of those listed if left out."
    )


class VisionInspectObservation(Observation):
    """The answer, and the question; `profile_name` and `model` say who has looked."""

    image_index: int = 0
    question: str = ""
    profile_name: str = ""
    model: str = ""
    answer: str = ""


async def execute(action: VisionInspectAction, conversation: ToolContext | None = None) -> VisionInspectObservation:
    """Ask; what the model can mend becomes an error result."""
    vision = conversation.vision if conversation is not None else None
    fields: dict[str, Any] = {"image_index": action.image_index, "question": action.question}
    try:
        if conversation is None or vision is None:
            raise ToolError("there are no images here: this tool works inside a conversation only")
        seen = await vision.look(conversation, action.image_index, action.question, action.profile_name)
    except ToolError as error:
        return VisionInspectObservation.from_text(str(error), is_error=True, **fields)
    return VisionInspectObservation.from_text(
        seen.text, answer=seen.text, profile_name=seen.profile_name, model=seen.model, **fields
    )


@built_in
class VisionInspectTool(ToolDefinition[VisionInspectAction, VisionInspectObservation]):
    """The `inspect_image_with_vision` tool: an agent has it whose model sees no images, where one is stored that does.

    `create` takes the names of the stored models to choose from, as `profiles`.
    """

    tool_name = "inspect_image_with_vision"
    resources = ()
    description: str = _DESCRIPTION
    annotations: ToolAnnotations = ToolAnnotations.read_only("Look at an image", open_world=True)

    @classmethod
    def make_executor(cls, *, profiles: Sequence[str] = ()) -> Callable[..., Any]:
        return execute

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
        tool = cls._define(**params)
        profiles = params.get("profiles") or ()
        if not profiles:
            return [tool]
        listed = "\n".join(f"- {name}" for name in profiles)
        return [tool.model_copy(update={"description": f"{_DESCRIPTION}\n\nStored models that see images:\n{listed}"})]
