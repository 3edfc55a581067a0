"""Security analyzers: they tell how risky it is what the agent wants to do."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from importlib import import_module
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, ConfigDict, Field, ModelWrapValidatorHandler, SerializeAsAny, model_validator

from agent_core.destinations import Destinations
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent
from agent_core.events.messages import Frozen
from agent_core.events.risk import SecurityRisk
from agent_core.tools.execution import called

ANALYSIS_SECONDS = 45.0
"""Longer than an analyzer that asks somebody else waits by itself."""

logger = logging.getLogger(__name__)

_threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="analyze")

EventHistory = Sequence[Event]
"""What the model was shown before it wanted an action, the oldest first."""


class Polymorphic(Frozen):
    """A frozen model whose `kind` is its class name.

    A family is a direct subclass with a `classes` of its own, where its subclasses register themselves by name, library
    users' too; of two with the same name the later one counts. An abstract class reads the data of its subclasses.
    """

    model_config = ConfigDict(defer_build=True)  # until `kind` has its default, just below: to build twice takes long

    kind: str = ""

    classes: ClassVar[dict[str, type[Polymorphic]]] = {}
    registering_module: ClassVar[str] = ""
    """A module that imports all of ours: a kind may be asked for before anybody has imported it."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.model_fields["kind"].default = cls.__name__
        cls.model_rebuild(force=True)
        cls.classes[cls.__name__] = cls

    @model_validator(mode="wrap")
    @classmethod
    def _read_by_its_kind(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if inspect.isabstract(cls) and isinstance(data, dict):
            recreated: Self = cls.recreate(data)
            return recreated
        return handler(data)

    @model_validator(mode="after")
    def _is_of_its_kind(self) -> Self:
        if self.kind != type(self).__name__:
            raise ValueError(f"kind is {self.kind!r}, but this is a {type(self).__name__}")
        return self

    @classmethod
    def recreate(cls, data: Any) -> Any:
        """The object that `data` (as from ``model_dump``) describes; anything else is returned as it is.

        ValueError: its `kind` is missing or unknown; pydantic.ValidationError: its fields are not those of its kind.
        """
        if not isinstance(data, dict):
            return data
        kind = data.get("kind")
        if str(kind) not in cls.classes and cls.registering_module:
            import_module(cls.registering_module)
        found = cls.classes.get(str(kind))
        if found is None or not issubclass(found, cls) or found is cls:
            known = sorted(name for name, known in cls.classes.items() if issubclass(known, cls) and known is not cls)
            raise ValueError(f"kind {kind!r} is not known; known are {known}")
        return found.model_validate(data)


class SecurityAnalyzer(Polymorphic):
    """Judges actions before they run. Frozen and serialisable; subclasses are found again by their `kind`.

    A subclass defines `security_risk`, which runs in a thread and may block; or overrides `asecurity_risk` if it is
    asynchronous, or `asecurity_risk_after` if it goes by what came before the action.
    """

    classes: ClassVar[dict[str, type[Polymorphic]]] = {}
    registering_module: ClassVar[str] = "agent_core.security.analyzers"
    immediate: ClassVar[bool] = False
    """Whether it goes by the action alone and within moments: it needs neither a thread nor a limit then."""

    @abstractmethod
    def security_risk(self, action: ActionEvent) -> SecurityRisk:
        """The risk of one action; UNKNOWN when this analyzer cannot tell."""

    async def asecurity_risk(self, action: ActionEvent) -> SecurityRisk:
        return await in_thread(lambda: self.security_risk(action))

    async def asecurity_risk_after(self, history: EventHistory, action: ActionEvent) -> SecurityRisk:
        return await self.asecurity_risk(action)

    def confined(self, destinations: Destinations) -> Self:
        """The same for the agent of somebody else, asking nobody but at these; for one that asks over the network."""
        return self

    def analyze_pending_actions(self, actions: Sequence[ActionEvent]) -> list[tuple[ActionEvent, SecurityRisk]]:
        """Each action with its risk; where the analyzer fails, the risk is HIGH."""
        return [(action, self._guarded(action)) for action in actions]

    async def aanalyze_pending_actions(
        self, actions: Sequence[ActionEvent], history: EventHistory = (), *, limit_seconds: float = ANALYSIS_SECONDS
    ) -> list[tuple[ActionEvent, SecurityRisk]]:
        """The same, all actions at once; one that is not judged within the limit is HIGH as well."""
        if self._answers_at_once:
            return self.analyze_pending_actions(actions)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._aguarded(history, action, limit_seconds), name=f"analyze:{self.kind}")
                for action in actions
            ]
        return [(action, task.result()) for action, task in zip(actions, tasks, strict=True)]

    def _guarded(self, action: ActionEvent) -> SecurityRisk:
        try:
            return SecurityRisk(self.security_risk(action))
        except (Exception, SystemExit):  # noqa: BLE001 - whatever fails in it, the action is not to run unseen
            self._report(action)
            return SecurityRisk.HIGH

    @property
    def _answers_at_once(self) -> bool:
        ours = SecurityAnalyzer
        overridden = (type(self).asecurity_risk, type(self).asecurity_risk_after)
        return self.immediate and overridden == (ours.asecurity_risk, ours.asecurity_risk_after)

    async def _aguarded(self, history: EventHistory, action: ActionEvent, limit_seconds: float) -> SecurityRisk:
        try:
            async with asyncio.timeout(limit_seconds):
                return SecurityRisk(await self.asecurity_risk_after(history, action))
        except (Exception, SystemExit):  # noqa: BLE001 - as above
            self._report(action)
            return SecurityRisk.HIGH

    def _report(self, action: ActionEvent) -> None:
        logger.exception("%s failed on a call of %s; it counts as HIGH", type(self).__name__, action.tool_name)


