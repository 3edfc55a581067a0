"""Cells of an IPython kernel on the wire: the action and the observation `run_ipython`."""

from __future__ import annotations

from typing import Final

from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.events.messages import TextContent
from agent_core.tools.ipython import IPythonAction, IPythonObservation, IPythonTool
from server.wire.action_fields import RunIPythonArgs
from server.wire.forms import RISK_NUMBERS, ActionForm, ObservationForm

_RISKS: Final = {number: risk for risk, number in RISK_NUMBERS.items()}


def cell_form(action: IPythonAction, event: ActionEvent, thought: str) -> ActionForm:
    """A cell that is run."""
    args = {
        "code": action.code,
        "thought": thought,
        "include_extra": action.include_extra,
        "confirmation_state": "confirmed",
        "security_risk": RISK_NUMBERS[event.security_risk],
        "kernel_init_code": action.kernel_init_code,
    }
    return ActionForm("run_ipython", args, event.hard_timeout)


def cell_result_form(observation: IPythonObservation, event: ObservationEvent) -> ObservationForm:
    """What a cell printed, and its pictures."""
    extras = {"code": observation.code, "image_urls": observation.image_urls}
    return ObservationForm("run_ipython", observation.text, extras)


def user_cell(args: RunIPythonArgs, timeout: float | None) -> ActionEvent:
    """A cell that a user runs in the agent's kernel, which is shown both; it needs nobody's confirmation."""
    action = IPythonAction(code=args.code, include_extra=args.include_extra, kernel_init_code=args.kernel_init_code)
    return ActionEvent(
        source="user",
        thought=[TextContent(text=args.thought)] if args.thought else [],
        action=action,
        tool_name=IPythonTool.tool_name,
        security_risk=_RISKS[args.security_risk],
        hard_timeout=timeout,
    )
