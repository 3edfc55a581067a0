"""A user's settings: what the settings page stores, changes and shows, and what a conversation runs with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)

from agent_core.agent.base import AgentBase
from agent_core.errors import DrydockError
from agent_core.events.masking import SecretMasker, secrets_in_address
from agent_core.llm.features import full_name
from agent_core.memory.condensers import DEFAULT_MAX_SIZE
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.analyzers import analyzer_named, policy_with
from agent_core.security.confirmation import ConfirmationPolicy, NeverConfirm
from agent_core.session.settings import AgentOptions
from agent_core.spelling import did_you_mean, probably_meant, refuse_elsewhere
from server.db.database import Database
from server.db.repositories.user_settings import StoredSettings
from server.git_providers.kinds import token_values
from server.session.sandbox_choice import ImageName
from server.settings.llm_profiles import (
    LLMProfile,
    ProfileName,
    PurposeName,
    file_problem,
    missing_profile,
    purpose_problem,
)
from server.settings.mcp_config import (
    HIDDEN,
    HiddenSecretError,
    McpConfig,
    agent_servers,
    hidden_address,
    read_config,
)
from server.settings.settings import DEMO_MODEL, MAX_COMMANDS, Settings
from server.settings.text_fields import (
    WEB,
    EnvironmentVariables,
    LongText,
    OneLine,
    SettingText,
    TrimmedText,
    is_secret_variable,
    secret_variables,
    whole_address,
)

DEMO_PREFIX = "demo/"
HOSTED_PREFIX = "openhands/"
"""Models of the original's own service: what the protocol's clients save where their user has chosen nothing."""

KEY_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY", "MISTRAL_AZURE_API_KEY"),
    "openai": ("OPENAI_API_KEY",),
    "openhands": (),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "xai": ("XAI_API_KEY",),
}
"""Providers that answer nobody without a key, and the variables from which it is taken where none is given."""


class ModelChoice(NamedTuple):
    """A model, and how it is reached."""

    model: str
    api_key: str | None = None
    base_url: str | None = None

    @property
    def is_demo(self) -> bool:
        return self.model.startswith(DEMO_PREFIX)

    def lacks_key(self, environment: Mapping[str, str] = os.environ) -> bool:
        """Whether a call is bound to be refused: its provider is known to want a key, and there is none anywhere."""
        names = KEY_VARIABLES.get(full_name(self.model).partition("/")[0])
        return not (self.api_key or self.base_url or names is None or any(map(environment.get, names)))


class ConversationOptions(NamedTuple):
    """Options of a conversation."""

    agent_class: str
    max_iterations: int
    max_budget: float | None
    policy: ConfirmationPolicy
    security_analyzer: SecurityAnalyzer
    condenser_max_size: int | None
    """Events that a model is shown before the older ones are summed up; None never does."""


def choose_model(user: StoredSettings | None, server: Settings) -> ModelChoice:
    """The model of a user's conversations.

    Key and address go together: the server's key is never sent to an address that a user typed, nor a user's key to
    the server's. The clients' default, saved without either, means the server's own model.
    """
    key = _text(server.llm_api_key)
    if user is None:
        return ModelChoice(server.model_name, key, server.llm_base_url)
    model = user.llm_model or server.llm_model or DEMO_MODEL
    if user.llm_api_key or user.llm_base_url:
        return ModelChoice(model, _text(user.llm_api_key), user.llm_base_url or None)
    if is_clients_default(user) and has_own_model(server):
        model = server.model_name
    return ModelChoice(model, key, server.llm_base_url)


def is_clients_default(user: StoredSettings) -> bool:
    """Whether this model is what clients save where their user has chosen nothing."""
    return (user.llm_model or "").startswith(HOSTED_PREFIX) and not (user.llm_api_key or user.llm_base_url)


def has_own_model(server: Settings) -> bool:
    """Whether the server's `llm_model` is another than those of the original's own service."""
    return bool(server.llm_model) and not server.model_name.startswith(HOSTED_PREFIX)


def _text(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() or None if secret is not None else None


class OwnLimits(BaseModel):
    """What a conversation chooses for itself in place of its user's settings of the same names."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    max_iterations: int | None = Field(None, ge=1, le=1_000_000)
    max_budget_per_task: float | None = Field(None, gt=0, allow_inf_nan=False)
    confirmation_mode: bool | None = None


OWN_LIMITS: Final = "own_limits"
"""Key among a conversation's options."""


