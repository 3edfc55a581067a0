"""The public action types with their args, defaults and order.

What a client sends is checked against these models, and what it left out is filled in from them.
"""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from server.wire.client_calls import ClientToolResultArgs
from server.wire.fields import Fields, JsonObject, NoFields, RecallType, TaskFields

Risk = Literal[-1, 0, 1, 2]
Confirmation = Literal["confirmed", "rejected", "awaiting_confirmation"]


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
    confirmation_state: Confirmation = "confirmed"
    security_risk: Risk = -1


class RunIPythonArgs(Fields):
    """`run_ipython`."""

    code: str
    thought: str = ""
    include_extra: bool = True
    confirmation_state: Confirmation = "confirmed"
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


ADDITIONS: Final[dict[str, type[Fields]]] = {"rewind": RewindArgs, "client_tool_result": ClientToolResultArgs}
"""Action types that are not the protocol's own, and their ``args``."""

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
"""Public action types and their ``args``."""
