"""Models by name: those of one conversation by usage id, and those that the user stored as profiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from agent_core.events.masking import EXPOSE_SECRETS
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM
from agent_core.llm.metrics import ConversationStats
from agent_core.llm.profiles import ProfileFiles
from agent_core.llm.render import WireMessage
from agent_core.llm.router import RouterLLM
from agent_core.spelling import did_you_mean, spelled

Subscriber = Callable[[LLM], None]


NO_ROUTER = "noop_router"


@spelled
class LLMRegistry:
    """Models by usage id.

    Nothing can be replaced: a conversation that changes its model registers it under another id. With `stats`, a model
    that has not counted anything yet goes on from what was restored for its id. `retry_listener` is that of the models
    that `get_llm` registers, unless they have their own (see `LLM.retry_listener`).
    """

    def __init__(
        self,
        retry_listener: Callable[[int, int, Exception], object] | None = None,
        *,
        stats: ConversationStats | None = None,
    ) -> None:
        self._retry_listener = retry_listener
        self._stats = stats
        self._subscriber: Subscriber | None = None
        self._models: dict[str, LLM] = {}

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell `subscriber` of every model, those already registered first; it takes the place of an earlier one."""
        self._subscriber = subscriber
        for llm in self:
            subscriber(llm)

    def add(self, llm: LLM) -> None:
        """Register a model under its usage id (`ValueError` if taken); a shared counter is replaced by its own."""
        if llm.usage_id in self._models:
            raise ValueError(f"usage_id {llm.usage_id!r} is already registered: give each model its own usage_id")
        if any(llm.metrics is other.metrics for other in self):
            llm.reset_metrics()
        restored = self._stats.take_restored(llm.usage_id) if self._stats is not None else None
        if restored is not None and not llm.metrics.calls:
            llm.restore_metrics(restored)
        self._models[llm.usage_id] = llm
        if self._subscriber is not None:
            self._subscriber(llm)

    def get(self, usage_id: str) -> LLM:
        """The model of that id; raises `KeyError` if there is none."""
        if usage_id not in self._models:
            known = ", ".join(sorted(self._models)) or "none"
            raise KeyError(f"no model with usage_id {usage_id!r}; registered: {known}")
        return self._models[usage_id]

    def get_llm(self, usage_id: str, config: LLM | None = None) -> LLM:
        """The model of that id, registered with `config` if it is not yet; `ValueError` if none or another."""
        if usage_id not in self._models:
            if config is None:
                raise ValueError(f"no model with usage_id {usage_id!r} is registered; give its configuration")
            listener = config.retry_listener or self._retry_listener
            own = config.model_copy(update={"usage_id": usage_id, "retry_listener": listener})
            if own.usage_id != config.usage_id:
                own.reset_metrics()
            self.add(own)
        found = self._models[usage_id]
        if config is not None:
            same = {"usage_id": usage_id, "retry_listener": found.retry_listener}
            if found != config.model_copy(update=same):
                raise ValueError(f"usage_id {usage_id!r} is registered with another configuration: give each its own")
        return found

    def get_router(self, name: str = NO_ROUTER, usage_id: str = "agent", **llms_for_routing: str) -> LLM:
        """A router over registered models, by the name of its kind; `NO_ROUTER` is the model of `usage_id` itself.

        `llms_for_routing` are the usage ids of its models by the keys that it chooses from; it is named after the
        first. Raises `KeyError` for an unknown model, `ValueError` for an unknown router or one that lacks a model.
        """
        if name == NO_ROUTER:
            return self.get(usage_id)
        routers = {
            one.router_name: one for one in LLM.classes.values() if issubclass(one, RouterLLM) and one.router_name
        }
        if name not in routers:
            raise ValueError(f"{name!r} is no router; {did_you_mean(name, [NO_ROUTER, *routers])}")
        models = {key: self.get(one) for key, one in llms_for_routing.items()}
        named = {"model": next(iter(models.values())).model} if models else {}
        return routers[name].model_validate({**named, "llms_for_routing": models, "usage_id": f"{usage_id}-router"})

    async def request_extraneous_completion(
        self, usage_id: str, config: LLM | None, messages: Sequence[Message | WireMessage]
    ) -> str:
        """What a model (see `get_llm`) says to messages outside of any conversation; raises `LLMError`."""
        return (await self.get_llm(usage_id, config).acompletion(messages)).message.text

    def list_usage_ids(self) -> list[str]:
        return list(self._models)

    def __contains__(self, usage_id: object) -> bool:
        return usage_id in self._models

    def __iter__(self) -> Iterator[LLM]:
        return iter(tuple(self._models.values()))

    def __len__(self) -> int:
        return len(self._models)


class StoredModels(Protocol):
    """Models by the names that a user, an agent or a definition may give."""

    def list(self) -> list[str]:
        """The sorted names."""

    def load(self, name: str) -> LLM:
        """A fresh model; raises `OSError` or `ValueError`, which say why there is none and which there are."""


@spelled
class ProfileStore:
    """`StoredModels` in files; without a directory, those in the user's home (see `ProfileFiles`)."""

    def __init__(self, base_dir: str | os.PathLike[str] | None = None) -> None:
        self._files = ProfileFiles(base_dir)

    def list(self) -> list[str]:
        return self._files.names()

    def save(self, name: str, llm: LLM, *, include_secrets: bool = False) -> None:
        """Store what is configured of a model; keys only if asked for. Raises `ValueError` for what is no name."""
        context = {EXPOSE_SECRETS: include_secrets}
        self._files.write(name, llm.model_dump_json(exclude_defaults=True, indent=2, context=context))

    def load(self, name: str) -> LLM:
        """The stored model; raises `FileNotFoundError`, or `ValueError` for what is no profile."""
        return LLM.model_validate(self._files.read(name))

    def delete(self, name: str) -> None:
        """Remove a profile; one that is not there is no error."""
        self._files.path(name).unlink(missing_ok=True)