def merge_settings(
    user: StoredSettings | None, server: Settings, own_limits: OwnLimits | None = None
) -> ConversationOptions:
    """What a conversation of this user runs with."""
    user_values, limits = user or StoredSettings(), own_limits or OwnLimits()
    wishes = (limits.confirmation_mode, user_values.confirmation_mode, server.confirmation_mode)
    asks = next(wish for wish in wishes if wish is not None)
    named = user_values.security_analyzer
    analyzer = server.security_analyzer if named is None else named  # an empty one was chosen: none
    return ConversationOptions(
        agent_class=user_values.agent if user_values.agent in AgentBase.agents else server.agent_class,
        max_iterations=limits.max_iterations or user_values.max_iterations or server.max_iterations,
        max_budget=limits.max_budget_per_task or user_values.max_budget_per_task or server.max_budget_per_task,
        policy=policy_with(analyzer) if asks else NeverConfirm(),
        security_analyzer=analyzer_named(analyzer),
        condenser_max_size=(user_values.condenser_max_size or DEFAULT_MAX_SIZE)
        if user_values.enable_default_condenser
        else None,
    )


SECRET_FIELDS = ("llm_api_key", "search_api_key", "sandbox_api_key")
KEPT_WHEN_NULL = frozenset({"llm_api_key", "llm_model", "llm_base_url", "search_api_key", "user_consents_to_analytics"})
"""The protocol's clients send null for what they do not know."""

KEPT_WHEN_EMPTY = frozenset({"search_api_key"})
"""Browser clients send "" for a key that they do not show; sent alone it is a wish."""


MAX_DISABLED_SKILLS: Final = 500
SkillName = Annotated[str, Field(min_length=1, max_length=200)]


def _known_agent(name: str) -> str:
    if name and name not in AgentBase.agents:
        raise ValueError(f"there is no such agent; {did_you_mean(name, AgentBase.list_agents())}")
    return name


def _model_server(address: str) -> str:
    return address and whole_address(address, WEB, "http://127.0.0.1:11434/v1")


FOR_CLIENTS: Final = "Kept for clients, which know what it means: nothing on this server acts on it."

ECHOED = {
    *("secrets_store", "provider_tokens", "provider_tokens_set", "llm_api_key_set", "search_api_key_set", "v1_enabled")
}
"""What an answer has beside the settings, and clients may send back."""


def _no_sandbox_key(key: str) -> str:
    if key:
        raise ValueError(
            "there is no remote service of sandboxes here that would take a key: sandboxes run on this server's Docker"
            " engine or host; leave it empty"
        )
    return key


ELSEWHERE: Final = {
    "skills": "your own skills are kept by PUT /api/skills/{name}",
    "load_user_skills": "your own skills are those of /api/skills; each is switched on and off there",
    "registered_marketplaces": "the operator names them (setting registered_marketplaces); POST /api/plugins installs"
    " skills from addresses of your own",
    "marketplace_path": "the operator chooses it (setting marketplace_path)",
    "load_memory": "notes are switched by enable_memory in agent_options",
    "memory_context": "notes are kept by POST /api/notes",
    "secrets": "secrets are kept by POST /api/secrets",
    "current_datetime": "agents are told the date when their conversation begins",
}
"""Options of `AgentContext` that users do not set here, each with what they do instead."""


