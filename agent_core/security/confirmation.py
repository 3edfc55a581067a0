"""Confirmation: which batches of actions wait for the user."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, SerializeAsAny, field_validator

from agent_core.events.llm_events import ActionEvent
from agent_core.events.risk import SecurityRisk
from agent_core.security.analyzer import EventHistory, Polymorphic, SecurityAnalyzer
from agent_core.tools.builtin import FinishAction, ThinkAction
from agent_core.tools.definition import ToolDefinition

logger = logging.getLogger(__name__)

_NEVER_CONFIRMED = (FinishAction, ThinkAction)


class ConfirmationPolicy(Polymorphic):
    """Says for which risks the user is asked. Frozen and serialisable; subclasses are found again by their `kind`."""

    classes: ClassVar[dict[str, type[Polymorphic]]] = {}

    @abstractmethod
    def should_confirm(self, risk: SecurityRisk = SecurityRisk.UNKNOWN) -> bool:
        """Whether the user has to agree to an action of this risk."""

    def must_confirm(self, actions: Sequence[ActionEvent]) -> bool:
        """Whether the user has to agree before any of them runs, by the actions' own risks (else: `ConfirmationGate`).

        Thoughts and the finish change nothing and are not counted.
        """
        return any(
            self.should_confirm(SecurityRisk(action.security_risk))
            for action in actions
            if not isinstance(action.action, _NEVER_CONFIRMED)
        )


AnyPolicy = Annotated[SerializeAsAny[ConfirmationPolicy], BeforeValidator(ConfirmationPolicy.recreate)]
"""A field holding any policy, restored to its own class when read back."""


class NeverConfirm(ConfirmationPolicy):
    """Everything runs at once: the sandbox is the border."""

    def should_confirm(self, risk: SecurityRisk = SecurityRisk.UNKNOWN) -> bool:
        return False


class AlwaysConfirm(ConfirmationPolicy):
    """Nothing runs without the user's agreement."""

    def should_confirm(self, risk: SecurityRisk = SecurityRisk.UNKNOWN) -> bool:
        return True


class ConfirmRisky(ConfirmationPolicy):
    """What is at least as risky as `threshold` needs agreement, and, by default, what nobody can tell the risk of."""

    threshold: SecurityRisk = SecurityRisk.HIGH
    confirm_unknown: bool = True

    @field_validator("threshold")
    @classmethod
    def _is_known(cls, threshold: SecurityRisk) -> SecurityRisk:
        if threshold is SecurityRisk.UNKNOWN:
            raise ValueError("threshold must be LOW, MEDIUM or HIGH; for UNKNOWN there is confirm_unknown")
        return threshold

    def should_confirm(self, risk: SecurityRisk = SecurityRisk.UNKNOWN) -> bool:
        known = SecurityRisk(risk)
        return self.confirm_unknown if known is SecurityRisk.UNKNOWN else known.is_riskier(self.threshold)


def policy_in_force(stored: Mapping[str, Any] | None, configured: ConfirmationPolicy) -> ConfirmationPolicy:
    """The policy `stored` as data, or else the configured one; of a class that is gone, everything waits."""
    if stored is None:
        return configured
    try:
        policy: ConfirmationPolicy = ConfirmationPolicy.recreate(dict(stored))
        return policy
    except ValueError as error:
        logger.warning("a stored confirmation policy cannot be read, so every action is asked for: %s", error)
        return AlwaysConfirm()


@dataclass(frozen=True, slots=True)
class ConfirmationGate:
    """A policy with the analyzer that tells it the risks (None: all are unknown), and what is known of the tools.

    With an analyzer, actions of read-only tools, thoughts and the finish are LOW where it does not know better.
    """

    policy: ConfirmationPolicy
    analyzer: SecurityAnalyzer | None = None
    read_only_tools: frozenset[str] = frozenset()

    @classmethod
    def for_tools(
        cls, policy: ConfirmationPolicy, analyzer: SecurityAnalyzer | None, tools: Mapping[str, ToolDefinition]
    ) -> Self:
        """The gate for an agent with these tools; which of them only read is taken from their annotations."""
        return cls(policy, analyzer, frozenset(name for name, tool in tools.items() if tool.annotations.readOnlyHint))

    @property
    def is_confirmation_mode_active(self) -> bool:
        """Whether an analyzer is set and the policy does ask: a report, no condition."""
        return is_confirmation_mode_active(self.analyzer, self.policy)

    def classify(self, actions: Sequence[ActionEvent]) -> list[tuple[ActionEvent, SecurityRisk]]:
        """Each action with its risk. An analyzer that fails makes it HIGH."""
        if self.analyzer is None:
            return [(action, SecurityRisk.UNKNOWN) for action in actions]
        return self._with_read_only(self.analyzer.analyze_pending_actions(actions))

    async def aclassify(
        self, actions: Sequence[ActionEvent], history: EventHistory = ()
    ) -> list[tuple[ActionEvent, SecurityRisk]]:
        """The same, for analyzers that call out or go by the history. One that is late makes it HIGH."""
        if self.analyzer is None:
            return [(action, SecurityRisk.UNKNOWN) for action in actions]
        return self._with_read_only(await self.analyzer.aanalyze_pending_actions(actions, history))

    def decide(self, classified: Sequence[tuple[ActionEvent, SecurityRisk]]) -> bool:
        """Whether the user has to agree before any of the batch runs; not for a single thought or finish."""
        if not classified or (len(classified) == 1 and isinstance(classified[0][0].action, _NEVER_CONFIRMED)):
            return False
        return any(self.policy.should_confirm(risk) for _, risk in classified)

    def must_confirm(self, actions: Sequence[ActionEvent]) -> bool:
        return self.decide(self.classify(actions))

    def _with_read_only(
        self, classified: Iterable[tuple[ActionEvent, SecurityRisk]]
    ) -> list[tuple[ActionEvent, SecurityRisk]]:
        def only_reads(action: ActionEvent) -> bool:
            return action.tool_name in self.read_only_tools or isinstance(action.action, _NEVER_CONFIRMED)

        return [
            (action, SecurityRisk.LOW if risk is SecurityRisk.UNKNOWN and only_reads(action) else risk)
            for action, risk in classified
        ]


def is_confirmation_mode_active(analyzer: SecurityAnalyzer | None, policy: ConfirmationPolicy) -> bool:
    """True if and only if an analyzer is set and the policy is not `NeverConfirm`."""
    return analyzer is not None and not isinstance(policy, NeverConfirm)
