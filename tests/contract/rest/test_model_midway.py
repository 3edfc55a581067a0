"""A model server that fails in the middle of a run: no half call is made, all is answered, and a message goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest, command_result
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Call, Turn, calls, fail, finish, raw
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server, facts, kill


def delta(*pieces: dict[str, Any], reason: str | None = None, text: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"tool_calls": list(pieces)} if pieces else {"content": text}
    return {"choices": [{"index": 0, "delta": found, "finish_reason": reason}]}


def piece(index: int, arguments: str, name: str = "terminal") -> dict[str, Any]:
    head = {"id": f"call_{index}", "type": "function"} if name else {}
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    return {"index": index, **head, "function": function}


RUN = json.dumps({"command": "half"})
FINE = json.dumps({"command": "fine"})

FAULTS: dict[str, Turn] = {
    "cut within a text": raw(delta(text="Let me")).then("cut"),
    "cut within arguments": raw(delta(piece(0, RUN[:12]))).then("cut"),
    "cut after arguments, before the end": raw(delta(piece(0, RUN))).then("cut"),
    "cut after the first of three": raw(delta(piece(0, RUN)), delta(piece(1, RUN)), delta(piece(2, "{"))).then("cut"),
    "reset": Turn(fault="reset"),
    "500": fail(500),
    "502 with a page": Turn(status=502, body="<html><title>502</title></html>", content_type="text/html"),
    "401": fail(401),
    "429 for a week": fail(429, headers={"Retry-After": "604800"}),
    "429 for less than nothing": fail(429, headers={"Retry-After": "-5"}),
    "context": fail(400, "This model's maximum context length is 8192 tokens"),
    "no JSON": raw("data: {nonsense\n\n"),
    "no text": raw(delta(text="x"), 'data: {"choices": [{"delta": {"content": "\udcff'),
    "another type": Turn(body="Welcome", content_type="text/html"),
    "a redirection": fail(307, headers={"Location": "https://elsewhere.invalid/"}),
    "nothing": raw(),
    "a call without its end": calls(Call("terminal", RUN[:-1])),
    "an error in pieces": Turn(
        status=500, body='{"error": {"message": "over' + "x" * 100_000, content_type="text/plain"
    ),
}


def typed(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": 0, **fields}


HALF_CALL = (
    typed(
        "output_item.added",
        item={"type": "function_call", "id": "fc_0", "call_id": "call_0", "name": "terminal", "arguments": ""},
    ),
    typed("function_call_arguments.delta", delta=RUN[:12]),
)
CALL = (*HALF_CALL, typed("function_call_arguments.delta", delta=RUN[12:]))
INCOMPLETE = {"status": "incomplete", "output": [], "incomplete_details": {"reason": "max_output_tokens"}}
RESPONSES: dict[str, Turn] = {
    f"responses, {name}": turn
    for name, turn in {
        "cut within a text": raw(typed("output_text.delta", delta="Let me")).then("cut"),
        "cut within arguments": raw(*HALF_CALL).then("cut"),
        "cut after arguments, before the end": raw(*CALL).then("cut"),
        "cut after three whole calls": calls(*[Call("terminal", RUN)] * 3).then("cut"),
        "failed": raw(*CALL, typed("failed", response={"status": "failed", "error": {"message": "died"}})),
        "an error": raw(*CALL, {"type": "error", "code": "server_error", "message": "died"}),
        "no room": raw(*HALF_CALL, typed("incomplete", response=INCOMPLETE)),
        "nothing": raw(typed("completed", response={"status": "completed", "output": []})),
        "no JSON": raw(*CALL, "data: {nonsense\n\n"),
        "500": fail(500),
    }.items()
}
"""Over the Responses API."""
FAULTS |= RESPONSES

DONE = (delta(reason="tool_calls"), "data: [DONE]\n\n")
ODD: dict[str, tuple[Turn, int]] = {
    "the second of three is malformed": (calls(*(Call("terminal", one) for one in (FINE, RUN[:-1], FINE))), 2),
    "a tool that there is not": (calls(Call("conjure", RUN)), 0),
    "two calls with one id": (raw(delta(piece(0, FINE), {**piece(1, FINE), "id": "call_0"}), *DONE), 2),
    "no id at all": (raw(delta({**piece(0, FINE), "id": None}), *DONE), 1),
    "the id of the turn before": (calls(Call("terminal", FINE, id="the first")), 1),
    "calls that end as a text": (raw(delta(piece(0, FINE)), delta(reason="stop"), "data: [DONE]\n\n"), 1),
    "an end that nobody knows": (raw(delta(piece(0, FINE)), delta(reason="eureka"), "data: [DONE]\n\n"), 1),
}
"""What can be understood all the same, and how many of its calls are made; the agent goes on by itself."""


@pytest.fixture(autouse=True)
def _no_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def case_of(request: ModelRequest) -> str:
    """Which of the faults a request's conversation is about."""
    text = json.dumps(request.json.get("messages") or request.json["input"])
    return next(name for name in sorted({**FAULTS, **ODD}, key=len, reverse=True) if f"case: {name}." in text)


