"""`LLMProfile`: a named configuration of a model, as the file, REST and users' settings give it; and who uses which."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from agent_core.agent.critic import CriticBase
from agent_core.errors import DrydockError
from agent_core.events.masking import DUMP_MASK, SENSITIVE_NAME, address_with
from agent_core.events.schema import Tagged
from agent_core.llm.config import LLMConfig
from agent_core.llm.features import provider_of
from agent_core.llm.llm import LLM
from agent_core.llm.registry import NO_ROUTER, LLMRegistry
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.spelling import did_you_mean
from server.settings.text_fields import (
    WEB,
    FromTable,
    none_if_blank,
    one_line,
    shown_address,
    whole_address,
)

PURPOSES: Final = ("condenser", "draft_editor", "title", "security_analyzer", "critic")
"""What a model is used for beside an agent's own steps: to sum up, to write out drafts of edits, to name conversations,
and for an analyzer or a critic that asks one."""

MAX_PROFILES: Final = 100
MAX_OTHERS: Final = 20

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
ADDRESSES: Final = ("base_url", "ollama_base_url", "aws_bedrock_runtime_endpoint")
_KEYS: Final = ("api_key", "aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_PROGRAMS: Final = "is for programs that call models themselves; leave it out"

REFUSED: Final[Mapping[str, str]] = {
    "usage_id": "is chosen by what a model is used for; leave it out",
    "fallback_strategy": "is for programs; name other profiles in fallbacks",
    "retry_listener": _PROGRAMS,
    "log_completions_callback": _PROGRAMS,
    "provider_connection_id": "names what this server does not keep; give the api_key",
    "stream": "changes nothing here: answers are streamed in any case; leave it out",
    "kind": "is chosen by router; leave it out",
}
"""Options of a program's model that no profile has, and what to do instead."""

OPERATORS: Final[Mapping[str, str]] = {
    "record_to": "names a file of the server's host",
    "log_completions": "writes files on the server's host",
    "log_completions_folder": "names a folder of the server's host",
    "custom_tokenizer": "names a file of the server's host",
    "aws_profile_name": "names credentials of the server's host",
}
"""Options that only the server's own configuration may give, and why."""

_AWS_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key")
_WITH_AWS_KEYS: Final = ("aws_role_name", "aws_session_name", "aws_bedrock_runtime_endpoint")
"""For users only together with keys of their own: else the host's would be used, or sent there."""

_FILES: Final = "replay/"


def _is_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"{value[:80]!r} cannot name a profile: use up to 64 letters, digits, dots, hyphens and underscores, and"
            " begin with a letter or a digit"
        )
    return value


def _is_purpose(value: str) -> str:
    if value not in PURPOSES:
        raise ValueError(f"there is no purpose {value[:80]!r}; {did_you_mean(value, PURPOSES)}")
    return value


def wrong_at(place: tuple[str, ...], problem: str, value: object = None) -> ValidationError:
    """What is wrong with one part (at this `place` in it), for validators of the whole."""
    kind = PydanticCustomError("profile_option", "{problem}", {"problem": problem})
    return ValidationError.from_exception_data("LLMProfile", [{"type": kind, "loc": place, "input": value}])


def _at(field: str, problem: str) -> ValidationError:
    return wrong_at((field,), problem)


ProfileName = Annotated[str, AfterValidator(_is_name)]
PurposeName = Annotated[str, AfterValidator(_is_purpose)]
OptionalProfile = Annotated[ProfileName | None, BeforeValidator(none_if_blank)]
PurposeTable = Annotated[dict[PurposeName, ProfileName], FromTable]


class MaskedSecretError(DrydockError, ValueError):
    """The mask was sent for the secret of `field`, and none is stored, or one for another place."""

    def __init__(self, field: str) -> None:
        super().__init__(
            f"{DUMP_MASK} stands for a stored secret, and none is stored for this place and this address; send the"
            " secret itself"
        )
        self.field = field


