"""Named models (additions to the protocol): the server's and the user's own, stored, shown, tried, and chosen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import orjson
from fastapi import Path
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from agent_core.errors import (
    LLMAuthenticationError,
    LLMBudgetExceededError,
    LLMError,
    LLMModelNotFoundError,
    LLMRateLimitError,
    LLMTimeoutError,
    LLMUnavailableError,
)
from agent_core.events.masking import SecretMasker
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM
from agent_core.llm.router import RouterLLM
from server.auth.identity import Identity
from server.db.repositories.user_settings import StoredSettings
from server.dependencies import IdentityDependency, OwnConversation, Services, ServicesDependency
from server.errors import ConversationNotFoundError
from server.routes.query import PagingDependency
from server.routes.replies import errors
from server.routes.route_classes import make_router
from server.session.agents.models import LLM_PROFILE, ConversationModels, problem_of
from server.session.user_settings import merge_settings, own_profiles, secret_values
from server.settings.llm_profiles import (
    ADDRESSES,
    MAX_PROFILES,
    LLMProfile,
    MaskedSecretError,
    OptionProblem,
    ProfileName,
    reference_problem,
    router_problem,
    users_problem,
)

router = make_router("/api", tags=["llm-profiles"])

MAX_BYTES: Final = 64 * 1024
TEST_SECONDS: Final = 30.0
_QUESTION: Final = "Answer with the word OK and nothing else."
_SHOWN_CHARS: Final = 200
_SHOWN_OF_SERVERS: Final = frozenset(
    {"model", "router", "models", "fallbacks", "reasoning_effort", "temperature", "top_p", "top_k", "seed", "api_mode"}
    | {"native_tool_calling", "disable_vision", "max_input_tokens", "max_output_tokens", "timeout", "num_retries"}
    | {"input_cost_per_token", "output_cost_per_token", "extended_thinking_budget", "caching_prompt"}
)
"""Of the server's profiles users see what their models can do, and not where or how they are reached."""

_Kind = Literal["key", "address", "model", "limit", "time", "other"]
_KINDS: Final[tuple[tuple[type[LLMError], _Kind], ...]] = (
    (LLMAuthenticationError, "key"),
    (LLMModelNotFoundError, "model"),
    (LLMBudgetExceededError, "limit"),
    (LLMRateLimitError, "limit"),
    (LLMTimeoutError, "time"),
    (LLMUnavailableError, "address"),
)

Name = Annotated[ProfileName, Path(description="Letters, digits, dots, hyphens and underscores, 64 at most.")]


class ProfileInfo(BaseModel):
    """A profile as its user sees it: no secret, but a mask in the place of each."""

    name: str
    owner: Literal["server", "user"]
    is_default: bool = Field(description="Whether conversations have it that name none.")
    may_change: bool
    model: str = Field(description="Empty for a router.")
    options: dict[str, Any] = Field(description="What was given; of the server's profiles not how they are reached.")
    problem: str = Field(description="Why it cannot be used as it is; empty while nothing is known of that.")


class ProfileList(BaseModel):
    """The profiles that the user can name, by name, or a page of them."""

    results: list[ProfileInfo]
    default: str | None = Field(description="Null where the three settings of the model count.")
    may_add: bool
    next_page_id: str | None = Field(description="`page_id` of the next page; null on the last one.")


class ProfileTest(BaseModel):
    """What became of one short question to the model."""

    ok: bool
    seconds: float = Field(ge=0)
    model: str
    answer: str = Field(description="The beginning of what it said.")
    kind: _Kind | None = Field(description="What is wrong: the `key`, the `address`, the `model`'s name, …")
    problem: str = Field(description="The same in words, with what to do; empty where it works.")


class ProfileChoice(BaseModel, extra="forbid"):
    """Which profile a conversation has; null for none of its own."""

    llm_profile: ProfileName | None


@router.get("/llm-profiles")
async def list_llm_profiles(
    services: ServicesDependency, identity: IdentityDependency, paging: PagingDependency
) -> ProfileList:
    """The server's profiles and the user's own; one of these hides one of the server's of the same name."""
    view = await _View.of(services, identity)
    page, next_page_id = paging.cut(sorted(view.names), lambda name: (name,), str)
    may_add = services.settings.allow_user_llm_profiles
    results = [view.info(name) for name in page]
    return ProfileList(results=results, default=view.default, may_add=may_add, next_page_id=next_page_id)


@router.get("/llm-profiles/{name}", responses=errors(404))
async def read_llm_profile(name: Name, services: ServicesDependency, identity: IdentityDependency) -> ProfileInfo:
    """One of them."""
    return (await _View.of(services, identity)).info(name)