class SettingsChange(BaseModel):
    """The body of ``POST /api/settings``: only the fields that it names count, unknown ones are ignored.

    But for those of `ELSEWHERE`, which are refused.

    `warnings` says of each unknown one that is like a known one which was probably meant, and of tokens where to.
    """

    model_config = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)

    language: SettingText | None = Field(None, description=FOR_CLIENTS)
    agent: Annotated[TrimmedText, AfterValidator(_known_agent)] | None = None
    max_iterations: int | None = Field(None, ge=1, le=1_000_000)
    security_analyzer: SettingText | None = None
    confirmation_mode: bool | None = None
    llm_model: TrimmedText | None = None
    llm_api_key: OneLine | None = None
    llm_base_url: Annotated[TrimmedText, AfterValidator(_model_server)] | None = None
    remote_runtime_resource_factor: int | None = Field(None, ge=0, le=1000)
    enable_default_condenser: bool = True
    enable_sound_notifications: bool = Field(False, description=FOR_CLIENTS)
    enable_proactive_conversation_starters: bool = Field(True, description=FOR_CLIENTS)
    enable_solvability_analysis: bool = Field(True, description=FOR_CLIENTS)
    user_consents_to_analytics: bool | None = Field(None, description=FOR_CLIENTS)
    sandbox_base_container_image: ImageName | None = None
    sandbox_runtime_container_image: ImageName | None = None
    mcp_config: McpConfig | None = None
    search_api_key: OneLine | None = None
    sandbox_api_key: Annotated[OneLine, AfterValidator(_no_sandbox_key)] | None = None
    max_budget_per_task: float | None = Field(None, gt=0, allow_inf_nan=False)
    condenser_max_size: int | None = Field(None, ge=20, le=1_000_000)
    email: SettingText | None = Field(None, description=FOR_CLIENTS)
    email_verified: bool | None = Field(None, description=FOR_CLIENTS)
    git_user_name: SettingText | None = None
    git_user_email: SettingText | None = None
    agent_options: AgentOptions | None = None
    llm_profile: Annotated[ProfileName | None, BeforeValidator(lambda value: None if value == "" else value)] = None
    llm_purposes: dict[PurposeName, ProfileName] | None = None
    llm_agents: dict[Annotated[str, Field(min_length=1), AfterValidator(_known_agent)], ProfileName] | None = None
    system_message_suffix: LongText | None = None
    user_message_suffix: LongText | None = None
    disabled_skills: Annotated[list[SkillName], Field(max_length=MAX_DISABLED_SKILLS)] | None = None
    runtime_extra_deps: Annotated[str, Field(max_length=MAX_COMMANDS)] | None = None
    runtime_startup_env_vars: EnvironmentVariables | None = None
    load_public_skills: bool | None = None
    load_org_skills: bool | None = None
    load_project_skills: bool | None = None
    disabled_plugins: Annotated[list[SkillName], Field(max_length=MAX_DISABLED_SKILLS)] | None = None

    _warnings: list[str] = PrivateAttr(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        return self._warnings

    @model_validator(mode="wrap")
    @classmethod
    def _notes_unknown(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, Mapping):
            refuse_elsewhere(cls.__name__, data, ELSEWHERE)
        change = handler(data)
        if isinstance(data, Mapping):
            known = cls.model_fields.keys()
            change._warnings = probably_meant((name for name in data if name not in known | ECHOED), known)
            if any(
                isinstance(one, Mapping) and one.get("provider_tokens") for one in (data, data.get("secrets_store"))
            ):
                change._warnings.append("provider_tokens was ignored; tokens are stored by POST /api/add-git-providers")
        return change


def own_profiles(settings: StoredSettings) -> tuple[dict[str, LLMProfile], dict[str, str]]:
    """The user's profiles by their names; and of those that cannot be read any more, why."""
    found, broken = {}, {}
    for name, options in (settings.llm_profiles or {}).items():
        try:
            found[name] = LLMProfile.model_validate(options)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(map(str, problem["loc"]))
            words = str(problem["msg"]).removeprefix("Value error, ")
            broken[name] = f"{place}: {words}" if place else words
    return found, broken


class UnknownProfileError(DrydockError, ValueError):
    """`field` of a change names a profile or a model that there is not; the message says which, and the nearest."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


def check_references(settings: StoredSettings, change: SettingsChange, server: Settings) -> None:
    """Raise `UnknownProfileError` where a field that the change names has a model that the user cannot have."""
    if change.llm_model and change.llm_model != server.llm_model and (problem := file_problem(change.llm_model)):
        raise UnknownProfileError("llm_model", problem)
    known = {**server.llm_profiles, **(own_profiles(settings)[0] if server.allow_user_llm_profiles else {})}
    for field in ("llm_profile", "llm_purposes", "llm_agents"):
        value = getattr(change, field)
        if field not in change.model_fields_set or value is None:
            continue
        for key, name in value.items() if isinstance(value, dict) else [("", value)]:
            if field == "llm_purposes" and (problem := purpose_problem(key)) is not None:
                raise UnknownProfileError(f"{field}.{key}", problem)
            if name not in known:
                raise UnknownProfileError(f"{field}.{key}".strip("."), missing_profile(name, known))


def merged(
    stored: StoredSettings | None, change: SettingsChange, own_servers: McpConfig | None = None
) -> StoredSettings:
    """The stored settings with the named fields replaced.

    MCP servers are taken as `public_form` shows them, `own_servers` left aside; `HiddenSecretError` where a placeholder
    stands for no stored secret.
    """
    values: dict[str, Any] = {} if stored is None else dict(stored)
    for name in change.model_fields_set:
        value = getattr(change, name)
        is_alone = len(change.model_fields_set) == 1
        if (value is None and name in KEPT_WHEN_NULL) or (value == "" and name in KEPT_WHEN_EMPTY and not is_alone):
            continue
        if name == "llm_base_url" and value:
            value = _with_stored_secrets(value, values.get(name) or "")
        if name == "runtime_startup_env_vars" and value:
            value = _with_hidden_ones(value, values.get(name) or {})
        if isinstance(value, McpConfig):
            stored_servers = read_config(values.get("mcp_config"))
            value = value.restored(stored_servers, follows=True).but_for(own_servers or McpConfig())
        values[name] = value.model_dump(exclude_none=name == "agent_options") if isinstance(value, BaseModel) else value
    return StoredSettings.model_validate(values)


def _with_stored_secrets(address: str, stored: str) -> str:
    if HIDDEN not in secrets_in_address(address):
        return address
    if hidden_address(stored) != address:
        raise HiddenSecretError(
            f"llm_base_url: {HIDDEN} stands for a stored password or key, and none is stored for this address; send the"
            " secret itself"
        )
    return stored


def _with_hidden_ones(variables: dict[str, SecretStr], stored: dict[str, SecretStr]) -> dict[str, SecretStr]:
    found = {}
    for name, value in variables.items():
        if value.get_secret_value() == HIDDEN and name not in stored:
            raise HiddenSecretError(
                f"runtime_startup_env_vars.{name}: {HIDDEN} stands for a stored value, and none is stored under this"
                " name; send the value itself"
            )
        found[name] = stored[name] if value.get_secret_value() == HIDDEN else value
    return found


def _shown(variables: Mapping[str, SecretStr]) -> dict[str, str]:
    values = {name: value.get_secret_value() for name, value in variables.items()}
    return {name: HIDDEN if is_secret_variable(name, value) else value for name, value in values.items()}


def sandbox_environment(user: StoredSettings | None, server: Settings) -> dict[str, SecretStr]:
    """The variables of everything that runs in the user's sandboxes: theirs, where they may, before the server's."""
    own = user.runtime_startup_env_vars if user is not None and server.users_set_up_sandboxes else None
    return {**server.runtime_startup_env_vars, **(own or {})}


def plain_environment(user: StoredSettings | None, server: Settings) -> dict[str, str]:
    """The same as a sandbox is given them."""
    return {name: value.get_secret_value() for name, value in sandbox_environment(user, server).items()}


def public_form(settings: StoredSettings, own_servers: McpConfig | None = None) -> dict[str, Any]:
    """The reply of ``GET /api/settings``: no key, but whether there is each; `own_servers` stand before the user's."""
    data = settings.model_dump(mode="json", exclude={"provider_tokens", "llm_profiles"}) | dict.fromkeys(SECRET_FIELDS)
    variables = settings.runtime_startup_env_vars
    shown = read_config(settings.mcp_config).hidden() if settings.mcp_config is not None else None
    if own_servers is not None:
        shown = own_servers.without_secrets().followed_by(shown or McpConfig())
    return {
        **data,
        "llm_base_url": settings.llm_base_url and hidden_address(settings.llm_base_url),
        "mcp_config": None if shown is None else shown.model_dump(mode="json"),
        "runtime_startup_env_vars": None if variables is None else _shown(variables),
        "secrets_store": {"provider_tokens": {}},
        "provider_tokens_set": {name: token.host for name, token in settings.provider_tokens.items()},
        "llm_api_key_set": bool(settings.llm_api_key),
        "search_api_key_set": bool(settings.search_api_key),
        "v1_enabled": False,
    }


def secret_values(settings: StoredSettings) -> list[str]:
    """Every stored secret, for masking."""
    values = (getattr(settings, name) for name in SECRET_FIELDS)
    servers = agent_servers(None, read_config(settings.mcp_config))
    keys = [value.get_secret_value() for value in values if value]
    keys += [secret for one in own_profiles(settings)[0].values() for secret in one.secrets]
    keys += secret_variables(settings.runtime_startup_env_vars or {})
    return [*keys, *secrets_in_address(settings.llm_base_url or ""), *servers.secrets, *token_values(settings)]


async def masker_of(database: Database, user_id: str) -> SecretMasker:
    """Hides every secret that is stored for the user; may raise `DatabaseError`."""
    user = await database.settings.get(user_id)
    own = await database.user_secrets.values(user_id)
    masker = SecretMasker(secret_values(user) if user is not None else ())
    masker.add(one.secret.get_secret_value() for one in own.values())
    return masker
