"""Security analyzers: how risky is what the agent wants to do? (agent-core 6.2)."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, SerializeAsAny

from agent_core.events.llm_events import ActionEvent
from agent_core.security.kinds import Recreatable
from agent_core.security.risk import SecurityRisk, riskiest

ANALYSIS_SECONDS = 30.0

logger = logging.getLogger(__name__)


class SecurityAnalyzer(Recreatable):
    """Judges actions before they run. Frozen and serialisable; subclasses are found again by their `kind`.

    A subclass defines `security_risk`, or, if it has to ask somebody else, overrides `asecurity_risk` too.
    """

    classes: ClassVar[dict[str, type[Recreatable]]] = {}

    @abstractmethod
    def security_risk(self, action: ActionEvent) -> SecurityRisk:
        """The risk of one action; UNKNOWN when this analyzer cannot tell. It must not block for long."""

    async def asecurity_risk(self, action: ActionEvent) -> SecurityRisk:
        """The same, for analyzers that call out; the others answer at once."""
        return self.security_risk(action)

    def analyze_pending_actions(self, actions: Sequence[ActionEvent]) -> list[tuple[ActionEvent, SecurityRisk]]:
        """Each action with its risk; where the analyzer fails, the risk is HIGH."""
        return [(action, self._guarded(action)) for action in actions]

    async def aanalyze_pending_actions(
        self, actions: Sequence[ActionEvent], *, limit_seconds: float = ANALYSIS_SECONDS
    ) -> list[tuple[ActionEvent, SecurityRisk]]:
        """The same, asynchronously; an action that is not judged within the limit is HIGH as well."""
        return [(action, await self._aguarded(action, limit_seconds)) for action in actions]

    def _guarded(self, action: ActionEvent) -> SecurityRisk:
        try:
            return SecurityRisk(self.security_risk(action))
        except Exception:  # noqa: BLE001 - whatever fails in an analyzer, the action is not to run unseen
            self._report(action)
            return SecurityRisk.HIGH

    @property
    def _answers_at_once(self) -> bool:
        """Whether it calls nobody: then neither a limit nor a task of its own is needed."""
        return type(self).asecurity_risk is SecurityAnalyzer.asecurity_risk

    async def _aguarded(self, action: ActionEvent, limit_seconds: float) -> SecurityRisk:
        if self._answers_at_once:
            return self._guarded(action)
        try:
            async with asyncio.timeout(limit_seconds):
                return SecurityRisk(await self.asecurity_risk(action))
        except Exception:  # noqa: BLE001 - as above
            self._report(action)
            return SecurityRisk.HIGH

    def _report(self, action: ActionEvent) -> None:
        logger.exception("%s failed on a call of %s; it counts as HIGH", type(self).__name__, action.tool_name)


def _recreate(data: Any) -> Any:
    return SecurityAnalyzer.recreate(data)


AnyAnalyzer = Annotated[SerializeAsAny[SecurityAnalyzer], BeforeValidator(_recreate)]
"""A field holding any analyzer, restored to its own class when read back."""


class LLMSecurityAnalyzer(SecurityAnalyzer):
    """Takes the model's own word: the `security_risk` that it gave with the call."""

    def security_risk(self, action: ActionEvent) -> SecurityRisk:
        return SecurityRisk(action.security_risk)


class EnsembleSecurityAnalyzer(SecurityAnalyzer):
    """Asks several analyzers; the greatest of the risks that they know counts.

    UNKNOWN counts only when nobody knows, or, with `propagate_unknown`, as soon as one does not. An analyzer that fails
    counts as HIGH.
    """

    analyzers: tuple[AnyAnalyzer, ...] = Field(min_length=1)
    propagate_unknown: bool = False

    def security_risk(self, action: ActionEvent) -> SecurityRisk:
        risks = [risk for analyzer in self.analyzers for _, risk in analyzer.analyze_pending_actions([action])]
        return riskiest(risks, propagate_unknown=self.propagate_unknown)

    @property
    def _answers_at_once(self) -> bool:
        return all(analyzer._answers_at_once for analyzer in self.analyzers)

    async def asecurity_risk(self, action: ActionEvent) -> SecurityRisk:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(analyzer.aanalyze_pending_actions([action]), name=f"analyze:{analyzer.kind}")
                for analyzer in self.analyzers
            ]
        risks = [risk for task in tasks for _, risk in task.result()]
        return riskiest(risks, propagate_unknown=self.propagate_unknown)
