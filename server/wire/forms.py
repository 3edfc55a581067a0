"""An event on its way to the public JSON: the part that its type decides; `envelope` adds the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from agent_core.events.risk import SecurityRisk
from agent_core.tools.task_tracker import TaskItem
from server.wire.texts import action_text, observation_text

RISK_NUMBERS: Final[dict[SecurityRisk, int]] = {
    SecurityRisk.UNKNOWN: -1,
    SecurityRisk.LOW: 0,
    SecurityRisk.MEDIUM: 1,
    SecurityRisk.HIGH: 2,
}
"""`security_risk` as the protocol writes it."""


class ActionForm(NamedTuple):
    """A public action: its type and args, in the protocol's order; `timeout` in seconds."""

    name: str
    args: dict[str, Any]
    timeout: float | None = None

    @property
    def message(self) -> str:
        """The line for people."""
        return action_text(self.name, self.args)


class ObservationForm(NamedTuple):
    """A public observation: its type, content and extras, in the protocol's order."""

    name: str
    content: str
    extras: dict[str, Any]

    @property
    def message(self) -> str:
        """The line for people."""
        return observation_text(self.name, self.content, self.extras)

    @property
    def success(self) -> bool | None:
        """The top-level ``success``; None where the type has none."""
        if self.name == "run":
            return bool(self.extras.get("metadata", {}).get("exit_code") == 0)
        return True if self.name == "run_ipython" else None


Form = ActionForm | ObservationForm


def task_list_form(tasks: Sequence[TaskItem]) -> list[dict[str, str]]:
    """Tasks as the protocol lists them; one without an id of its own has its number."""
    return [
        {"id": task.id or str(number), "title": task.title, "status": task.status, "notes": task.notes}
        for number, task in enumerate(tasks, 1)
    ]
