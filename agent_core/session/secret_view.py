"""The secrets of a library's conversation, as its program sees them (`state.secret_registry`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent_core.runtime.loop_thread import library_loop
from agent_core.security.secrets import GivenSecret, SecretRegistry
from agent_core.session.conversation_loop import ConversationLoop


class SecretView:
    """Names and descriptions of the secrets there are at the moment; iterating gives the names. Shows no value."""

    def __init__(self, work: ConversationLoop) -> None:
        self._work = work

    def __iter__(self) -> Iterator[str]:
        return iter(self.descriptions())

    def __len__(self) -> int:
        return len(self.descriptions())

    def __contains__(self, name: object) -> bool:
        return name in self.descriptions()

    def __repr__(self) -> str:
        return f"SecretView({list(self)})"

    def descriptions(self) -> dict[str, str]:
        """What the model is told of them: descriptions by name."""
        return self._registry().descriptions()

    def update(self, secrets: Mapping[str, GivenSecret]) -> None:
        """The same as `Conversation.update_secrets`."""
        library_loop().run(self._work.sessions.update_secrets(dict(secrets)))

    def environment_for(self, command: str) -> dict[str, str]:
        """The variables with the values that a command gets which names them; those that cannot be had are left out."""
        return library_loop().run(self._registry().environment_for(command))

    def _registry(self) -> SecretRegistry:
        registry = SecretRegistry(lambda values: None)  # nothing is shown to anybody here
        context = self._work.agent.agent_context
        registry.update((context.secrets if context is not None else None) or {})
        registry.update(self._work.settings.named_secrets)
        return registry
