"""`LLM`: a configured model, how messages are put for it, and the call (agent-core 9.1, 9.2)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr

from agent_core.errors import LLMError
from agent_core.events.llm_events import TokenUsage
from agent_core.events.messages import Message
from agent_core.llm.assembly import Assembly
from agent_core.llm.completion import Completion, RetryListener
from agent_core.llm.deltas import DeltaListener
from agent_core.llm.exchange import CallContext, ChatRequest, Endpoint, Transport
from agent_core.llm.features import ModelFeatures, features_of
from agent_core.llm.metrics import Metrics
from agent_core.llm.prices import cost_of, usage_of
from agent_core.llm.render import WireMessage, render_message, texts_size
from agent_core.llm.response import LLMResponse, ResponseKind, RetryNotice, classify
from agent_core.llm.retry import RetryPolicy
from agent_core.llm.transports import transport_of

logger = logging.getLogger(__name__)

DEMO_MODEL = "demo/tour"

__all__ = ["DEMO_MODEL", "LLM", "CallContext", "LLMResponse", "ResponseKind", "RetryNotice", "classify"]


class LLM(BaseModel):
    """A model and how to call it. Frozen, so it may be shared and copied freely; holds no connection.

    What its calls cost is counted beside the configuration, in `metrics`. Copies made with `model_copy` count together,
    until one of them is given its own counter by `reset_metrics`.

    `model` names provider and model (``anthropic/claude-…``, ``openai/gpt-…``, ``ollama/…``). With `base_url`,
    ``openai/x`` or a name without a provider is any OpenAI-compatible server there; no key from the environment is sent
    to it. ``demo/tour`` is the built-in scripted model; ``replay/<file>`` answers from a recording. Unknown fields are
    ignored.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: str = Field(default=DEMO_MODEL, min_length=1)
    """Provider and name of the model."""
    api_key: SecretStr | None = None
    """Key for the provider; without one, the provider's usual environment variable is used."""
    base_url: str | None = None
    """Root of the API, up to and including ``/v1`` where there is one."""
    api_version: str | None = None
    """Version of the API, for Azure."""
    usage_id: str = "default"
    """Under which name the cost is counted."""

    num_retries: int = Field(default=5, ge=1)
    """Attempts in all."""
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
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """How long the model thinks; None leaves it to the provider."""
    max_output_tokens: int | None = Field(default=None, gt=0)
    """Longest answer; None leaves it to the provider."""
    max_input_tokens: int | None = Field(default=None, gt=0)
    """Context window; None takes the published one."""
    input_cost_per_token: float | None = Field(default=None, ge=0)
    """US dollars; counts only together with `output_cost_per_token`."""
    output_cost_per_token: float | None = Field(default=None, ge=0)
    """US dollars; counts only together with `input_cost_per_token`."""

    native_tool_calling: bool | None = None
    """Whether the model takes tools itself; None asks the table of known models."""
    caching_prompt: bool = True
    """Mark reusable prefixes for models that want it."""
    disable_vision: bool | None = None
    """True leaves images out whatever the model can do; False sends them even where the table says no."""
    drop_params: bool = True
    """Leave out options that the provider does not know, rather than fail."""
    model_canonical_name: str | None = None
    """Name under which abilities and prices are looked up, where `model` is an alias."""
    extra_headers: dict[str, str] | None = None
    litellm_extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further members of the request body. For ``demo/…``: ``pace``, 0 to answer at once."""
    record_to: str | None = None
    """File to which every exchange is appended (JSON lines, secrets masked); ``replay/<file>`` plays it back."""

    _transport: Transport | None = PrivateAttr(default=None)
    _metrics: Metrics = PrivateAttr(default_factory=Metrics)

    def __eq__(self, other: object) -> bool:
        """Whether the configuration is the same; what was spent makes no difference."""
        if not isinstance(other, LLM):
            return NotImplemented
        same = type(self) is type(other) and self._transport is other._transport
        return same and self.__dict__ == other.__dict__

    @property
    def metrics(self) -> Metrics:
        """What the calls of this model cost so far, in this process."""
        return self._metrics

    def reset_metrics(self) -> None:
        """Count from nothing, and no longer together with the models that this one was copied from or to."""
        self._metrics = Metrics()

    def restore_metrics(self, metrics: Metrics) -> None:
        """Go on counting from a copy of these figures, alone."""
        self._metrics = metrics.deep_copy()

    def using(self, transport: Transport) -> LLM:
        """The same model, reached another way (tests, recordings)."""
        copy = self.model_copy()
        copy._transport = transport
        return copy

    @property
    def features(self) -> ModelFeatures:
        """What the model can do, own settings first; looked up once per model."""
        found = features_of(self.model_canonical_name or self.model)
        changes: dict[str, Any] = {}
        if self.native_tool_calling is not None:
            changes["function_calling"] = self.native_tool_calling
        if self.disable_vision is not None:
            changes["vision"] = not self.disable_vision
        if self.max_input_tokens is not None:
            changes["max_input_tokens"] = self.max_input_tokens
        if self.max_output_tokens is not None:
            changes["max_output_tokens"] = self.max_output_tokens
        return found.changed(changes)

    def render(self, message: Message) -> WireMessage:
        """The message in OpenAI's wire form, as this model wants it.

        Depends on the message and the configuration only: keep the result instead of rendering again. `acompletion`
        never changes what it is given.
        """
        features = self.features
        return render_message(
            message, features, vision=features.vision, cache_marks=self.caching_prompt and features.prompt_cache_marks
        )

    async def warm_up(self) -> None:
        """Do beforehand what takes long the first time, so that the first call need not wait for it; never raises."""
        try:
            await (self._transport or transport_of(self.model, self.record_to)).prepare(self._endpoint())
        except LLMError as error:
            logger.debug("%s is not ready: %s", self.model, error)  # the first call says so to whoever makes it

    async def acompletion(
        self,
        messages: Sequence[WireMessage],
        tools: Sequence[dict[str, Any]] = (),
        *,
        on_delta: DeltaListener | None = None,
        on_retry: RetryListener | None = None,
        context: CallContext | None = None,
    ) -> LLMResponse:
        """Ask the model; always streamed.

        `messages` are rendered ones, `tools` function-tool schemas. `on_delta` hears the text as it comes, under the id
        of the response to be; when an attempt breaks off after text was passed on, it hears `TextDiscarded` first.
        `on_retry` is told before each wait. Both are called in the event loop and must not block. Cancelling closes the
        connection and ends a wait at once.

        Raises:
            LLMError: the call failed for good, after its retries where they make sense; `str(error)` is fit for a user.
        """
        features = self.features
        request = ChatRequest(
            endpoint=self._endpoint(),
            messages=messages,
            tools=tools,
            parameters=self._parameters(features),
            extra_body=self.litellm_extra_body,
            timeout=self.timeout,
            context=context or CallContext(),
        )
        completion = Completion(
            transport=self._transport or transport_of(self.model, self.record_to),
            request=request,
            policy=RetryPolicy(self.num_retries, self.retry_multiplier, self.retry_min_wait, self.retry_max_wait),
            marks_cache=self.caching_prompt and features.prompt_cache_marks,
            count=lambda assembly, response_id: self._usage(assembly, response_id, messages, features),
            price=self._cost,
            on_delta=on_delta,
            on_retry=on_retry,
        )
        response = await completion.run()
        self._metrics.add(response)
        if context is not None and context.on_response is not None:
            context.on_response(response, self.usage_id)
        return response

    def _endpoint(self) -> Endpoint:
        # Keys and addresses are pasted, often with the end of a line.
        key = self.api_key.get_secret_value().strip() if self.api_key else ""
        return Endpoint(
            model=self.model,
            base_url=(self.base_url or "").strip() or None,
            api_key=SecretStr(key) if key else None,
            api_version=self.api_version,
            headers=tuple((self.extra_headers or {}).items()),
            drop_params=self.drop_params,
        )

    def _parameters(self, features: ModelFeatures) -> Mapping[str, Any]:
        """Options by their OpenAI names; unset ones are left to the provider."""
        sampling = {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}
        options: dict[str, Any] = {
            **(sampling if features.sampling else {}),
            "seed": self.seed,
            "reasoning_effort": self.reasoning_effort,
            "max_tokens": self.max_output_tokens,
        }
        return {name: value for name, value in options.items() if value is not None}

    def _usage(
        self, assembly: Assembly, response_id: str, messages: Sequence[WireMessage], features: ModelFeatures
    ) -> TokenUsage:
        return usage_of(
            assembly.usage,
            model=self.model,
            response_id=response_id,
            window=features.max_input_tokens,
            estimate=lambda: (texts_size(messages), assembly.size),
        )

    def _cost(self, usage: TokenUsage) -> float | None:
        return cost_of(
            usage,
            self.model_canonical_name or self.model,
            input_price=self.input_cost_per_token,
            output_price=self.output_cost_per_token,
        )
