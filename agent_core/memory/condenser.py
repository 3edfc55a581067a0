"""Condensers' base: frozen configuration that shortens a view."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from importlib import import_module
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from agent_core.errors import DrydockError, LLMError, NoCondensationError
from agent_core.events.control import Condensation
from agent_core.events.schema import Family
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM, CallContext, run_alone
from agent_core.llm.registry import LLMRegistry
from agent_core.memory.view import View
from agent_core.tools.execution import called

logger = logging.getLogger(__name__)


CATALOG = "agent_core.memory.condensers"
"""Imports all condensers of ours: one may be asked for by its name before anybody has needed it."""

AGAIN = 1.1
"""How much longer a view has to be until a soft condensation that failed is tried again."""


class Requirement(Enum):
    """How much a view needs to become shorter."""

    HARD = auto()
    """The next call fails otherwise, or it was asked for."""
    SOFT = auto()
    """It would be better."""


class Condenser(Family):
    """Makes a long view fit: another `View` for this step alone, or a `Condensation` that is stored and ends the step.

    The view it is given is not changed. Subclasses, found again by their `kind`, define `acondense`, or
    ``condense(view, agent_llm)``, which is called in a thread and may block.
    """

    handles_requests: ClassVar[bool] = False
    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The `type` names for `from_config`, with the defaults of each."""

    makers: ClassVar[dict[str, type[Condenser]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "condense" in cls.__dict__ and getattr(cls.acondense, "__isabstractmethod__", False):
            cls.acondense = _condensed_in_thread  # type: ignore[method-assign] # the class defines the other form

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for name in cls.__dict__.get("config_types", ()):
            known = Condenser.makers.get(name)
            if known is not None and known.__qualname__ != cls.__qualname__:
                raise ValueError(
                    f"condensers of type {name!r} are made by {known.__name__} already; choose another name"
                )
            Condenser.makers[name] = cls

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | Condenser, llm: LLM | LLMRegistry | None = None) -> Condenser:
        """The condenser of a configuration: its `type`, and the fields that differ from the defaults of that type.

        `llm_config` is the model of a type that needs one: a model, its fields, or, with a registry, its usage id; by
        default `llm`, or the registry's model for condensers. Raises `ValueError`, which says what is wrong.
        """
        if isinstance(config, Condenser):
            return config
        import_module(CATALOG)
        fields = dict(config)
        name = fields.pop("type", None)
        maker = Condenser.makers.get(str(name))
        if maker is None:
            raise ValueError(f"type: {name!r} is no type of condenser; there are {sorted(Condenser.makers)}")
        if "llm" in maker.model_fields:
            model = fields.pop("llm_config", None)
            if isinstance(model, str):
                if not isinstance(llm, LLMRegistry):
                    raise ValueError(f"llm_config: {model!r} names a model, and there is no registry to find it in")
                model = llm.get(model)
            elif model is None and isinstance(llm, LLMRegistry):
                model = next((llm.get(one) for one in ("condenser", "agent", "default") if one in llm), None)
            elif model is None:
                model = llm
            fields.update({"llm": model} if model is not None else {})
        if "condensers" in maker.model_fields:
            parts = fields.get("condensers", [])
            if not isinstance(parts, list | tuple) or not all(isinstance(one, Mapping | Condenser) for one in parts):
                raise ValueError("condensers: a list of condensers is wanted, each with its type")
            fields["condensers"] = [cls.from_config(one, llm) for one in parts]
        return maker(**{**maker.config_types[str(name)], **fields})  # which says what a wrong name was meant to be

    @classmethod
    def revive(cls, value: Any) -> Any:
        import_module(CATALOG)
        return super().revive(value)

    def condense(
        self, view: View, agent_llm: LLM | None = None, context: CallContext | None = None
    ) -> View | Condensation:
        return run_alone(lambda: self.acondense(view, agent_llm, context))

    def condensed_history(self, log: Iterable[AnyEvent], agent_llm: LLM | None = None) -> View | Condensation:
        return self.condense(View.from_log(log), agent_llm)

    @abstractmethod
    async def acondense(
        self, view: View, agent_llm: LLM | None = None, context: CallContext | None = None
    ) -> View | Condensation:
        """The view, or the condensation to store first; raises `NoCondensationError` where it fails and must not."""

    def handles_condensation_requests(self) -> bool:
        """Whether a `CondensationRequest` leads to a condensation; only then does an agent make one."""
        return self.handles_requests


async def condensed_by(
    condenser: Condenser, view: View, agent_llm: LLM | None, context: CallContext | None = None
) -> View | Condensation:
    """What a condenser, perhaps a program's own, makes of the view.

    Raises `NoCondensationError` where it must shorten it and cannot, `DrydockError` for a result of another kind.
    """
    outcome: object = await condenser.acondense(view, agent_llm, context)
    if not isinstance(outcome, View | Condensation):
        name, got = type(condenser).__name__, type(outcome).__name__
        raise DrydockError(f"the condenser {name} returned {got}; it must return a View or a Condensation")
    return outcome


async def _condensed_in_thread(
    self: Condenser, view: View, agent_llm: LLM | None = None, context: CallContext | None = None
) -> View | Condensation:
    return await asyncio.to_thread(called, self.condense, view, agent_llm)


CondenserBase = Condenser
"""The same class by the name that other programs know it by."""


AnyCondenser = Annotated[SerializeAsAny[Condenser], BeforeValidator(lambda value: Condenser.revive(value))]
"""A field holding any condenser, restored to its own class when read back."""


class NoOpCondenser(Condenser):
    """Leaves the view as it is."""

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"noop": {}, "no_op": {}}

    async def acondense(
        self, view: View, agent_llm: LLM | None = None, context: CallContext | None = None
    ) -> View | Condensation:
        return view