@router.put("/llm-profiles/{name}", responses=errors(403, 409))
async def store_llm_profile(
    name: Name, body: LLMProfile, services: ServicesDependency, identity: IdentityDependency
) -> ProfileInfo:
    """Store a profile of the user's own, whole, in place of an earlier one.

    A mask stands for the stored secret at the same address. Conversations that run keep what they began with.
    """
    server = services.settings
    if not server.allow_user_llm_profiles:
        raise HTTPException(403, "This server's operator allows no profiles of users; choose one of the server's.")
    if name in server.llm_profiles:
        raise HTTPException(409, f"{name!r} is a profile of the server; choose another name")

    def make(stored: StoredSettings | None) -> StoredSettings:
        stored = stored or StoredSettings()
        own = own_profiles(stored)[0]
        profile = _checked(name, body, own, services)
        names = {**(stored.llm_profiles or {}), name: profile.options}
        if len(names) > MAX_PROFILES:
            raise HTTPException(409, f"You have {MAX_PROFILES} profiles already; delete one first")
        changed = stored.model_copy(update={"llm_profiles": names})
        if (problem := ConversationModels(changed, server).problem_of(name)) is not None:
            raise _refusal(("model", problem))
        return changed

    await _change(services, identity, make)
    return (await _View.of(services, identity)).info(name)


@router.delete("/llm-profiles/{name}", status_code=204, responses=errors(404, 409))
async def delete_llm_profile(name: Name, services: ServicesDependency, identity: IdentityDependency) -> Response:
    """Delete a profile of the user's own; one that is named elsewhere in their settings is a 409 that says where."""

    def make(stored: StoredSettings | None) -> StoredSettings:
        names = dict((stored.llm_profiles if stored is not None else None) or {})
        if stored is None or names.pop(name, None) is None:
            raise HTTPException(404, f"You have no profile {name!r}")
        if name not in services.settings.llm_profiles and (uses := _uses(stored, name)):
            raise HTTPException(409, f"{name!r} is still named by {', '.join(uses)}; change that first")
        return stored.model_copy(update={"llm_profiles": names})

    await _change(services, identity, make)
    return Response(status_code=204)


@router.post("/llm-profiles/{name}/test", responses=errors(404))
async def try_llm_profile(name: Name, services: ServicesDependency, identity: IdentityDependency) -> ProfileTest:
    """Ask its model a short question, once: whether it answers, how soon, and what is wrong if it does not.

    Of a router each model is asked until one fails; fallbacks are not.
    """
    view = await _View.of(services, identity)
    view.info(name)
    llm = view.models.llm(name)
    models = list(llm.llms_for_routing.values()) if isinstance(llm, RouterLLM) else [llm]
    began = time.monotonic()
    for one in models:
        result = await _asked(one, view.masker(name))
        if not result.ok:
            break
    return result.model_copy(update={"seconds": round(time.monotonic() - began, 3)})


@router.get("/conversations/{conversation_id}/llm-profile")
async def read_conversation_llm_profile(record: OwnConversation) -> ProfileChoice:
    """The profile that the conversation names."""
    return ProfileChoice(llm_profile=record.options.get(LLM_PROFILE))


@router.put("/conversations/{conversation_id}/llm-profile")
async def choose_conversation_llm_profile(
    record: OwnConversation, services: ServicesDependency, body: ProfileChoice
) -> ProfileChoice:
    """Have the conversation use another profile from its next start on."""
    if body.llm_profile is not None:
        await check_choice(services, record.user_id, body.llm_profile)
    if not await services.database.conversations.set_option(record.id, LLM_PROFILE, body.llm_profile):
        raise ConversationNotFoundError(record.id)
    return body


async def check_choice(services: Services, user_id: str, name: str) -> None:
    """Raise a 422 where the user cannot name this profile for a conversation, or it cannot be used."""
    user = await services.database.settings.get(user_id)
    if (problem := ConversationModels(user, services.settings).problem_of(name)) is not None:
        raise _refusal(("llm_profile", problem))