async def in_thread(judge: Callable[[], SecurityRisk]) -> SecurityRisk:
    """What an analyzer says that may block."""
    return await asyncio.get_running_loop().run_in_executor(_threads, copy_context().run, called, judge)


AnyAnalyzer = Annotated[SerializeAsAny[SecurityAnalyzer], BeforeValidator(SecurityAnalyzer.recreate)]
"""A field holding any analyzer, restored to its own class when read back."""


class LLMSecurityAnalyzer(SecurityAnalyzer):
    """Takes the model's own word: the `security_risk` that it gave with the call."""

    immediate: ClassVar[bool] = True

    def security_risk(self, action: ActionEvent) -> SecurityRisk:
        return SecurityRisk(action.security_risk)


class EnsembleSecurityAnalyzer(SecurityAnalyzer):
    """Asks several analyzers; the greatest known risk counts. An analyzer that fails counts as HIGH.

    UNKNOWN counts only when nobody knows, or, with `propagate_unknown`, as soon as one does not.
    """

    analyzers: tuple[AnyAnalyzer, ...] = Field(min_length=1)
    propagate_unknown: bool = False

    def confined(self, destinations: Destinations) -> Self:
        return self.model_copy(update={"analyzers": tuple(one.confined(destinations) for one in self.analyzers)})

    def security_risk(self, action: ActionEvent) -> SecurityRisk:
        risks = [risk for analyzer in self.analyzers for _, risk in analyzer.analyze_pending_actions([action])]
        return riskiest(risks, propagate_unknown=self.propagate_unknown)

    @property
    def _answers_at_once(self) -> bool:
        return all(analyzer._answers_at_once for analyzer in self.analyzers)

    async def asecurity_risk(self, action: ActionEvent) -> SecurityRisk:
        return await self.asecurity_risk_after((), action)

    async def asecurity_risk_after(self, history: EventHistory, action: ActionEvent) -> SecurityRisk:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(analyzer.aanalyze_pending_actions([action], history), name=f"ask:{analyzer.kind}")
                for analyzer in self.analyzers
            ]
        risks = [risk for task in tasks for _, risk in task.result()]
        return riskiest(risks, propagate_unknown=self.propagate_unknown)


def riskiest(risks: Iterable[SecurityRisk], *, propagate_unknown: bool = False) -> SecurityRisk:
    """The greatest known risk; UNKNOWN when none is known or, with `propagate_unknown`, a single one is not."""
    all_risks = list(risks)
    known = [risk for risk in all_risks if risk is not SecurityRisk.UNKNOWN]
    if not known or (propagate_unknown and len(known) < len(all_risks)):
        return SecurityRisk.UNKNOWN
    return max(known)