class LLMProfile(LLMConfig):
    """A model and every option of it, or a router over other profiles.

    `fallbacks` are the profiles that are asked, in this order, where this one fails after its retries. `router` names a
    kind of router, and `models` its profiles by the keys that it chooses from; a router has nothing else.

    Raises:
        pydantic.ValidationError: an option is not known or not for profiles, or a value cannot be used.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True, defer_build=False
    )

    model: str = Field(default="", max_length=1_000)
    fallbacks: list[ProfileName] = Field(default_factory=list, max_length=MAX_OTHERS)
    router: str | None = Field(default=None, max_length=200)
    models: dict[str, ProfileName] = Field(default_factory=dict, max_length=MAX_OTHERS)

    # Not in the published form of a profile; see `REFUSED`.
    kind: SkipJsonSchema[str] = ""
    usage_id: SkipJsonSchema[str] = "default"
    fallback_strategy: SkipJsonSchema[None] = None
    retry_listener: SkipJsonSchema[None] = None
    log_completions_callback: SkipJsonSchema[None] = None
    provider_connection_id: SkipJsonSchema[None] = None
    stream: SkipJsonSchema[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _has_known_options(cls, data: Any) -> Any:
        for name in data if isinstance(data, dict) else ():
            if name in REFUSED:
                raise _at(name, f"it {REFUSED[name]}")
            if name not in cls.model_fields:
                known = cls.model_fields.keys() - REFUSED.keys()
                raise _at(str(name)[:80], f"there is no such option; {did_you_mean(str(name)[:80], known)}")
        return data

    @field_validator(*_KEYS, mode="before")
    @classmethod
    def _no_key(cls, value: Any) -> Any:
        """An empty key is none; a mask stays until `restored` has looked at it."""
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        return (one_line(text) or None) if isinstance(text, str) else value

    @field_validator("extra_headers")
    @classmethod
    def _no_masked_headers(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        for name, text in (value or {}).items():
            if not _HEADER.fullmatch(name):
                raise ValueError(f"{name[:80]!r} is no name of a header")
            if len(text) > 8_192 or not (text.isascii() and text.isprintable()):
                raise ValueError(f"{name}: a header is one line of ASCII characters, 8192 at most")
        return value

    @field_validator("model")
    @classmethod
    def _model_is_trimmed(cls, value: str) -> str:
        return value.strip()

    @field_validator(*ADDRESSES)
    @classmethod
    def _are_addresses(cls, value: str | None) -> str | None:
        return whole_address(value, WEB, "http://127.0.0.1:11434/v1") if value and value.strip() else None

    @model_validator(mode="after")
    def _is_a_model_or_a_router(self) -> Self:
        if self.router is None:
            if self.models:
                raise _at("models", "only a router has some; name its kind in router, or leave models out")
            if not self.model:
                raise _at("model", "name one, such as openai/gpt-5, or a kind of router in router")
            return self
        for key in self.models:
            if not key.strip() or key in ("name", "usage_id"):
                raise _at("models", f"{key!r} can be no key of a router's profile; choose another")
        if not self.models:
            raise _at("models", "a router chooses from profiles; name them by the keys that it knows")
        if others := sorted(self.model_fields_set - {"router", "models"}):
            raise _at(others[0], "a router has nothing but router and models; its profiles have the options")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """What was given, by name, with the secrets in it: data that a profile can be made of again."""
        given = self.model_fields_set
        return {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in self
            if name in given and name not in REFUSED
        }

    @property
    def shown(self) -> str:
        """Its model and where that is asked, for people; of a router its kind and its profiles."""
        if self.router is not None:
            return f"{self.router} over {', '.join(self.models.values())}"
        return f"{self.model} at {shown_address(self.base_url)}" if self.base_url else self.model

    @property
    def others(self) -> list[tuple[str, str]]:
        """The profiles that it names, each after the field that names it."""
        routed = [(f"models.{key}", name) for key, name in self.models.items()]
        return [*(("fallbacks", name) for name in self.fallbacks), *routed]

    @property
    def secrets(self) -> list[str]:
        """The values in it that nobody else should see."""
        found: list[str] = []

        def note(place: str, secret: str) -> str:
            found.append(secret)
            return secret

        self._changed(note)
        return found

    def hidden(self) -> Self:
        """The same with the mask for each secret."""
        return self._changed(lambda place, secret: DUMP_MASK)

    def restored(self, stored: LLMProfile | None) -> Self:
        """The same with what is `stored` wherever the mask stands.

        A key goes along to no other address or provider than the one that it was entered for. Where nothing fits it
        raises `MaskedSecretError`.
        """
        known: dict[str, str] = {}
        if stored is not None and stored._destination == self._destination:
            stored._changed(lambda place, secret: known.setdefault(place, secret))

        def look_up(place: str, secret: str) -> str:
            found = known.get(place) if secret == DUMP_MASK else secret
            if found is None:
                raise MaskedSecretError(place)
            return found

        return self._changed(look_up)

    @property
    def _destination(self) -> tuple[str, ...]:
        """Where its secrets go: the addresses, and without any the provider."""
        addresses = [address_with(getattr(self, name) or "", lambda place, secret: "") for name in ADDRESSES]
        return (*addresses, "" if any(addresses) else provider_of(self.model))

    def _changed(self, change: Callable[[str, str], str]) -> Self:
        """A copy with each secret as `change` makes it of its place and itself."""
        update: dict[str, Any] = {}
        for name in _KEYS:
            key: SecretStr | None = getattr(self, name)
            if key is not None:
                update[name] = SecretStr(change(name, key.get_secret_value()))
        for name in ADDRESSES:
            if address := getattr(self, name):
                update[name] = address_with(address, partial(_changed_in, change, name))
        for name in ("extra_headers", "litellm_extra_body"):
            if value := getattr(self, name):
                update[name] = _with_secrets(value, name, change)
        return self.model_copy(update=update)


ProfileTable = Annotated[dict[ProfileName, LLMProfile], FromTable, Field(max_length=MAX_PROFILES)]


def _changed_in(change: Callable[[str, str], str], field: str, place: str, secret: str) -> str:
    # A password alone is named by its field, as it always was.
    return change(field if place == "password" else f"{field}.{place}", secret)


def _with_secrets(value: Any, place: str, change: Callable[[str, str], str], *, is_secret: bool = False) -> Any:
    """A copy of data in which each text under a name that tells of a secret is as `change` makes it."""
    if isinstance(value, dict):
        return {
            name: _with_secrets(one, f"{place}.{name}", change, is_secret=bool(SENSITIVE_NAME.search(str(name))))
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [
            _with_secrets(one, f"{place}.{number}", change, is_secret=is_secret) for number, one in enumerate(value)
        ]
    return change(place, value) if is_secret and isinstance(value, str) and value else value


OptionProblem = tuple[str, str]
"""A field, and what is wrong with it."""


def file_problem(model: str) -> str | None:
    """Why no user may name this model: it is a file of the server's host. None where they may."""
    return "a recording is a file of the server's host; name a model" if model.startswith(_FILES) else None


