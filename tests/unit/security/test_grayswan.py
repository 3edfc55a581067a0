"""The analyzer that asks a monitor: what it sends, what it makes of the answers, and what of none."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from pydantic import SecretStr, ValidationError

from agent_core.destinations import Destinations
from agent_core.events.control import RecallObservation
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, MessageEvent
from agent_core.events.masking import EXPOSE_SECRETS
from agent_core.events.messages import Message, MessageToolCall
from agent_core.security.analyzer import EnsembleSecurityAnalyzer, SecurityAnalyzer
from agent_core.security.grayswan import KEY_VARIABLE, GraySwanAnalyzer
from agent_core.tools.terminal import TerminalAction

ACTION = ActionEvent(
    tool_name="terminal",
    action=TerminalAction(command="ls"),
    tool_call=MessageToolCall(id="1", name="terminal", arguments='{"command": "ls"}'),
)


class Monitor(BaseHTTPRequestHandler):
    """Answers what it is told to, and keeps what it is asked."""

    answer: ClassVar[Any] = {"violation": 0.0}
    asked: ClassVar[list[dict[str, Any]]] = []
    release = threading.Event()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Monitor.asked.append({"key": self.headers["grayswan-api-key"], **json.loads(body)})
        if Monitor.answer == "late":
            Monitor.release.wait(60)
        self.send_response(302 if Monitor.answer == "moved" else 500 if Monitor.answer == "broken" else 200)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(b"{" if Monitor.answer == "garbage" else json.dumps(Monitor.answer).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing."""


@pytest.fixture
def monitor() -> Iterator[str]:
    Monitor.asked = []
    Monitor.release.clear()
    with HTTPServer(("127.0.0.1", 0), Monitor) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/monitor"
        Monitor.release.set()
        server.shutdown()
        thread.join()


def said(text: str) -> MessageEvent:
    return MessageEvent(source="user", llm_message=Message.user(text))


def analyzer(url: str, **fields: Any) -> GraySwanAnalyzer:
    return GraySwanAnalyzer(api_url=url, **{"api_key": SecretStr("swordfish"), **fields})


@pytest.mark.parametrize(
    ("answer", "risk"),
    [
        ({"violation": 0}, "LOW"),
        ({"violation": 0.3}, "LOW"),
        ({"violation": 0.31}, "MEDIUM"),
        ({"violation": 0.7}, "MEDIUM"),
        ({"violation": 0.71}, "HIGH"),
        ({"violation": 0.0, "ipi": True}, "HIGH"),
        ({"violation": 0.0, "ipi": False}, "LOW"),
        ({"violation": 2}, "UNKNOWN"),
        ({"violation": None}, "UNKNOWN"),
        ({"score": 1}, "UNKNOWN"),
        ([], "UNKNOWN"),
        ("garbage", "UNKNOWN"),
        ("broken", "UNKNOWN"),
        ("moved", "UNKNOWN"),
    ],
)
async def test_the_monitors_score_is_the_risk_and_what_cannot_be_read_is_unknown(
    monitor: str, answer: Any, risk: str, caplog: pytest.LogCaptureFixture
) -> None:
    Monitor.answer = answer
    assert await analyzer(monitor).aanalyze_pending_actions([ACTION]) == [(ACTION, risk)]
    assert len(Monitor.asked) == 1, "the key goes nowhere else"
    assert "swordfish" not in caplog.text
    assert ("127.0.0.1 does not say" in caplog.text) == (risk == "UNKNOWN")


@pytest.mark.parametrize(
    ("answer", "risk"),
    [
        ({"violation": 0.5}, "MEDIUM"),
        ({"violation": 0.0, "ipi": True}, "HIGH"),
        ([], "UNKNOWN"),
        ("garbage", "UNKNOWN"),
        ("broken", "UNKNOWN"),
        ("moved", "UNKNOWN"),
    ],
)
async def test_where_it_is_confined_it_asks_as_ever_where_it_may(monitor: str, answer: Any, risk: str) -> None:
    Monitor.answer = answer
    here = Destinations(loopback=True)
    assert await analyzer(monitor).confined(here).aanalyze_pending_actions([ACTION]) == [(ACTION, risk)]
    assert [one["key"] for one in Monitor.asked] == ["swordfish"], "a redirect is not followed"


