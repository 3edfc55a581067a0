"""The public observation types with their extras, defaults and order."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from server.wire.fields import Fields, JsonObject, NoFields, RecallType, TaskFields


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


class ReadExtras(Fields):
    """`read`; `image_urls` is an addition of ours, there where the file is an image."""

    path: str
    impl_source: Literal["default", "oh_aci"] = "default"
    image_urls: list[str] = Field(default_factory=list)

    @model_serializer(mode="wrap")
    def _without_no_images(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        if not self.image_urls:
            del fields["image_urls"]
        return fields


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


class ErrorExtras(Fields):
    """`error`."""

    error_id: str = ""


class AgentStateChangedExtras(Fields):
    """`agent_state_changed`; `detail` is an addition of ours, left out where it says nothing."""

    agent_state: str
    reason: str = ""
    detail: str = ""

    @model_serializer(mode="wrap")
    def _without_empty_detail(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        if not self.detail:
            del fields["detail"]
        return fields


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
"""Public observation types and their ``extras``."""
