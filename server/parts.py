"""The parts of a server that an operator may replace by classes of their own: a setting with a dotted path for each."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from agent_core.runtime.sandbox import SandboxProvider
from server.auth.identity import Authenticator
from server.conversation_manager.conversation_manager import ConversationManager
from server.db.blobs import BlobStore
from server.db.repositories.user_secrets import SecretStore
from server.db.repositories.user_settings import SettingsStore
from server.errors import ConfigurationError
from server.listeners import MonitoringListener
from server.session.agents.experiments import ExperimentManager
from server.settings.extensions import class_at, last_line
from server.settings.settings import Settings

PARTS: Final[Mapping[str, type]] = {
    "conversation_manager_class": ConversationManager,
    "experiment_manager_class": ExperimentManager,
    "authenticator_class": Authenticator,
    "settings_store_class": SettingsStore,
    "secrets_store_class": SecretStore,
    "blob_store_class": BlobStore,
    "sandbox_provider_class": SandboxProvider,
    "monitoring_listener_class": MonitoringListener,
}
"""What the class that a setting names has to be: a subclass, or for a protocol one that defines all of it."""


def part_class(settings: Settings, setting: str) -> Any:
    """The class that this setting of `PARTS` names, None where it names none; `ConfigurationError`: it is not one."""
    path: str | None = getattr(settings, setting)
    return None if path is None else class_at(path, PARTS[setting], setting=setting)


def make_part(settings: Settings, setting: str, *arguments: Any) -> Any:
    """An object of `part_class`, made with these arguments; `ConfigurationError` where that fails."""
    made = part_class(settings, setting)
    if made is None:
        return None
    try:
        return made(*arguments)
    except (Exception, SystemExit) as error:
        path = getattr(settings, setting)
        raise ConfigurationError(f"{setting}: {path!r} cannot be made: {last_line(error)}") from error


async def enter_part(stack: AsyncExitStack, settings: Settings, setting: str) -> Any:
    """One that is made with the settings, entered where it is an async context manager, and left with the `stack`."""
    part = make_part(settings, setting, settings)
    if part is None or not hasattr(type(part), "__aenter__"):
        return part
    try:
        return await stack.enter_async_context(part)
    except (Exception, SystemExit) as error:
        path = getattr(settings, setting)
        raise ConfigurationError(f"{setting}: {path!r} cannot be entered: {last_line(error)}") from error
