"""The public action and observation types: their fields, defaults and order, by which clients' messages are checked."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

JsonObject = dict[str, Any]
RecallType = Literal["workspace_context", "knowledge"]


class Fields(BaseModel):
    """Base of all public types: JSON types only, nothing converted, unknown names refused."""

    # Built when first used: all of them at once take long.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, defer_build=True)


class NoFields(Fields):
    """A type without fields of its own."""


class TaskFields(Fields):
    """One task of a list."""

    id: str
    title: str
    status: Literal["todo", "in_progress", "done"] = "todo"
    notes: str = ""


Risk = Literal[-1, 0, 1, 2]
ConfirmationStatus = Literal["confirmed", "rejected", "awaiting_confirmation"]


class MessageArgs(Fields):
    """`message`."""

    content: str
    file_urls: list[str] | None = None
    image_urls: list[str] | None = None
    wait_for_response: bool = False
    security_risk: Risk = -1


class SystemArgs(Fields):
    """`system`."""

    content: str
    tools: list[JsonObject] | None = None
    openhands_version: str | None = None
    agent_class: str | None = None


class RunArgs(Fields):
    """`run`."""

    command: str
    is_input: bool = False
    thought: str = ""
    blocking: bool = False
    is_static: bool = False
    cwd: str | None = None
    hidden: bool = False
    confirmation_state: ConfirmationStatus = "confirmed"
    security_risk: Risk = -1


class RunIPythonArgs(Fields):
    """`run_ipython`."""

    code: str
    thought: str = ""
    include_extra: bool = True
    confirmation_state: ConfirmationStatus = "confirmed"
    security_risk: Risk = -1
    kernel_init_code: str = ""


class ReadArgs(Fields):
    """`read`."""

    path: str
    start: int = 0
    end: int = -1
    thought: str = ""
    security_risk: Risk = -1
    impl_source: Literal["default", "oh_aci"] = "default"
    view_range: list[int] | None = None


class WriteArgs(Fields):
    """`write`."""

    path: str
    content: str
    start: int = 0
    end: int = -1
    thought: str = ""
    security_risk: Risk = -1


class EditArgs(Fields):
    """`edit`."""

    path: str
    command: str = ""
    file_text: str | None = None
    old_str: str | None = None
    new_str: str | None = None
    insert_line: int | None = None
    content: str = ""
    start: int = 1
    end: int = -1
    thought: str = ""
    security_risk: Risk = -1
    impl_source: Literal["llm_based_edit", "oh_aci"] = "oh_aci"


class BrowseArgs(Fields):
    """`browse`."""

    url: str
    thought: str = ""
    security_risk: Risk = -1
    return_axtree: bool = False


class BrowseInteractiveArgs(Fields):
    """`browse_interactive`."""

    browser_actions: str
    thought: str = ""
    browsergym_send_msg_to_user: str = ""
    security_risk: Risk = -1
    return_axtree: bool = False


class ThinkArgs(Fields):
    """`think`."""

    thought: str = ""


class FinishArgs(Fields):
    """`finish`."""

    final_thought: str = ""
    outputs: JsonObject = Field(default_factory=dict)
    thought: str = ""


class RejectArgs(Fields):
    """`reject`."""

    outputs: JsonObject = Field(default_factory=dict)
    thought: str = ""


class DelegateArgs(Fields):
    """`delegate`."""

    agent: str
    inputs: JsonObject
    thought: str = ""


class RecallArgs(Fields):
    """`recall`."""

    recall_type: RecallType
    query: str = ""
    thought: str = ""


class ChangeAgentStateArgs(Fields):
    """`change_agent_state`; `remember`, with `user_confirmed`, approves of everything that comes, too."""

    agent_state: str
    thought: str = ""
    remember: bool = Field(default=False, exclude=True)  # beside the protocol: shown where it is true only


class CondensationArgs(Fields):
    """`condensation`: either the ids or the first and last of them; a summary together with its place."""

    forgotten_event_ids: list[int] | None = None
    forgotten_events_start_id: int | None = None
    forgotten_events_end_id: int | None = None
    summary: str | None = None
    summary_offset: int | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        bounds = (self.forgotten_events_start_id is not None, self.forgotten_events_end_id is not None)
        if bounds[0] != bounds[1] or bounds[0] == (self.forgotten_event_ids is not None):
            raise ValueError("needs either forgotten_event_ids or both forgotten_events_start_id and …_end_id")
        if (self.summary is None) != (self.summary_offset is None):
            raise ValueError("needs both summary and summary_offset, or neither")
        return self


class CallToolMcpArgs(Fields):
    """`call_tool_mcp`."""

    name: str
    arguments: JsonObject = Field(default_factory=dict)
    thought: str = ""
    security_risk: Risk = -1


class TaskTrackingArgs(Fields):
    """`task_tracking`."""

    command: Literal["view", "plan"] = "view"
    task_list: list[TaskFields] = Field(default_factory=list)
    thought: str = ""


class LoopRecoveryArgs(Fields):
    """`loop_recovery`."""

    option: Literal[1, 2, 3] = 1

    @field_validator("option", mode="before")
    @classmethod
    def _is_a_number(cls, option: object) -> object:
        if isinstance(option, bool):  # which equals 0 or 1
            raise ValueError("should be 1, 2 or 3")
        return option


class RewindArgs(Fields):
    """`rewind`: an addition to the protocol; `to` null goes before the first event."""

    to: int | None = Field(ge=0)


class TextBlock(Fields):
    """A text of a result."""

    type: Literal["text"]
    text: str


class ImageBlock(Fields):
    """An image of a result, in base64."""

    type: Literal["image"]
    data: str
    mimeType: str  # noqa: N815 - as MCP spells it


ContentBlock = Annotated[TextBlock | ImageBlock, Field(discriminator="type")]


class ResultArgs(Fields, defer_build=False):  # a body of a route: FastAPI needs it at once
    """What a client answers: a text, or blocks as MCP has them."""

    content: str | list[ContentBlock]
    is_error: bool = False


class ClientToolResultArgs(ResultArgs):
    """`client_tool_result`."""

    call_id: int = Field(ge=0)


ADDITIONS: Final[dict[str, type[Fields]]] = {"rewind": RewindArgs, "client_tool_result": ClientToolResultArgs}

ACTIONS: Final[dict[str, type[Fields]]] = {
    "null": NoFields,
    "run": RunArgs,
    "run_ipython": RunIPythonArgs,
    "browse": BrowseArgs,
    "browse_interactive": BrowseInteractiveArgs,
    "read": ReadArgs,
    "write": WriteArgs,
    "edit": EditArgs,
    "think": ThinkArgs,
    "finish": FinishArgs,
    "reject": RejectArgs,
    "delegate": DelegateArgs,
    "recall": RecallArgs,
    "change_agent_state": ChangeAgentStateArgs,
    "message": MessageArgs,
    "system": SystemArgs,
    "condensation": CondensationArgs,
    "condensation_request": NoFields,
    "call_tool_mcp": CallToolMcpArgs,
    "task_tracking": TaskTrackingArgs,
    "loop_recovery": LoopRecoveryArgs,
}


class RunMetadata(Fields):
    """``metadata`` of a `run` observation."""

    exit_code: int = -1
    pid: int = -1
    username: str | None = None
    hostname: str | None = None
    working_dir: str | None = None
    py_interpreter_path: str | None = None
    prefix: str = ""
    suffix: str = ""


class RunExtras(Fields):
    """`run`."""

    command: str
    metadata: RunMetadata = Field(default_factory=RunMetadata)
    hidden: bool = False


class RunIPythonExtras(Fields):
    """`run_ipython`."""

    code: str
    image_urls: list[str] | None = None


class AdditionFields(Fields):
    """Fields with an `addition` of ours to the protocol's, which is left out where it is empty."""

    addition: ClassVar[str]

    @model_serializer(mode="wrap")
    def _without_empty_addition(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        if not fields[self.addition]:
            del fields[self.addition]
        return fields


class ReadExtras(AdditionFields):
    """`read`; `image_urls` is an addition of ours, there where the file is an image."""

    path: str
    impl_source: Literal["default", "oh_aci"] = "default"
    image_urls: list[str] = Field(default_factory=list)

    addition: ClassVar[str] = "image_urls"


class WriteExtras(Fields):
    """`write`."""

    path: str


class EditExtras(Fields):
    """`edit`."""

    path: str = ""
    prev_exist: bool = False
    old_content: str | None = None
    new_content: str | None = None
    impl_source: Literal["llm_based_edit", "oh_aci"] = "llm_based_edit"
    diff: str | None = None
    diff_cache: str | None = Field(default=None, alias="_diff_cache")


class BrowseExtras(Fields):
    """`browse`."""

    url: str
    trigger_by_action: str
    screenshot: str = ""
    screenshot_path: str | None = None
    set_of_marks: str = ""
    error: bool = False
    goal_image_urls: list[str] = Field(default_factory=list)
    open_pages_urls: list[str] = Field(default_factory=list)
    active_page_index: int = -1
    dom_object: JsonObject = Field(default_factory=dict)
    axtree_object: JsonObject = Field(default_factory=dict)
    extra_element_properties: JsonObject = Field(default_factory=dict)
    last_browser_action: str = ""
    last_browser_action_error: str = ""
    focused_element_bid: str = ""
    filter_visible_only: bool = False


class DelegateExtras(Fields):
    """`delegate`."""

    outputs: JsonObject = Field(default_factory=dict)


class ErrorExtras(AdditionFields):
    """`error`; `sign_in` is an addition of ours: the sign-in with an MCP server that its user has to begin."""

    error_id: str = ""
    sign_in: str = ""

    addition: ClassVar[str] = "sign_in"


class AgentStateChangedExtras(AdditionFields):
    """`agent_state_changed`; `detail` is an addition of ours, left out where it says nothing."""

    agent_state: str
    reason: str = ""
    detail: str = ""

    addition: ClassVar[str] = "detail"


class KnowledgeFields(Fields):
    """One entry of ``microagent_knowledge``."""

    name: str
    trigger: str
    content: str


class RecallExtras(Fields):
    """`recall`."""

    recall_type: RecallType
    repo_name: str = ""
    repo_directory: str = ""
    repo_branch: str = ""
    repo_instructions: str = ""
    runtime_hosts: dict[str, int] = Field(default_factory=dict)
    additional_agent_instructions: str = ""
    date: str = ""
    custom_secrets_descriptions: dict[str, str] = Field(default_factory=dict)
    conversation_instructions: str = ""
    working_dir: str = ""
    microagent_knowledge: list[KnowledgeFields] = Field(default_factory=list)


class McpExtras(Fields):
    """`mcp`."""

    name: str = ""
    arguments: JsonObject = Field(default_factory=dict)


class DownloadExtras(Fields):
    """`download`."""

    file_path: str


class TaskTrackingExtras(Fields):
    """`task_tracking`."""

    command: str = ""
    task_list: list[TaskFields] = Field(default_factory=list)


OBSERVATIONS: Final[dict[str, type[Fields]]] = {
    "null": NoFields,
    "run": RunExtras,
    "run_ipython": RunIPythonExtras,
    "browse": BrowseExtras,
    "read": ReadExtras,
    "write": WriteExtras,
    "edit": EditExtras,
    "delegate": DelegateExtras,
    "success": NoFields,
    "error": ErrorExtras,
    "agent_state_changed": AgentStateChangedExtras,
    "user_rejected": NoFields,
    "condense": NoFields,
    "think": NoFields,
    "recall": RecallExtras,
    "mcp": McpExtras,
    "download": DownloadExtras,
    "task_tracking": TaskTrackingExtras,
    "loop_detection": NoFields,
}
