"""A user's settings: one document for each, its secrets encrypted."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from sqlalchemy import Select, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.events.event import utc_now
from agent_core.troubles import Trouble, coded
from server.auth.secrets import SEALED, SecretUnreadableError
from server.db.errors import DatabaseUnreadableError
from server.db.tables import settings as settings_table
from server.db.writer import SealedRepository

ENCRYPTED = frozenset(
    {"llm_api_key", "llm_base_url", "search_api_key", "sandbox_api_key", "mcp_config", "provider_tokens"}
    | {"llm_profiles"}
    | {"runtime_startup_env_vars"}
)
"""Fields that are secrets, or hold some (passwords in addresses, keys of models and MCP servers, git tokens)."""

_ONCE_PLAIN = frozenset({"llm_base_url"})

_log = logging.getLogger(__name__)


class ProviderToken(BaseModel):
    """A token for a provider of git repositories, and the provider's address where it is not the public one."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    token: SecretStr
    host: str | None = None


class StoredSettings(BaseModel):
    """A user's stored settings; None where the server's default applies. Unknown (newer) fields are dropped."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    language: str | None = None
    agent: str | None = None
    max_iterations: int | None = None
    security_analyzer: str | None = None
    confirmation_mode: bool | None = None
    llm_model: str | None = None
    llm_api_key: SecretStr | None = None
    llm_base_url: str | None = None
    remote_runtime_resource_factor: int | None = None
    enable_default_condenser: bool = True
    enable_sound_notifications: bool = False
    enable_proactive_conversation_starters: bool = True
    enable_solvability_analysis: bool = True
    user_consents_to_analytics: bool | None = None
    sandbox_base_container_image: str | None = None
    sandbox_runtime_container_image: str | None = None
    mcp_config: dict[str, Any] | None = None
    search_api_key: SecretStr | None = None
    sandbox_api_key: SecretStr | None = None
    max_budget_per_task: float | None = None
    condenser_max_size: int | None = Field(default=None, ge=20)
    email: str | None = None
    email_verified: bool | None = None
    git_user_name: str | None = None
    git_user_email: str | None = None
    provider_tokens: dict[str, ProviderToken] = Field(default_factory=dict)
    agent_options: dict[str, Any] | None = None
    llm_profiles: dict[str, dict[str, Any]] | None = None
    llm_profile: str | None = None
    llm_purposes: dict[str, str] | None = None
    llm_agents: dict[str, str] | None = None
    system_message_suffix: str | None = None
    user_message_suffix: str | None = None
    disabled_skills: list[str] | None = None
    runtime_extra_deps: str | None = None
    runtime_startup_env_vars: dict[str, SecretStr] | None = None
    load_public_skills: bool | None = None
    load_org_skills: bool | None = None
    load_project_skills: bool | None = None
    disabled_plugins: list[str] | None = None


class SettingsStore(Protocol):
    """Keeps `StoredSettings`, one for each user ("" without users)."""

    async def get(self, user_id: str = "") -> StoredSettings | None:
        """The user's settings, None when none were saved."""

    async def change(
        self,
        make: Callable[[StoredSettings | None], StoredSettings],
        user_id: str = "",
        *,
        sets: Collection[str] = (),
    ) -> None:
        """Replace the user's settings by what `make` makes of those stored, durably; concurrent changes queue.

        What `make` raises passes, and nothing is stored. A secret that cannot be read stays as it is stored, unless
        `make` gives another one or `sets` names it.
        """


class SettingsRepository(SealedRepository):
    """The `SettingsStore` in the database."""

    async def get(self, user_id: str = "") -> StoredSettings | None:
        """The user's settings, None when none were saved. An unreadable secret counts as unset, is kept and logged.

        `DatabaseUnreadableError` where they are damaged: nobody works with other settings than the user's own.
        """
        rows = await self._engines.select(_document_of(user_id))
        if not rows:
            return None
        known, _ = self._opened(user_id, _plain(rows[0].document))
        try:
            if isinstance(rows[0].document, dict):
                return StoredSettings.model_validate(known)
            what = "no JSON"
        except ValidationError as error:
            what = ", ".join(_fields_of(error)) or "they do not fit together"
        raise DatabaseUnreadableError(
            f"the stored settings are damaged ({what}); save them again, all of them, or restore a backup"
        )

    async def change(
        self,
        make: Callable[[StoredSettings | None], StoredSettings],
        user_id: str = "",
        *,
        sets: Collection[str] = (),
    ) -> None:
        """See `SettingsStore.change`."""

        async def apply(connection: AsyncConnection) -> None:
            document = await connection.scalar(_document_of(user_id).with_for_update())
            known, sealed = self._opened(user_id, _plain(document))
            for name in _unusable(known):  # what is damaged is replaced by what is set now, or is not set
                known.pop(name, None)
            settings = make(StoredSettings.model_validate(known) if document is not None else None)
            remaining = {name: text for name, text in sealed.items() if name not in sets}
            row = {"document": remaining | self._encrypted(user_id, settings), "updated_at": utc_now()}
            if document is None:
                await connection.execute(insert(settings_table).values(user_id=user_id, **row))
            else:
                await connection.execute(update(settings_table).where(settings_table.c.user_id == user_id).values(row))

        await self._writer.change(apply)

    def _encrypted(self, user_id: str, settings: StoredSettings) -> dict[str, Any]:
        document = settings.model_dump(mode="json", exclude=set(ENCRYPTED))
        for name in ENCRYPTED:
            value = getattr(settings, name)
            if isinstance(value, SecretStr):
                value = value.get_secret_value()
            elif name == "runtime_startup_env_vars":
                value = {key: one.get_secret_value() for key, one in (value or {}).items()} or None
            elif name == "provider_tokens":
                value = {key: {"token": one.token.get_secret_value(), "host": one.host} for key, one in value.items()}
                value = value or None
            if value is not None:
                document[name] = self._box.encrypt(json.dumps(value), purpose=purpose_of_setting(user_id, name))
        return document

    def _opened(self, user_id: str, document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        readable = dict(document)
        sealed: dict[str, Any] = {}
        for name in sealed_fields(document):
            try:
                readable[name] = json.loads(
                    self._box.decrypt(document[name], purpose=purpose_of_setting(user_id, name))
                )
            except SecretUnreadableError as error:
                extra = coded(Trouble.STORAGE_UNREADABLE)
                _log.warning("the setting %s of user %r counts as not set: %s", name, user_id, error, extra=extra)
                sealed[name] = readable.pop(name)
        return readable, sealed


def _unusable(document: Mapping[str, Any]) -> list[str]:
    try:
        StoredSettings.model_validate(document)
    except ValidationError as error:
        return _fields_of(error)
    return []


def _fields_of(error: ValidationError) -> list[str]:
    return sorted({str(one["loc"][0]) for one in error.errors(include_input=False) if one["loc"]})


def _plain(document: object) -> dict[str, Any]:
    return document if isinstance(document, dict) else {}


def sealed_fields(document: Mapping[str, Any]) -> list[str]:
    """Which fields of a stored document are encrypted; an earlier version left some as they were."""
    names = sorted(ENCRYPTED & document.keys())
    return [name for name in names if name not in _ONCE_PLAIN or str(document[name]).startswith(SEALED)]


def _document_of(user_id: str) -> Select[tuple[dict[str, Any]]]:
    return select(settings_table.c.document).where(settings_table.c.user_id == user_id)


def purpose_of_setting(user_id: str, name: str) -> str:
    """What the encrypted text is bound to."""
    return f"settings/{name}/{user_id}"