class _View:
    """The profiles as one user sees them."""

    def __init__(self, services: Services, user: StoredSettings | None) -> None:
        self._settings = services.settings
        self._user = user or StoredSettings()
        self.models = ConversationModels(user, services.settings)
        self.default = self.models.name_for(merge_settings(user, services.settings).agent_class)

    @classmethod
    async def of(cls, services: Services, identity: Identity) -> _View:
        return cls(services, await services.database.settings.get(identity.user_id))

    @property
    def names(self) -> set[str]:
        """Own ones too that cannot be used any more: so that they can be seen, and deleted."""
        return self.models.profiles.keys() | (self._user.llm_profiles or {}).keys()

    def info(self, name: str) -> ProfileInfo:
        """The profile of this name; `HTTPException` 404 where there is none."""
        if name not in self.names:
            raise HTTPException(404, f"There is no profile {name[:80]!r}")
        profile, is_own = self.models.profiles.get(name, (None, True))
        shown = profile.hidden().options if profile is not None else {}
        if not is_own:
            shown = {key: value for key, value in shown.items() if key in _SHOWN_OF_SERVERS}
        return ProfileInfo(
            name=name,
            owner="user" if is_own else "server",
            is_default=name == self.default,
            may_change=is_own and self._settings.allow_user_llm_profiles,
            model=profile.model if profile is not None else "",
            options=shown,
            problem=self.models.problem_of(name) or "",
        )

    def masker(self, name: str) -> SecretMasker:
        """Hides the secrets of a profile, all of the user's, and of the server's ones where they are reached."""
        masker = SecretMasker([*self.models.server_secrets, *secret_values(self._user)])
        for profile, is_own in self.models.profiles.values():
            masker.add(profile.secrets)
            if not is_own:
                masker.add(part for field in ADDRESSES for part in _parts(getattr(profile, field)))
        tried, is_own = self.models.profiles.get(name, (None, True))
        if not is_own or tried is None or not any(getattr(tried, field) for field in ADDRESSES):
            masker.add(_parts(self._settings.llm_base_url))  # the server's own model may be where it is reached
        if (key := self._settings.llm_api_key) is not None:
            masker.add([key.get_secret_value()])
        return masker


def _parts(address: str | None) -> list[str]:
    """What tells where this is, as errors say it."""
    return [address, urlsplit(address).hostname or ""] if address else []


def _checked(name: str, profile: LLMProfile, own: dict[str, LLMProfile], services: Services) -> LLMProfile:
    """The profile to store, with its secrets; a 422 where it cannot be, or others would not be any more."""
    if (problem := users_problem(profile)) is not None:
        raise _refusal(problem)
    try:
        profile = profile.restored(own.get(name))
    except MaskedSecretError as error:
        raise _refusal((error.field, str(error))) from error
    if (size := len(orjson.dumps(profile.options))) > MAX_BYTES:
        raise _refusal(("", f"the profile has {size} bytes; {MAX_BYTES} at most are stored"))
    known = {**services.settings.llm_profiles, **own, name: profile}
    for other in (name, *own):
        if (problem := reference_problem(other, known[other], known)) is not None:
            if other != name:
                problem = ("router", f"the profile {other!r} names this one; {problem[1]}")
            raise _refusal(problem)
    if (problem := router_problem(profile, known)) is not None:
        raise _refusal(problem)
    return profile


def _uses(user: StoredSettings, name: str) -> list[str]:
    """What of the user's settings names this profile."""
    uses = ["llm_profile"] if user.llm_profile == name else []
    for field in ("llm_purposes", "llm_agents"):
        uses += [f"{field}.{key}" for key, one in (getattr(user, field) or {}).items() if one == name]
    for other, profile in own_profiles(user)[0].items():
        uses += [f"{field} of {other}" for field, one in profile.others if one == name]
    return uses


async def _change(
    services: Services, identity: Identity, make: Callable[[StoredSettings | None], StoredSettings]
) -> None:
    await services.database.settings.change(make, identity.user_id)
    await services.manager.refresh_secrets(identity.user_id)


async def _asked(llm: LLM, masker: SecretMasker) -> ProfileTest:
    limits = {"num_retries": 1, "timeout": min(llm.timeout, TEST_SECONDS), "fallback_strategy": None}
    once = llm.model_copy(update=limits)
    once.reset_metrics()
    kind: _Kind | None = None
    answer = problem = ""
    try:
        async with asyncio.timeout(TEST_SECONDS):
            response = await once.acompletion([Message.user(_QUESTION)])
        answer = response.message.text.strip()[:_SHOWN_CHARS]
    except TimeoutError:
        kind, problem = (
            "time",
            f"There was no answer within {TEST_SECONDS:g} seconds; try again, or another model.",
        )
    except LLMError as error:
        kind = next((word for type_, word in _KINDS if isinstance(error, type_)), "other")
        problem = masker.text(str(error))
    shown = "" if problem_of(llm) is not None else llm.model
    return ProfileTest(ok=kind is None, seconds=0, model=shown, answer=masker.text(answer), kind=kind, problem=problem)


def _refusal(problem: OptionProblem) -> RequestValidationError:
    field, text = problem
    place = ("body", *(part for part in field.split(".") if part))
    return RequestValidationError([{"type": "profile_option", "loc": place, "msg": text}])