class PipelineCondenser(Condenser):
    """Each condenser gets the view of the one before it; the first `Condensation` ends the chain.

    One that must condense and cannot leaves it to those after it.
    """

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"pipeline": {}}

    condensers: list[AnyCondenser] = Field(min_length=1)

    @model_validator(mode="after")
    def _flat(self) -> PipelineCondenser:
        if any(isinstance(one, PipelineCondenser) for one in self.condensers):
            raise ValueError("condensers: a pipeline cannot be part of a pipeline; name its condensers instead")
        return self

    async def acondense(
        self, view: View, agent_llm: LLM | None = None, context: CallContext | None = None
    ) -> View | Condensation:
        failed: NoCondensationError | None = None
        for one in self.condensers:
            try:
                outcome = await condensed_by(one, view, agent_llm, context)
            except NoCondensationError as error:
                failed = failed or error
                continue
            if isinstance(outcome, Condensation):
                return outcome
            view = outcome
        if failed is not None:
            raise failed
        return view

    def handles_condensation_requests(self) -> bool:
        return any(one.handles_condensation_requests() for one in self.condensers)


class RollingCondenser(Condenser):
    """Condenses when there is a reason to, and knows what to do when it cannot."""

    handles_requests: ClassVar[bool] = True

    async def acondense(
        self, view: View, agent_llm: LLM | None = None, context: CallContext | None = None
    ) -> View | Condensation:
        requirement = self.requirement(view, agent_llm)
        if requirement is None:
            return view
        is_soft = requirement is Requirement.SOFT
        if is_soft and len(view) < view.attempts.failed_at * AGAIN:
            return view  # a model that could not sum up a moment ago would only cost money
        try:
            return await self.condensation(view, agent_llm, context)
        except NoCondensationError as impossible:
            if is_soft:
                view.attempts.failed_at = len(view)
                logger.debug("the view is long and stays as it is: %s", impossible)
                return view
            try:
                reset = await self.hard_context_reset(view, agent_llm, context)
            except LLMError as error:
                raise NoCondensationError(f"{impossible}; nor could everything be summarised: {error}") from error
            except Exception as error:
                raise error from impossible
            if reset is None:
                raise
            return reset

    @abstractmethod
    def requirement(self, view: View, agent_llm: LLM | None) -> Requirement | None:
        """Whether the view needs to become shorter."""

    @abstractmethod
    async def condensation(self, view: View, agent_llm: LLM | None, context: CallContext | None) -> Condensation:
        """Raises `NoCondensationError`."""

    async def hard_context_reset(
        self, view: View, agent_llm: LLM | None, context: CallContext | None
    ) -> Condensation | None:
        """The last resort when a condensation must be and the usual one cannot; None for none."""
        return None
