"""`ConversationModels`: which model does what in a user's conversations, of the named and the configured ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Final

from pydantic import SecretStr, ValidationError

from agent_core.agent.base import AgentBase
from agent_core.errors import LLMBadRequestError
from agent_core.llm.config import LLMConfig
from agent_core.llm.llm import LLM
from agent_core.llm.profiles import FallbackStrategy
from agent_core.llm.registry import NO_ROUTER, LLMRegistry
from agent_core.llm.transport.exchange import Chunk, CompletionRequest, Endpoint
from server.db.user_settings import StoredSettings
from server.errors import ConfigurationError
from server.session.user_settings import ModelChoice, choose_model, has_own_model, is_clients_default
from server.settings.llm_profiles import LLMProfile, missing_profile
from server.settings.settings import Settings

LLM_PROFILE: Final = "llm_profile"
"""Key among a conversation's options: the profile that it names."""

_OPTIONS: Final = LLMConfig.model_fields.keys()
_AWS: Final = ("aws_access_key_id", "aws_profile_name")


class ConversationModels:
    """The models of a user's conversations; `chosen` is the profile that one of them names.

    Names that a user gives mean their own profiles before the server's; names in the server's settings only those. A
    name that nothing has any more is a model whose every call fails and says so.
    """

    def __init__(self, user: StoredSettings | None, server: Settings, chosen: str | None = None) -> None:
        self._user = user
        self._server = server
        self._chosen = chosen
        self._own: Mapping[str, LLMProfile] = {}

    def get_llm_config_from_agent(self, agent: str) -> LLM:
        """The model of agents of this class."""
        server = self._server
        if self._chosen:
            return self._named(self._chosen, of_user=True)
        if self._is_users:
            return self._flat(choose_model(self._user, server))
        name = server.llm_agents.get(agent) or server.llm_profile
        return self._named(name, of_user=False) if name else self._flat(choose_model(self._user, server))

    def get_agent_to_llm_config_map(self) -> dict[str, LLM]:
        """The models of the agent classes that have one of their own."""
        return {agent: self.get_llm_config_from_agent(agent) for agent in self._server.llm_agents}

    def for_purposes(self) -> dict[str, LLM]:
        """The models by purpose, where another than the agent's is used."""
        if self._is_users:
            return {}
        return {purpose: self._named(name, of_user=False) for purpose, name in self._server.llm_purposes.items()}

    @property
    def secrets(self) -> list[str]:
        """Every secret in the profiles, for masking."""
        return [secret for one in (*self._own.values(), *self._server.llm_profiles.values()) for secret in one.secrets]

    @property
    def _is_users(self) -> bool:
        """Whether the user chose a model, and not only what clients save where nothing was chosen."""
        user, server = self._user, self._server
        if user is None or not (user.llm_model or user.llm_api_key or user.llm_base_url):
            return False
        return not (is_clients_default(user) and (server.llm_profile or has_own_model(server)))

    def _known(self, of_user: bool) -> dict[str, LLMProfile]:
        return {**self._server.llm_profiles, **(self._own if of_user else {})}

    def _named(self, name: str, *, of_user: bool) -> LLM:
        known = self._known(of_user)
        if name not in known:
            return unusable_model(name, missing_profile(name, known))
        profile = known[name]
        is_own = of_user and name in self._own
        if profile.router is None:
            return self._model(name, profile, is_own=is_own)
        registry = LLMRegistry()
        if profile.router == NO_ROUTER:
            return unusable_model(name, f"{NO_ROUTER} is no router, but the lack of one: name the model itself")
        try:
            for other in dict.fromkeys(profile.models.values()):
                registry.add(self._other(other, known, is_own=is_own))
            routed = {key: _usage_id(other) for key, other in profile.models.items()}
            return registry.get_router(profile.router, usage_id=_usage_id(name), **routed)
        except (KeyError, TypeError, ValueError) as error:
            return unusable_model(name, _words(error))

    def _model(self, name: str, profile: LLMProfile, *, is_own: bool) -> LLM:
        values = {key: value for key, value in profile.options.items() if key in _OPTIONS}
        names_no_way = not any((profile.api_key, profile.base_url, profile.ollama_base_url))
        if names_no_way and not any(getattr(profile, one) for one in _AWS):
            flat = choose_model(self._user if is_own else None, self._server)
            if _provider_of(flat.model) == _provider_of(profile.model):
                values |= {"api_key": flat.api_key, "base_url": flat.base_url}
        if profile.fallbacks:
            known = self._known(is_own)
            others = {one: self._other(one, known, is_own=is_own) for one in profile.fallbacks}
            values["fallback_strategy"] = FallbackStrategy(fallback_llms=tuple(others), profiles=others)
        return LLM.model_validate({**values, "usage_id": _usage_id(name)})

    def _other(self, name: str, known: Mapping[str, LLMProfile], *, is_own: bool) -> LLM:
        """A model that another one falls back to, or a router chooses from: it falls back to nothing itself."""
        if name not in known:
            return unusable_model(name, missing_profile(name, known))
        profile = known[name]
        if profile.router is not None:
            return unusable_model(name, f"the profile {name!r} is a router, and only models can be named here")
        plain = profile.model_copy(update={"fallbacks": []})
        return self._model(name, plain, is_own=is_own and name in self._own)

    def _flat(self, choice: ModelChoice) -> LLM:
        key = SecretStr(choice.api_key) if choice.api_key else None
        return LLM(model=choice.model, api_key=key, base_url=choice.base_url)


def _usage_id(name: str) -> str:
    return f"profile:{name}"


def _provider_of(model: str) -> str:
    return model.partition("/")[0] if "/" in model else "openai"


def _words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return str(problem["msg"]).removeprefix("Value error, ")
    return str(error.args[0]) if error.args else type(error).__name__


class _Refusing:
    """A `Transport` of a model that cannot be used: every call fails with the reason."""

    def __init__(self, problem: str) -> None:
        self.problem = problem

    async def prepare(self, endpoint: Endpoint) -> None:
        """There is nothing to prepare."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        if self.problem:
            raise LLMBadRequestError(self.problem)
        yield Chunk()


def unusable_model(name: str, problem: str) -> LLM:
    """A model in the place of a profile that cannot be used: a conversation with it opens, and says why."""
    text = f"The model profile {name!r} cannot be used: {problem}"
    return LLM(model=f"profile/{name}").using(_Refusing(text))


def problem_of(llm: LLM) -> str | None:
    """Why this is the model of a profile that cannot be used; None for others."""
    transport = llm._transport
    return transport.problem if isinstance(transport, _Refusing) else None


def check_models(settings: Settings) -> None:
    """Refuse settings whose models cannot be used: a router that there is not, agents that there are not.

    Raises:
        ConfigurationError: names the setting and the problem.
    """
    models = ConversationModels(None, settings)
    for name in settings.llm_profiles:
        if (problem := problem_of(models._named(name, of_user=False))) is not None:
            raise ConfigurationError(f"llm_profiles.{name}: {problem}")
    for setting in ("llm_agents", "agent_configs"):
        for agent in getattr(settings, setting):
            if agent not in AgentBase.agents:
                known = ", ".join(AgentBase.list_agents())
                raise ConfigurationError(f"{setting}: there is no agent {agent!r}; there are: {known}")
