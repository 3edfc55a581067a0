"""An analyzer that asks Gray Swan's monitor, a service that reads along."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterable
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit
from urllib.request import Request

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    SecretStr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from agent_core.destinations import Destinations, DirectClient
from agent_core.events.event import Event, LLMConvertibleEvent
from agent_core.events.llm_events import ActionEvent
from agent_core.events.masking import EXPOSE_SECRETS
from agent_core.events.risk import SecurityRisk
from agent_core.security.analyzer import EventHistory, SecurityAnalyzer, in_thread
from agent_core.security.secrets import fetch, http_address

MONITOR: Final = "https://api.grayswan.ai/cygnal/monitor"
KEY_VARIABLE: Final = "GRAYSWAN_API_KEY"
MAX_ANSWER_BYTES: Final = 1_000_000
MAX_REASON_CHARS: Final = 200

logger = logging.getLogger(__name__)


class GraySwanAnalyzer(SecurityAnalyzer):
    """Sends the newest `history_limit` events and the action to the monitor, and takes its score for the risk.

    A score up to `low_threshold` is LOW, one up to `medium_threshold` MEDIUM; more is HIGH, and so is an injection that
    it finds. Where it cannot be asked within `timeout` seconds the risk is UNKNOWN. `api_key` is not stored with the
    rest; without one the environment's variable GRAYSWAN_API_KEY counts.
    """

    api_key: SecretStr | None = Field(default=None, exclude=True)
    api_url: Annotated[str, AfterValidator(http_address)] = MONITOR
    policy_id: str | None = None
    history_limit: int = Field(default=20, ge=0)
    timeout: float = Field(default=30.0, gt=0)
    low_threshold: float = Field(default=0.3, ge=0, le=1)
    medium_threshold: float = Field(default=0.7, ge=0, le=1)
    _destinations: Destinations | None = PrivateAttr(default=None)

    @model_serializer(mode="wrap")
    def _with_key_where_secrets_are_shown(
        self, write: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        data: dict[str, Any] = write(self)
        if self.api_key is not None and info.context and info.context.get(EXPOSE_SECRETS):
            data["api_key"] = self.api_key.get_secret_value()
        return data

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.low_threshold > self.medium_threshold:
            raise ValueError(
                f"low_threshold: {self.low_threshold} is above medium_threshold {self.medium_threshold}; exchange them"
            )
        return self

    def confined(self, destinations: Destinations) -> Self:
        made = self.model_copy()
        made._destinations = destinations
        return made

    def security_risk(self, action: ActionEvent) -> SecurityRisk:
        if self._destinations is not None:
            return asyncio.run(self.asecurity_risk(action))  # in a thread, as whatever may block
        return self._query((), action)

    async def asecurity_risk(self, action: ActionEvent) -> SecurityRisk:
        return await self.asecurity_risk_after((), action)

    async def asecurity_risk_after(self, history: EventHistory, action: ActionEvent) -> SecurityRisk:
        try:
            async with asyncio.timeout(self.timeout):
                if self._destinations is None:
                    return await in_thread(lambda: self._query(history, action))
                return await self._query_confined(self._destinations, history, action)
        except TimeoutError:
            return self._unknown("it did not answer in time")

    def _query(self, history: EventHistory, action: ActionEvent) -> SecurityRisk:
        try:
            headers, body = self._question(history, action)
            request = Request(self.api_url, body, headers)  # noqa: S310 - the validator takes http only
            return self._risk_in(fetch(request, limit_seconds=self.timeout, limit_bytes=MAX_ANSWER_BYTES))
        except Exception as error:  # noqa: BLE001 - whatever comes from outside, nothing is known then
            return self._unknown(f"{type(error).__name__}: {error}")

    async def _query_confined(
        self, destinations: Destinations, history: EventHistory, action: ActionEvent
    ) -> SecurityRisk:
        client = DirectClient(destinations, self.timeout)
        try:
            headers, body = self._question(history, action)
            headers["Accept-Encoding"] = "identity"
            async with client.stream("POST", self.api_url, headers=headers, content=body) as answer:
                if answer.status_code != 200:
                    return self._unknown(f"HTTP status {answer.status_code}")
                data = bytearray()
                async for piece in answer.aiter_raw():
                    data += piece
                    if len(data) > MAX_ANSWER_BYTES:
                        return self._unknown(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
            return self._risk_in(bytes(data))
        except Exception as error:  # noqa: BLE001 - as above
            return self._unknown(f"{type(error).__name__}: {error}")
        finally:
            await client.aclose()

    def _question(self, history: EventHistory, action: ActionEvent) -> tuple[dict[str, str], bytes]:
        """The headers and the body of what it is asked; ValueError: there is no key."""
        key = self.api_key.get_secret_value() if self.api_key is not None else os.environ.get(KEY_VARIABLE, "")
        if not key:
            raise ValueError(f"there is no key; give api_key, or set {KEY_VARIABLE}")
        newest = history[-self.history_limit :] if self.history_limit else ()
        body: dict[str, Any] = {"messages": list(_messages([*newest, action]))}
        if self.policy_id is not None:
            body["policy_id"] = self.policy_id
        return {"Content-Type": "application/json", "grayswan-api-key": key}, json.dumps(body).encode()

    def _risk_in(self, data: bytes) -> SecurityRisk:
        answer = json.loads(data)
        score = float(answer["violation"])
        if not 0 <= score <= 1:
            raise ValueError(f"violation is {score}, not a number from 0 to 1")
        if answer.get("ipi") or score > self.medium_threshold:
            return SecurityRisk.HIGH
        return SecurityRisk.LOW if score <= self.low_threshold else SecurityRisk.MEDIUM

    def _unknown(self, why: str) -> SecurityRisk:
        host = urlsplit(self.api_url).hostname
        logger.warning("the monitor at %s does not say how risky an action is: %s", host, why[:MAX_REASON_CHARS])
        return SecurityRisk.UNKNOWN


def _messages(events: Iterable[Event]) -> Iterable[dict[str, str]]:
    for event in events:
        if not isinstance(event, LLMConvertibleEvent):
            continue  # facts about the workspace
        message = event.to_llm_message()
        calls = [f"{call.name}({call.arguments})" for call in message.tool_calls or ()]
        if text := "\n".join(filter(None, [message.text, *calls])):
            yield {"role": message.role, "content": text}
