"""`ConversationModels`: which model does what in a user's conversations, of the named and the configured ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from agent_core.errors import LLMBadRequestError
from agent_core.events.masking import SENSITIVE_NAME
from agent_core.llm.config import LLMConfig
from agent_core.llm.features import full_name, provider_of
from agent_core.llm.llm import LLM
from agent_core.llm.profiles import FallbackStrategy
from agent_core.llm.registry import LLMRegistry
from agent_core.llm.router import RouterLLM
from agent_core.llm.transport.exchange import Chunk, CompletionRequest, Endpoint
from agent_core.llm.transport.routes import HOST_CREDENTIALS
from server.db.repositories.user_settings import StoredSettings
from server.session.user_settings import (
    ModelChoice,
    choose_model,
    has_own_model,
    is_clients_default,
    merge_settings,
    own_profiles,
)
from server.settings.llm_profiles import ADDRESSES, LLMProfile, file_problem, missing_profile, words_of
from server.settings.settings import Settings

LLM_PROFILE: Final = "llm_profile"
"""Key among a conversation's options: the profile that it names."""

_OPTIONS: Final = LLMConfig.model_fields.keys()
_AWS: Final = ("aws_access_key_id", "aws_profile_name")


class ConversationModels:
    """The models of a user's conversations, and their `StoredModels`; `chosen` is the profile that one of them names.

    Names that a user gives mean their own profiles before the server's; names in the server's settings only those. A
    name that nothing has any more is a model whose every call fails and says so.
    """

    def __init__(self, user: StoredSettings | None, server: Settings, chosen: str | None = None) -> None:
        self._user = user or StoredSettings()
        self._server = server
        self._chosen = chosen
        allowed = server.allow_user_llm_profiles
        self._own, self._broken = own_profiles(self._user) if allowed else ({}, {})

    def get_llm_config_from_agent(self, agent: str) -> LLM:
        """The model of agents of this class."""
        name, of_user = self._name_for(agent)
        if name is None:
            return self._flat(choose_model(self._user, self._server))
        return self._named(name, of_user=of_user)

    def get_agent_to_llm_config_map(self) -> dict[str, LLM]:
        """The models of the agent classes that have one of their own, whatever the conversation names."""
        every = ConversationModels(self._user, self._server)
        classes = {**self._server.llm_agents, **(self._user.llm_agents or {})}
        return {agent: every.get_llm_config_from_agent(agent) for agent in sorted(classes)}

    def for_purposes(self, agent: str) -> dict[str, LLM]:
        """The models by purpose, where another than the one of agents of this class is used.

        What the server's settings say of it does not count where that is reached with a key or an address of the
        user's own.
        """
        found = {purpose: self._named(name, of_user=True) for purpose, name in (self._user.llm_purposes or {}).items()}
        if not self._is_at_users_cost(agent):
            for purpose, name in self._server.llm_purposes.items():
                found.setdefault(purpose, self._named(name, of_user=False))
        return found

    def name_for(self, agent: str) -> str | None:
        """The profile of agents of this class; None where the three flat settings say what their model is."""
        return self._name_for(agent)[0]

    @property
    def profiles(self) -> dict[str, tuple[LLMProfile, bool]]:
        """The profiles that the user can name, each with whether it is their own, which hides one of the server's."""
        everybodys = {name: (profile, False) for name, profile in self._server.llm_profiles.items()}
        return {**everybodys, **{name: (profile, True) for name, profile in self._own.items()}}

    def present(self) -> LLM:
        """The model of the agents that the user's conversations have now."""
        return self.get_llm_config_from_agent(merge_settings(self._user, self._server).agent_class)

    def llm(self, name: str) -> LLM:
        """The model of the profile that the user means by this name."""
        return self._named(name, of_user=True)

    def load(self, name: str) -> LLM:
        """The same, for agents that name one; `ValueError` says why nothing can be done with it."""
        llm = self.llm(name)
        if (problem := problem_of(llm)) is not None:
            raise ValueError(problem)
        return llm

    def problem_of(self, name: str) -> str | None:
        """Why nothing can be done with the profile of this name; None where it can be used, as far as one can see."""
        return problem_of(self.llm(name))

    @property
    def server_secrets(self) -> list[str]:
        """Every secret in the server's profiles, for masking."""
        return [secret for one in self._server.llm_profiles.values() for secret in one.secrets]

    def list(self) -> list[str]:
        """The sorted names that the user can give."""
        return sorted(self.profiles)

    def _name_for(self, agent: str) -> tuple[str | None, bool]:
        """The profile's name, and whether it is the user who named it."""
        user, server = self._user, self._server
        of_user = self._chosen or (user.llm_agents or {}).get(agent) or user.llm_profile
        if of_user:
            return of_user, True
        return (None if self._has_flat_model else server.llm_agents.get(agent) or server.llm_profile), False

    @property
    def _has_flat_model(self) -> bool:
        """Whether the user chose a model, and not only what clients save where nothing was chosen."""
        user, server = self._user, self._server
        if not (user.llm_model or user.llm_api_key or user.llm_base_url):
            return False
        return not (is_clients_default(user) and (server.llm_profile or has_own_model(server)))

    def _is_at_users_cost(self, agent: str) -> bool:
        name, of_user = self._name_for(agent)
        if name is not None:
            return of_user and name in self._own
        return bool(self._user.llm_api_key or self._user.llm_base_url)

    def _known(self, of_user: bool) -> dict[str, LLMProfile]:
        return {**self._server.llm_profiles, **(self._own if of_user else {})}

    def _missing(self, name: str, known: Mapping[str, LLMProfile], *, of_user: bool) -> str:
        if of_user and name in self._broken:
            return f"it is stored in a form that is not taken any more ({self._broken[name]}); store it again"
        if of_user and name in (self._user.llm_profiles or {}):
            return "this server's operator allows no profiles of users; choose one of the server's"
        return missing_profile(name, known)

    def _named(self, name: str, *, of_user: bool) -> LLM:
        known = self._known(of_user)
        if name not in known:
            return unusable_model(name, self._missing(name, known, of_user=of_user))
        profile = known[name]
        is_own = of_user and name in self._own
        if profile.router is None:
            return self._model(name, profile, is_own=is_own)
        registry = LLMRegistry()
        try:
            for other in dict.fromkeys(profile.models.values()):
                llm = self._other(other, known, is_own=is_own)
                if (problem := problem_of(llm)) is not None:
                    return unusable_model(name, problem)
                registry.add(llm)
            routed = {key: _usage_id(other) for key, other in profile.models.items()}
            return registry.get_router(profile.router, usage_id=_usage_id(name), **routed)
        except (KeyError, TypeError, ValueError) as error:
            return unusable_model(name, words_of(error))

    def _model(self, name: str, profile: LLMProfile, *, is_own: bool) -> LLM:
        values = {key: value for key, value in profile.options.items() if key in _OPTIONS}
        names_no_way = not any((profile.api_key, profile.base_url, profile.ollama_base_url))
        if names_no_way and not any(getattr(profile, one) for one in _AWS):
            flat = choose_model(self._user if is_own else None, self._server)
            at_address = bool(flat.base_url)
            if provider_of(flat.model, at_address=at_address) == provider_of(profile.model, at_address=at_address):
                values |= {"api_key": flat.api_key, "base_url": flat.base_url}
        if is_own and (problem := address_problem(values)) is not None:
            return unusable_model(name, problem)
        if profile.fallbacks:
            known = self._known(is_own)
            others = {one: self._other(one, known, is_own=is_own) for one in profile.fallbacks}
            values["fallback_strategy"] = FallbackStrategy(fallback_llms=tuple(others), profiles=others)
        return LLM.model_validate({**values, "usage_id": _usage_id(name)})

    def _other(self, name: str, known: Mapping[str, LLMProfile], *, is_own: bool) -> LLM:
        """A model that another one falls back to, or a router chooses from: it falls back to nothing itself."""
        if name not in known:
            return unusable_model(name, self._missing(name, known, of_user=is_own))
        profile = known[name]
        if profile.router is not None:
            return unusable_model(name, f"the profile {name!r} is a router, and only models can be named here")
        plain = profile.model_copy(update={"fallbacks": []})
        return self._model(name, plain, is_own=is_own and name in self._own)

    def _flat(self, choice: ModelChoice) -> LLM:
        values = choice._asdict()
        problem = address_problem(values) if self._user.llm_base_url else None
        if choice.model != self._server.model_name:
            problem = problem or file_problem(choice.model)
        if problem is not None:
            return unusable_model("", problem)
        return LLM.model_validate(values)


