"""Frames that are no events of the log: statuses, errors, news of the conversation, deltas."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

import orjson

from agent_core.events.transient import ClientCall, OutputDelta, StatusNotice, TextDelta, TextDiscarded
from server.errors import coded_page, page_of_code
from server.wire.envelope import wire_time


def to_json(value: Mapping[str, Any]) -> bytes:
    """A frame as JSON in UTF-8; never fails on JSON data.

    Not-a-number and infinities become null, lone surrogates are escaped, integers beyond 64 bits are kept.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(_finite(value), ensure_ascii=True, separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


GENERAL_ERROR: Final = "STATUS$ERROR"

EventFrame = dict[str, Any]
ResyncReason = Literal["too_far_behind", "unknown_position"]


def notice_frames(notice: StatusNotice, now: datetime, base_path: str = "") -> list[EventFrame]:
    """The status; where a session could not be started, also the protocol's error frame for that."""
    status = status_frame(notice, now, base_path)
    if not notice.start_failed:
        return [status]
    failed = {"error": True, "message": f"Failed to create agent session: {notice.message}"}
    return [failed | coded_page(notice.status_id, base_path), status]


def status_frame(notice: StatusNotice, now: datetime, base_path: str = "") -> EventFrame:
    """A status update. An error also says its source and time, without which clients do not show it, and its page."""
    frame: EventFrame = {"status_update": True, "type": notice.level, "id": notice.status_id, "message": notice.message}
    if notice.level == "error":
        page = {"docs": page_of_code(notice.status_id, base_path)}
        frame |= {"source": "environment", "timestamp": wire_time(now), **page}
    return frame


def error_frames(message: str, now: datetime, *, code: str = "", base_path: str = "") -> list[EventFrame]:
    """A refusal of what a client sent: the protocol's error frame, and a status, which browser clients show."""
    status = status_frame(StatusNotice(GENERAL_ERROR, message, "error"), now, base_path)
    page = coded_page(code, base_path)
    return [{"error": True, "message": message, **page}, status | page]


def title_frame(conversation_id: str, title: str) -> EventFrame:
    """The conversation has a new title."""
    return {"status_update": True, "type": "info", "message": conversation_id, "conversation_title": title}


def closed_frame() -> EventFrame:
    """The session was closed; there is no agent until the conversation is started again."""
    extras = {"agent_state": "stopped", "reason": ""}
    return {"message": "", "observation": "agent_state_changed", "content": "", "extras": extras}


def delta_frame(delta: TextDelta | TextDiscarded | OutputDelta) -> EventFrame:
    """``oh_delta``, an addition to the protocol: text that a later event of the log replaces."""
    match delta:
        case TextDelta():
            return {"kind": delta.channel, "response_id": delta.response_id, "text": delta.text}
        case TextDiscarded():
            return {"kind": "discard", "response_id": delta.response_id}
        case OutputDelta():
            return {"kind": "output", "cause": delta.cause, "text": delta.text}


def resync_frame(reason: ResyncReason, *, latest_event_id: int, start_id: int, end_id: int) -> EventFrame:
    """``oh_resync``: the feed does not go on behind `latest_event_id`, but behind `end_id`."""
    return {"reason": reason, "latest_event_id": latest_event_id, "start_id": start_id, "end_id": end_id}


def client_call_frame(call: ClientCall, call_id: int) -> EventFrame:
    """``oh_tool_call``: a call that a client is to carry out, or that nobody waits for any more."""
    if call.is_over:
        return {"call_id": call_id, "name": call.name, "is_over": True}
    deadline = wire_time(call.deadline) if call.deadline is not None else None
    return {
        "call_id": call_id,
        "name": call.name,
        "arguments": dict(call.arguments),
        "deadline": deadline,
        "is_over": False,
    }