async def test_where_it_is_confined_it_asks_nobody_else_alone_or_among_others(
    monitor: str, caplog: pytest.LogCaptureFixture
) -> None:
    Monitor.answer = {"violation": 0.0}
    ensemble = EnsembleSecurityAnalyzer(
        analyzers=(analyzer(monitor), EnsembleSecurityAnalyzer(analyzers=(analyzer(monitor),)))
    )
    for one in (analyzer(monitor), ensemble):
        assert await one.confined(Destinations()).aanalyze_pending_actions([ACTION]) == [(ACTION, "UNKNOWN")]
        found = await asyncio.to_thread(one.confined(Destinations()).analyze_pending_actions, [ACTION])
        assert found == [(ACTION, "UNKNOWN")]
    assert Monitor.asked == []
    assert "which is no public address" in caplog.text
    assert "swordfish" not in caplog.text


async def test_the_newest_events_and_the_action_are_sent_with_the_key(monitor: str) -> None:
    Monitor.answer = {"violation": 0.0}
    history: list[Event] = [said(f"message {n}") for n in range(30)]
    history.insert(28, RecallObservation(cause=1, recall_type="workspace_context"))
    await analyzer(monitor, policy_id="p").aanalyze_pending_actions([ACTION], history)
    (asked,) = Monitor.asked
    call = {"role": "assistant", "content": 'terminal({"command": "ls"})'}
    told = [{"role": "user", "content": f"message {n}"} for n in range(11, 30)]
    assert asked == {"key": "swordfish", "policy_id": "p", "messages": [*told, call]}
    await analyzer(monitor, history_limit=0).aanalyze_pending_actions([ACTION], history)
    assert Monitor.asked[1]["messages"] == [call]
    assert analyzer(monitor).analyze_pending_actions([ACTION]) == [(ACTION, "LOW")]


async def test_a_monitor_that_is_late_knows_nothing(monitor: str, caplog: pytest.LogCaptureFixture) -> None:
    Monitor.answer = "late"
    assert await analyzer(monitor, timeout=0.05).aanalyze_pending_actions([ACTION]) == [(ACTION, "UNKNOWN")]
    assert "does not say" in caplog.text


async def test_the_key_may_be_in_the_environment_and_without_one_nobody_is_asked(
    monitor: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Monitor.answer = {"violation": 0.0}
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert await analyzer(monitor, api_key=None).aanalyze_pending_actions([ACTION]) == [(ACTION, "UNKNOWN")]
    assert f"give api_key, or set {KEY_VARIABLE}" in caplog.text
    assert not Monitor.asked
    monkeypatch.setenv(KEY_VARIABLE, "from-outside")
    assert await analyzer(monitor, api_key=None).aanalyze_pending_actions([ACTION]) == [(ACTION, "LOW")]
    assert Monitor.asked[0]["key"] == "from-outside"


def test_it_is_stored_without_its_key_and_refuses_what_cannot_be() -> None:
    stored = analyzer("https://monitor.example/x").model_dump_json()
    assert "swordfish" not in stored
    assert SecurityAnalyzer.recreate(json.loads(stored)) == GraySwanAnalyzer(api_url="https://monitor.example/x")
    sent = EnsembleSecurityAnalyzer(analyzers=(analyzer("https://monitor.example/x"),))
    data = sent.model_dump(mode="json", context={EXPOSE_SECRETS: True})
    assert SecurityAnalyzer.recreate(data) == sent, "whoever may have secrets has the key, too"
    with pytest.raises(ValidationError, match="exchange them") as refused:
        GraySwanAnalyzer.model_validate({"api_key": "swordfish", "low_threshold": 0.8})
    assert "swordfish" not in str(refused.value)
    with pytest.raises(ValidationError, match="http"):
        GraySwanAnalyzer(api_url="file:///etc/passwd")