def address_problem(values: Mapping[str, Any]) -> str | None:
    """Why the model cannot be asked at the address that a user typed; None where it can."""
    model = str(values["model"]) if values.get("base_url") else full_name(str(values["model"]))
    if not any(values.get(name) for name in ADDRESSES) or not model.startswith(HOST_CREDENTIALS):
        return None
    if values.get("aws_access_key_id") and "vertex" not in model:
        return None
    return f"base_url: {model} is asked with credentials of the server's host, which no address of a user gets"


def _usage_id(name: str) -> str:
    return f"profile:{name}"


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
    name = name[:80]
    what = f"model profile {name!r}" if name else "model"
    return LLM(model=f"profile/{name}").using(_Refusing(f"The {what} cannot be used: {problem}"))


def problem_of(llm: LLM) -> str | None:
    """Why this is the model of a profile that cannot be used; None for others."""
    transport = llm._transport
    return transport.problem if isinstance(transport, _Refusing) else None


def lacks_key(llm: LLM) -> bool:
    """Whether a call is bound to be refused: a hosted model and no key anywhere."""
    if isinstance(llm, RouterLLM):
        return any(map(lacks_key, llm.llms_for_routing.values()))
    if problem_of(llm) is not None or any(map(SENSITIVE_NAME.search, llm.extra_headers or {})):
        return False
    key = llm.api_key.get_secret_value() if llm.api_key is not None else None
    return ModelChoice(llm.model, key, llm.base_url or llm.ollama_base_url).lacks_key()