def users_problem(profile: LLMConfig) -> OptionProblem | None:
    """Why a user may not have this model; None where they may. What reaches into the server's host is no user's."""
    given = {name for name, field in type(profile).model_fields.items() if getattr(profile, name) != field.default}
    for name in sorted(given & OPERATORS.keys()):
        return name, f"it {OPERATORS[name]}, so only the server's own configuration may give it; leave it out"
    if (problem := file_problem(profile.model)) is not None:
        return "model", problem
    if not all(getattr(profile, name) for name in _AWS_KEYS):
        for name in sorted(given & set(_WITH_AWS_KEYS)):
            return name, "give aws_access_key_id and aws_secret_access_key with it"
    return None


def operators_problem(profile: LLMProfile) -> OptionProblem | None:
    """Why the server cannot use a profile of its own configuration: a file that is not there. None where it can."""
    files = {"custom_tokenizer": profile.custom_tokenizer}
    if profile.model.startswith(_FILES):
        files["model"] = profile.model.removeprefix(_FILES)
    for name, path in files.items():
        if path is not None and not Path(path).expanduser().is_file():
            return name, f"there is no file {path}"
    try:
        profile.restored(None)
    except MaskedSecretError as error:
        return error.field, str(error)
    return None


def purpose_problem(purpose: str) -> str | None:
    """Why a model for this purpose would do nothing here; None where something asks it."""
    families: dict[str, tuple[str, type]] = {
        "critic": ("critic", CriticBase),
        "security_analyzer": ("analyzer", SecurityAnalyzer),
    }
    if purpose not in families:
        return None
    word, family = families[purpose]
    classes = (*Tagged.classes.values(), *SecurityAnalyzer.classes.values())
    if any(issubclass(one, family) and "llm" in one.model_fields for one in classes):
        return None
    return f"no {word} here asks a model of its own (a field `llm`): leave it out, or name the module of one in modules"


def missing_profile(name: str, known: Iterable[str]) -> str:
    """The words for a profile that there is not, with the nearest of those there are."""
    return f"there is no profile {name[:80]!r}; {did_you_mean(name, known)}"


def router_problem(profile: LLMProfile, known: Mapping[str, LLMProfile]) -> OptionProblem | None:
    """Why there can be no such router over known profiles; None where there can, and for what is no router."""
    if profile.router is None:
        return None
    if profile.router == NO_ROUTER:
        return "router", f"{NO_ROUTER} is no router, but the lack of one: name the model itself"
    registry = LLMRegistry()
    try:
        for name in dict.fromkeys(profile.models.values()):
            registry.add(LLM(model=known[name].model, usage_id=name))
        registry.get_router(profile.router, **profile.models)
    except (KeyError, TypeError, ValueError) as error:
        return "router", words_of(error)
    return None


def words_of(error: Exception) -> str:
    """What is wrong, without pydantic's frame around it."""
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return str(problem["msg"]).removeprefix("Value error, ")
    return str(error.args[0]) if error.args else type(error).__name__


def reference_problem(name: str, profile: LLMProfile, known: Mapping[str, LLMProfile]) -> OptionProblem | None:
    """What is wrong with the profiles that this one names, given all there are; None for nothing."""
    for field, other in profile.others:
        if other == name:
            return field, "a profile cannot name itself"
        if other not in known:
            return field, missing_profile(other, known)
        if known[other].router is not None:
            return field, f"{other!r} is a router, and only models can be named here"
    return None