def has_a_result_for_each_call(request: ModelRequest) -> bool:
    """Whether each call is followed by its own result, as providers want it."""
    waiting: list[str] = []
    for one in request.json.get("input", ()):
        if one["type"] == "function_call":
            waiting.append(one["call_id"])
        elif one["type"] == "function_call_output":
            waiting.remove(one["call_id"])
    for message in request.json.get("messages", ()):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return False
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return False
        waiting += [one["id"] for one in message.get("tool_calls") or ()]
    return not waiting


def is_answered(events: list[dict[str, Any]]) -> bool:
    """Whether every command that was begun has exactly one answer."""
    asked = [event["id"] for event in events if event.get("action") == "run"]
    answers = Counter(event.get("cause") for event in events if event.get("observation"))
    return all(answers[one] == 1 for one in asked)


def state_of(events: list[dict[str, Any]]) -> str:
    states = [event["extras"]["agent_state"] for event in events if event.get("observation") == "agent_state_changed"]
    return str(states[-1]) if states else "loading"


async def settled(server: Server, conversation_id: str, has_begun: Callable[[], bool]) -> list[dict[str, Any]]:
    """The events, once what has begun has come to rest."""
    found: list[dict[str, Any]] = []

    async def is_so() -> bool:
        found[:] = await server.events(conversation_id)
        return has_begun() and state_of(found) not in ("loading", "running")

    await server.until(is_so, seconds=MODEL_SECONDS)
    return found


async def test_whatever_the_model_server_does_in_the_middle_nothing_half_is_done_and_a_message_goes_on(
    make_server: MakeServer,
) -> None:
    commands = Counter[str]()
    asked = Counter[str]()
    goes_well: set[str] = set()

    async def shell(request: FakeRequest) -> FakeAnswer:
        commands[str(request.args.get("command"))] += 1
        return command_result("done")

    def script(request: ModelRequest) -> Turn:
        case = case_of(request)
        asked[case] += 1
        if asked[case] == 1:
            return calls(Call("terminal", {"command": f"whole {case}"}, id="the first"))
        assert has_a_result_for_each_call(request), case
        if case in ODD:
            return ODD[case][0] if asked[case] == 2 else finish("Well.")
        return finish("Well.") if case in goes_well else FAULTS[case]

    provider = FakeProvider(handlers={"shell.run": shell, "workspace.facts": facts, "shell.kill": kill})
    async with ModelServer(script) as model:
        profile = {"model": "openai/x", "base_url": model.url, "api_key": "key", "num_retries": 1}
        profiles = {"chat": profile, "responses": {**profile, "api_mode": "responses"}}
        async with make_server(provider, generate_titles=False, llm_profiles=profiles, llm_profile="chat") as server:
            for case in (*FAULTS, *ODD):
                fine = commands["fine"]
                api = "responses" if case in RESPONSES else "chat"
                conversation_id = await server.create(initial_user_msg=f"Go. case: {case}.", llm_profile=api)
                events = await settled(server, conversation_id, lambda case=case: asked[case] > 1 + (case in ODD))  # type: ignore[misc]
                assert commands[f"whole {case}"] == 1, case
                assert is_answered(events), case
                assert commands["half"] == 0, case
                assert ("input" in model.last_request.json) == (api == "responses"), case
                assert commands["fine"] - fine == (ODD[case][1] if case in ODD else 0), case
                if state_of(events) == "error":
                    assert any(event.get("extras", {}).get("reason") or event.get("content") for event in events), case
                goes_well.add(case)
                again = {"action": "message", "args": {"content": "Go on."}}
                path = f"/api/conversations/{conversation_id}/events"
                assert (await server.post(path, json=again)).status_code == 200, case

                async def is_finished(path: str = path) -> bool:
                    found = (await server.get(path, params={"limit": 100})).json()["events"]
                    return any(event.get("action") == "finish" for event in found)

                await server.until(is_finished, seconds=MODEL_SECONDS)
                await server.post(f"/api/conversations/{conversation_id}/stop")
            assert "drydock_troubles_total" in (await server.get("/metrics")).text
