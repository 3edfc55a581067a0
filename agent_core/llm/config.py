"""The configuration of a model: every setting, and where it is read from."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SecretStr,
    SerializationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from agent_core.events.masking import DUMP_MASK, EXPOSE_SECRETS, SENSITIVE_NAME, secrets_in_address
from agent_core.llm.features import CAPABILITIES, THINKING_MODES
from agent_core.llm.profiles import FallbackStrategy
from agent_core.spelling import SpelledModel

DEMO_MODEL = "demo/tour"
RequestFact = Literal["session_id", "trace_user_id", "trace_version", "tags"]
DEFAULT_EFFORT: Final = "high"
_SECRETS = ("api_key", "aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def _secret_texts(value: Any) -> Iterator[str]:
    """The texts in data that stand under names which tell of secrets."""
    for name, one in value.items() if isinstance(value, Mapping) else ():
        if isinstance(one, str) and SENSITIVE_NAME.search(str(name)):
            yield one
        for part in one if isinstance(one, list) else [one]:
            yield from _secret_texts(part)


class LLMConfig(BaseModel, metaclass=SpelledModel):
    """Settings of a model. Frozen; keys are masked in JSON unless asked for.

    Unknown fields of data that are read are ignored; an unknown option of the constructor is refused.
    """

    # Its building is deferred until `kind` has its default.
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True, hide_input_in_errors=True)

    kind: str = ""
    """The class name, by which `revive` finds the class again."""
    classes: ClassVar[dict[str, type[LLMConfig]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.model_fields["kind"].default = cls.__name__
        cls.model_rebuild(force=True)
        LLMConfig.classes[cls.__name__] = cls

    @model_validator(mode="wrap")
    @classmethod
    def _is_of_its_kind(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, dict) and data.get("kind") not in (None, "", cls.__name__):
            revived: Self = cls.revive(data)
            return revived
        return handler(data)

    @classmethod
    def revive(cls, value: Any) -> Any:
        """`value`, or, if it is data, the model of the class its `kind` names (or `ValueError`); for a validator."""
        if not isinstance(value, dict):
            return value
        kind = str(value.get("kind") or cls.__name__)
        found = LLMConfig.classes.get(kind)
        if found is None or not issubclass(found, cls):
            known = sorted(name for name, one in LLMConfig.classes.items() if issubclass(one, cls))
            raise ValueError(f"kind: {kind[:100]!r} is none of {known}")
        return found.model_validate(value)

    model: str = Field(default=DEMO_MODEL, min_length=1)
    api_key: SecretStr | None = None
    """Key for the provider; without one, the provider's usual environment variable is used."""
    base_url: str | None = None
    """Root of the API, up to and including ``/v1`` where there is one."""
    auth_type: Literal["api_key", "subscription"] = "api_key"
    """``subscription``: the key is that of a subscription, which takes no limit of the answer's length (Responses)."""
    provider_connection_id: str | None = None
    """Which of a user's stored connections to the provider the key is of; for programs that keep such."""
    api_version: str | None = None
    """Version of the API, for Azure, where it is ``2024-12-01-preview`` unless given."""
    ollama_base_url: str | None = None
    """Root of the API of ``ollama/…`` models, where `base_url` is not given."""
    usage_id: str = "default"

    aws_access_key_id: SecretStr | None = None
    aws_secret_access_key: SecretStr | None = None
    aws_session_token: SecretStr | None = None
    aws_region_name: str | None = None
    aws_profile_name: str | None = None
    aws_role_name: str | None = None
    aws_session_name: str | None = None
    aws_bedrock_runtime_endpoint: str | None = None
    openrouter_site_url: str = ""
    """Site that OpenRouter is told its requests come from; empty tells none."""
    openrouter_app_name: str = "Drydock"

    num_retries: int = Field(default=5, ge=0)
    """Attempts in all; there is always one."""
    retry_multiplier: float = Field(default=8.0, ge=0)
    """Seconds before the second attempt, doubled before each further one."""
    retry_min_wait: float = Field(default=8.0, ge=0)
    """Shortest wait between attempts, seconds."""
    retry_max_wait: float = Field(default=64.0, ge=0)
    """Longest wait between attempts, seconds."""
    timeout: float = Field(default=300.0, gt=0)
    """Seconds that an answer, and then each further piece of it, may take to come."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = DEFAULT_EFFORT
    """How long the model thinks; None leaves it to the provider; the default goes only to models in the table."""
    extended_thinking_budget: int | None = Field(default=200_000, gt=0)
    """Most tokens of thinking, for models that are given a number (`thinking_mode` ``manual``); None: no thinking."""
    max_output_tokens: int | None = Field(default=None, gt=0)
    """Longest answer; None leaves it to the provider."""
    max_input_tokens: int | None = Field(default=None, gt=0)
    """Context window; None takes the published one."""
    input_cost_per_token: float | None = Field(default=None, ge=0)
    """US dollars; counts only together with `output_cost_per_token`."""
    output_cost_per_token: float | None = Field(default=None, ge=0)
    """US dollars; counts only together with `input_cost_per_token`."""

    api_mode: Literal["auto", "chat", "responses"] = "auto"
    """Through which API the model is asked; ``auto`` means Responses for the models of OpenAI that want it."""
    reasoning_summary: Literal["auto", "concise", "detailed"] | None = None
    """Which summary of its reasoning the model gives (Responses API); None asks for none."""
    enable_encrypted_reasoning: bool = True
    """Have the model's reasoning come back encrypted, to be sent along with what follows (Responses API)."""
    native_tool_calling: bool = True
    """False writes tools and calls as text; so does a model of which it is known that it takes no tools."""
    disable_stop_word: bool = False
    """Do not ask the server to stop at the end of a call that is written as text."""
    caching_prompt: bool = True
    """Mark reusable prefixes for models that want it."""
    prompt_cache_retention: str | None = "24h"
    """How long OpenAI keeps a cached prefix, for its models that can be told; None leaves it to the provider."""
    inline_image_urls: bool | None = None
    """Whether images at public addresses are fetched and sent along; None: for models that fetch none themselves."""
    max_message_chars: int = Field(default=30_000, ge=1)
    """Longest text in the result of a tool, in characters; the middle of a longer one is left out."""
    disable_vision: bool | None = None
    """True leaves images out whatever the model can do; False sends them even where the table says no."""
    force_string_serializer: bool | None = None
    """Whether message content is one text instead of a list of parts; None asks the table of known models."""
    capability_overrides: dict[str, bool | str] = Field(default_factory=dict)
    """What the model can do, by the names of `CAPABILITIES`: true or false; ``thinking_mode``: see `ModelFeatures`."""
    drop_params: bool = True
    """Leave out options that the provider does not know, rather than fail."""
    modify_params: bool = True
    """Whether litellm may mend a request that its provider would refuse. Deprecated: leave it on."""
    stream: bool = False
    """For programs that ask for it: answers are streamed in any case, and whoever listens hears them."""
    custom_tokenizer: str | None = None
    """Path of a ``tokenizer.json`` by which prompts are counted; without one they are estimated."""
    model_canonical_name: str | None = None
    """Name under which abilities and prices are looked up, where `model` is an alias."""
    extra_headers: dict[str, str] | None = Field(default=None, repr=False)
    """Sent with every request. Values of those whose names tell of secrets are masked in JSON as keys are."""
    litellm_extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further members of the request body. For ``demo/…``: ``pace``, 0 to answer at once.

    Where ``metadata`` is among them, an empty object too, the facts of `request_metadata` join it.
    """
    request_metadata: list[RequestFact] = Field(default_factory=lambda: list(get_args(RequestFact)))
    """Which facts of the conversation are told in ``litellm_extra_body["metadata"]``, if there is that: its id, its
    user, Drydock's version; as tags the model, the agent, what is asked for (`usage_id`) and the conversation's own.
    """
    fallback_strategy: FallbackStrategy | None = Field(default=None, exclude=True)
    """Whom to ask when this model fails; not stored."""
    retry_listener: Callable[[int, int, Exception], object] | None = Field(default=None, exclude=True)
    """Told the attempt, how many there are in all, and the failure, before each wait; not stored."""
    log_completions: bool = False
    log_completions_folder: str = "logs/completions"
    log_completions_callback: Callable[[str, str], object] | None = Field(default=None, exclude=True)
    """Given the name and the text of each of these files, which is not written then; not stored."""
    record_to: str | None = None
    """File to which every exchange is appended (JSON lines, secrets masked); ``replay/<file>`` plays it back."""

    @field_validator(*_SECRETS, mode="before")
    @classmethod
    def _no_key(cls, value: Any) -> Any:
        """An empty key is none, and so is the mask of one that was written without its value."""
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        return None if isinstance(text, str) and text.strip() in ("", DUMP_MASK) else value

    @field_serializer(*_SECRETS)
    def _written_key(self, value: SecretStr | None, info: SerializationInfo) -> Any:
        if value is not None and info.context and info.context.get(EXPOSE_SECRETS):
            return value.get_secret_value()
        return str(value) if value is not None and info.mode == "json" else value

    @field_validator("extra_headers")
    @classmethod
    def _no_masked_headers(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        return value and {name: text for name, text in value.items() if text != DUMP_MASK}

    @field_serializer("extra_headers")
    def _written_headers(self, value: dict[str, str] | None, info: SerializationInfo) -> dict[str, str] | None:
        if not value or info.mode != "json" or (info.context and info.context.get(EXPOSE_SECRETS)):
            return value
        return {name: DUMP_MASK if SENSITIVE_NAME.search(name) else text for name, text in value.items()}

    @field_validator("capability_overrides")
    @classmethod
    def _known_capabilities(cls, value: dict[str, bool | str]) -> dict[str, bool | str]:
        if unknown := sorted(value.keys() - CAPABILITIES.keys()):
            raise ValueError(f"{unknown[0]!r} is no capability; there are {sorted(CAPABILITIES)}")
        for name, choice in value.items():
            allowed: tuple[bool | str, ...] = THINKING_MODES if name == "thinking_mode" else (True, False)
            if choice not in allowed:
                raise ValueError(f"{name} is {choice!r}; it can be one of {list(allowed)}")
        return value

    @property
    def secrets(self) -> list[str]:
        """Its keys, what is sent beside under names that tell of secrets, and what is secret in its addresses."""
        keys = [key.get_secret_value() for name in _SECRETS if (key := getattr(self, name)) is not None]
        sent = [*_secret_texts(self.extra_headers), *_secret_texts(self.litellm_extra_body)]
        words = [word for text in sent for word in dict.fromkeys((text, text.rpartition(" ")[2]))]  # "Bearer …"
        addresses = (self.base_url, self.ollama_base_url, self.aws_bedrock_runtime_endpoint)
        return [*keys, *words, *(secret for address in addresses for secret in secrets_in_address(address or ""))]

    @classmethod
    def load_from_env(cls, prefix: str = "LLM_", environ: Mapping[str, str] | None = None) -> Self:
        """The configuration of the environment (``LLM_BASE_URL``, …); `ValueError` names a variable that is wrong."""
        environment = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            text = environment.get(f"{prefix}{name.upper()}", "")
            if not text.strip():
                continue
            is_text = field.annotation in (str, str | None, SecretStr | None)
            try:
                values[name] = text if is_text or text.lstrip()[:1] not in ("{", "[") else json.loads(text)
            except ValueError:
                raise ValueError(f"{prefix}{name.upper()} is not valid JSON: {text[:80]!r}") from None
        return cls.model_validate(values)

    @classmethod
    def load_from_json(cls, path: str | os.PathLike[str]) -> Self:
        """The configuration in a JSON file; raises `OSError` or `ValueError` where there is none."""
        return cls.model_validate_json(Path(path).read_text(encoding="utf-8"))
