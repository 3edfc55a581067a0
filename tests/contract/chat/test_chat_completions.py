"""Chat completions through OpenAI's own client: a real server, a scripted model over HTTP, sandboxes in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from openai._models import FinalRequestOptions
from pydantic import ValidationError

from agent_core.events.control import AgentState
from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, fail, finish, say
from server.app import Application, create_app
from server.doors.chat.requests import ChatRequest
from server.session.sandboxes import SandboxSelection
from server.settings.settings import Settings
from tests.serving import serving

LIMIT = 60.0
TOKEN = "a token of eight words or so"
AUDIO = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


async def shell(call: FakeRequest) -> FakeAnswer:
    command = call.args.get("command", "")
    facts = {"omitted": 0, "working_dir": "/workspace", "pid": -1, "python": None, "username": "agent", "notice": ""}
    return {"status": "completed", "exit_code": 0, "output": f"ran {command}\n", "hostname": "fake", **facts}


async def nothing(call: FakeRequest) -> FakeAnswer:
    return {}


async def no_files(call: FakeRequest) -> FakeAnswer:
    return {"packed": None, "eof": True, "entries": 0}, b""


@dataclass
class Door:
    """A server, its model, and a client."""

    app: Application
    client: AsyncOpenAI
    model: ModelServer
    answer: Callable[[ModelRequest], Turn]

    async def ask(self, *messages: tuple[str, str], **options: Any) -> Any:
        said: Any = [{"role": role, "content": text} for role, text in messages]
        return await self.client.chat.completions.create(model="drydock", messages=said, **options)

    async def until(self, conversation_id: str, state: AgentState) -> None:
        """Wait until its record says so."""
        async with asyncio.timeout(LIMIT):
            while True:
                record = await self.app.services.database.conversations.get(conversation_id)
                if record is not None and record.agent_state == state:
                    return
                await asyncio.sleep(0.01)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    made: Door

    def answered(request: ModelRequest) -> Turn:
        return made.answer(request)

    files = {"workspace.pack": no_files, "workspace.unpack": no_files}
    provider = FakeProvider(handlers={"shell.run": shell, "shell.kill": nothing, "workspace.facts": nothing, **files})

    async def choose() -> SandboxSelection:
        return SandboxSelection(provider, "fake sandboxes for tests")

    async with ModelServer(answered) as model, contextlib.AsyncExitStack() as stack:
        values = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "sk-x", "token": TOKEN}
        settings = Settings.model_validate({"data_dir": tmp_path, "generate_titles": False, **values})
        app = create_app(settings, choose=choose)
        port = await stack.enter_async_context(serving(app, ws="none"))
        client = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=TOKEN, max_retries=0, timeout=LIMIT)
        made = Door(app, await stack.enter_async_context(client), model, lambda request: say("Hello."))
        yield made


def last_words(request: ModelRequest) -> str:
    content = request.messages[-1]["content"]
    return str(content if isinstance(content, str) else content[-1]["text"])


async def test_the_model_of_this_door_is_listed(door: Door) -> None:
    assert [model.id async for model in await door.client.models.list()] == ["drydock"]
    assert (await door.client.models.retrieve("drydock")).id == "drydock"
    with pytest.raises(openai.NotFoundError, match="there is 'drydock'"):
        await door.client.models.retrieve("gpt")


async def test_an_answer_comes_whole_with_what_the_agent_did_on_the_way(door: Door) -> None:
    turns = iter([call("terminal", {"command": "ls"}, text="I look."), finish("Nothing there.")])
    door.answer = lambda request: next(turns)
    answer = await door.ask(("user", "What is there?"))
    (choice,) = answer.choices
    assert (choice.message.role, choice.finish_reason) == ("assistant", "stop")
    assert choice.message.content == "I look.\n\nNothing there."
    assert "ls" in choice.message.reasoning_content
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    await door.until(answer.conversation_id, AgentState.FINISHED)


async def test_it_is_streamed_as_it_comes(door: Door) -> None:
    door.answer = lambda request: say("one two three", token_delay=0.2)
    chunks = [
        chunk async for chunk in await door.ask(("user", "Count."), stream=True, stream_options={"include_usage": True})
    ]
    texts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    assert "".join(texts) == "one two three"
    assert len(texts) > 1
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1


async def test_the_next_message_of_a_chat_goes_on_in_its_conversation(door: Door) -> None:
    first = await door.ask(("system", "Be kind."), ("user", "Hi"))
    again = await door.ask(
        ("system", "Be kind; it is noon."), ("user", "Hi "), ("assistant", " Hello.\n"), ("user", "And now?")
    )
    assert again.conversation_id == first.conversation_id
    assert last_words(door.model.last_request).startswith("And now?")
    assert "Be kind." in str(door.model.last_request.messages)


async def test_an_answer_that_is_asked_for_again_goes_on_in_a_fork(door: Door) -> None:
    opening = [("user", "Hi"), ("assistant", "Hello.")]
    first = await door.ask(opening[0])
    second = await door.ask(*opening, ("user", "Left?"))
    other = await door.ask(*opening, ("user", "Right?"))
    assert second.conversation_id == first.conversation_id != other.conversation_id
    said = str(door.model.last_request.messages)
    assert "Hi" in said
    assert "Left?" not in said


async def test_a_chat_goes_on_from_its_own_history_when_the_conversation_was_taken_back(door: Door) -> None:
    chat = [("user", "My name is Ada."), ("assistant", "Hello."), ("user", "What is my name?")]
    first = await door.ask(chat[0])
    base = str(door.client.base_url).removesuffix("/v1/")
    async with httpx.AsyncClient(base_url=base, headers={"X-Session-API-Key": TOKEN}) as page:
        path = f"/api/conversations/{first.conversation_id}/rewind"
        assert (await page.post(path, json={"event_id": None})).status_code == 200
    second = await door.ask(*chat)
    assert second.conversation_id != first.conversation_id
    assert "My name is Ada." in str(door.model.last_request.messages)


async def test_requests_at_once_to_the_same_history_each_have_a_conversation(door: Door) -> None:
    opening = [("user", "Hi"), ("assistant", "Hello.")]
    first = await door.ask(opening[0])
    door.answer = lambda request: say(f"About {last_words(request).split()[0]}.")
    answers = await asyncio.gather(*(door.ask(*opening, ("user", word)) for word in ("Left", "Right", "Up")))
    assert [answer.choices[0].message.content for answer in answers] == ["About Left.", "About Right.", "About Up."]
    conversations = [answer.conversation_id for answer in answers]
    assert len(set(conversations)) == 3
    assert first.conversation_id in conversations


async def test_chats_that_begin_alike_are_told_apart_by_their_instructions(door: Door) -> None:
    chat = [("system", "You are a pirate."), ("user", "Hi")]
    first = await door.ask(*chat)
    await door.ask(("system", "You are a judge."), ("user", "Hi"))
    again = await door.ask(*chat, ("assistant", "Hello."), ("user", "Who are you?"))
    assert again.conversation_id == first.conversation_id


@pytest.mark.parametrize("name", ["user", "safety_identifier"])
async def test_chats_of_several_people_behind_one_client_are_told_apart(door: Door, name: str) -> None:
    def of(person: str) -> dict[str, Any]:
        return {"extra_body": {name: person}}

    chat = [("user", "Hi"), ("assistant", "Hello."), ("user", "Go on")]
    first = await door.ask(chat[0], **of("ann"))
    other = await door.ask(chat[0], **of("bob"))
    assert (await door.ask(*chat, **of("ann"))).conversation_id == first.conversation_id
    assert (await door.ask(*chat, **of("eve"))).conversation_id not in {first.conversation_id, other.conversation_id}


async def test_a_history_that_is_not_known_is_told_to_a_new_agent(door: Door) -> None:
    answer = await door.ask(("user", "My name is Ada."), ("assistant", "Noted."), ("user", "What is my name?"))
    heard = last_words(door.model.last_request)
    assert "My name is Ada." in heard
    assert heard.index("Noted.") < heard.index("What is my name?")
    next_one = await door.ask(
        ("user", "My name is Ada."),
        ("assistant", "Noted."),
        ("user", "What is my name?"),
        ("assistant", "Hello."),
        ("user", "Go on"),
    )
    assert next_one.conversation_id == answer.conversation_id


async def test_a_conversation_can_be_chosen(door: Door) -> None:
    first = await door.ask(("user", "Hi"))
    for chosen in (
        {"extra_headers": {"X-Conversation-Id": first.conversation_id}},
        {"extra_body": {"conversation_id": first.conversation_id}},
        {"metadata": {"conversation_id": first.conversation_id}},
    ):
        assert (await door.ask(("user", "More"), **chosen)).conversation_id == first.conversation_id
    with pytest.raises(openai.NotFoundError, match="not found"):
        await door.ask(("user", "More"), extra_body={"conversation_id": "nope"})
    with pytest.raises(openai.BadRequestError, match="conversation_id"):
        await door.ask(("user", "More"), extra_body={"conversation_id": "../x"})


async def test_a_model_that_fails_fails_the_answer_whole_or_streamed(door: Door) -> None:
    door.answer = lambda request: fail(400, "no such thing")
    with pytest.raises(openai.InternalServerError, match="no such thing"):
        await door.ask(("user", "Hi"))
    with pytest.raises(openai.APIError, match="no such thing"):
        _ = [chunk async for chunk in await door.ask(("user", "Hi"), stream=True)]


@pytest.mark.parametrize("stream", [True, False])
async def test_whoever_leaves_before_the_end_has_the_agent_paused(
    door: Door, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(request: ModelRequest) -> Turn:
        loop.call_soon_threadsafe(asked.set)
        return say("one two three four", token_delay=5)

    door.answer = slow

    async def ask() -> None:
        answer = await door.ask(("user", "Hi"), stream=stream)
        if stream:
            async for _ in answer:
                pass

    asking = asyncio.create_task(ask())
    async with asyncio.timeout(LIMIT):
        await asked.wait()
    asking.cancel()
    await asyncio.wait([asking])
    page = await door.app.services.database.conversations.list_page(limit=1)
    await door.until(page.results[0].id, AgentState.PAUSED)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("stream", [True, False])
async def test_a_server_that_ends_says_so_and_leaves_the_agent_paused(door: Door, stream: bool) -> None:
    loop, ending = asyncio.get_running_loop(), door.app.services.ending

    def slow(request: ModelRequest) -> Turn:
        loop.call_soon_threadsafe(ending.set)
        return say("one two three four", token_delay=5)

    async def ask() -> None:
        _ = [chunk async for chunk in await door.ask(("user", "Hi"), stream=stream)]

    door.answer = slow
    with pytest.raises(openai.APIError, match="the server is ending") as caught:
        await ask()
    assert caught.value.code == "agent_failed"
    assert isinstance(caught.value, openai.APIStatusError) is not stream  # a stream has begun, and has its status
    if isinstance(caught.value, openai.APIStatusError):
        assert (caught.value.status_code, caught.value.response.headers["x-should-retry"]) == (503, "false")
    page = await door.app.services.database.conversations.list_page(limit=1)
    await door.until(page.results[0].id, AgentState.PAUSED)


async def asked_about(door: Door, then: Turn) -> str:
    """The agent's question whether it may remove a file; what the model says `then`."""
    save: dict[str, Any] = {"confirmation_mode": True, "llm_model": "openai/scripted", "llm_api_key": "sk-x"}
    save["llm_base_url"] = door.model.url
    turns = iter([call("terminal", {"command": "rm x", "security_risk": "HIGH"}), then])
    door.answer = lambda request: next(turns)
    saved = await door.client.post("/../api/settings", cast_to=object, body=save)
    assert saved is not None
    question = await door.ask(("user", "Remove x"))
    return str(question.choices[0].message.content)


async def test_a_question_before_an_action_is_answered_in_the_chat(door: Door) -> None:
    text = await asked_about(door, finish("Gone."))
    assert "May I do this?" in text
    assert "rm x" in text
    done = await door.ask(("user", "Remove x"), ("assistant", text), ("user", "Approve."))
    page = await door.app.services.database.conversations.list_page(limit=5)
    assert [record.id for record in page.results] == [done.conversation_id]
    assert done.choices[0].message.content == "Gone."


@pytest.mark.parametrize("stream", [True, False])
async def test_a_question_that_is_rejected_is_answered_in_words(door: Door, stream: bool) -> None:
    question = await asked_about(door, say("Never told."))
    opening = [("user", "Remove x"), ("assistant", question)]
    answer = await door.ask(*opening, ("user", "reject"), stream=stream)
    if stream:
        text = "".join([one.delta.content or "" async for chunk in answer for one in chunk.choices])
    else:
        text = answer.choices[0].message.content
    assert text == "Rejected: nothing of it was done. What shall I do instead?"


async def test_other_words_reject_it_and_are_what_the_answer_is_to(door: Door) -> None:
    question = await asked_about(door, say("Because it is old."))
    answer = await door.ask(("user", "Remove x"), ("assistant", question), ("user", "Why?"))
    assert answer.choices[0].message.content == "Because it is old."
    assert "Why?" in str(door.model.last_request.messages)


@pytest.mark.parametrize("end", ["paused", "stopped", "deleted"])
async def test_an_answer_that_is_broken_off_from_elsewhere_is_none(door: Door, end: str) -> None:
    thinking, loop = asyncio.Event(), asyncio.get_running_loop()

    def slow(request: ModelRequest) -> Turn:
        loop.call_soon_threadsafe(thinking.set)
        return say("one two three four", token_delay=5)

    door.answer = slow
    asking = asyncio.create_task(door.ask(("user", "Hi")))
    async with asyncio.timeout(LIMIT):
        await thinking.wait()
        page = await door.app.services.database.conversations.list_page(limit=1)
        path = f"/../api/conversations/{page.results[0].id}"
        if end == "paused":
            event = {"action": "change_agent_state", "args": {"agent_state": "paused"}}
            await door.client.post(f"{path}/events", cast_to=object, body=event)
        elif end == "stopped":
            await door.client.post(f"{path}/stop", cast_to=object)
        else:
            await door.client.delete(path, cast_to=object)
        with pytest.raises(openai.InternalServerError, match=r"from elsewhere|has ended|not found") as caught:
            await asking
    assert caught.value.code == "agent_failed"


async def test_a_history_may_have_refusals(door: Door) -> None:
    refusal: Any = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I must not."}]}
    said: Any = [{"role": "user", "content": "Hi"}, refusal, {"role": "user", "content": "Why?"}]
    await door.client.chat.completions.create(model="drydock", messages=said)
    assert "I must not." in last_words(door.model.last_request)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages: the last one must be the user's"),
        ({"messages": [{"role": "user", "content": "  "}]}, "messages: the user's last one is empty"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
        ({"n": 2}, "n: .*one answer"),
        ({"metadata": {f"k{n}": n for n in range(1_001)}}, "metadata: has 1001 entries; send at most 1000"),
        ({"tools": [{"type": "function"}]}, "tools: .*leave it out"),
        ({"response_format": {"type": "json_object"}}, "response_format: .*leave it out"),
        ({"stream": "maybe"}, "stream"),
        ({"messages": [{"role": "user", "content": [AUDIO]}]}, "messages.0.content.0.type: .*'image_url'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content.0: image_url"),
        ({"messages": [{"role": "user", "content": [image("file:///etc/passwd")]}]}, "image_url.url: .*data:image"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(door: Door, changes: dict[str, Any], named: str) -> None:
    body = {"model": "drydock", "messages": [{"role": "user", "content": "x"}], **changes}
    with pytest.raises(openai.BadRequestError, match=named) as caught:
        await door.client.post("/chat/completions", cast_to=object, body=body)
    assert (caught.value.type, caught.value.param) == ("invalid_request_error", caught.value.message.split(": ")[3][1:])
    assert "Value error" not in caught.value.message
    assert door.model.request_count == 0


def test_of_a_chat_full_of_mistakes_one_message_is_looked_at() -> None:
    """To find all of them, of a body of half a megabyte, would hold everybody up."""
    for message in ({"role": 1, "content": 2}, {"role": "user", "content": [{"type": 1}] * 9_000}):
        with pytest.raises(ValidationError) as caught:
            ChatRequest.model_validate({"model": "drydock", "messages": [message] * 9_000})
        assert caught.value.error_count() < 5


async def test_a_long_chat_is_taken_whole(door: Door) -> None:
    turns = [(role, "x") for _ in range(4_000) for role in ("user", "assistant")]
    answer = await door.ask(*turns, ("user", "And now?"))
    assert answer.choices[0].message.content


async def test_what_is_not_here_is_an_error_that_openais_clients_read(door: Door) -> None:
    with pytest.raises(openai.NotFoundError, match=r"model: .*'gpt-4o'.*'drydock'") as caught:
        await door.client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "x"}])
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    for asked in (door.client.embeddings.create(model="drydock", input="x"), door.client.files.list()):
        with pytest.raises(openai.NotFoundError, match="there are /v1/chat/completions") as caught:
            await asked
        assert caught.value.code == "unknown_url"
    with pytest.raises(openai.NotFoundError, match="there are /v1/chat/completions"):
        await door.client.request(object, FinalRequestOptions(method="options", url="/models"))


async def test_a_body_that_is_no_json_is_told_as_such(door: Door) -> None:
    headers = {"Content-Type": "application/json"}
    with pytest.raises(openai.BadRequestError, match="the body is no valid JSON") as caught:
        await door.client.post("/chat/completions", cast_to=object, content=b'{"model": ', options={"headers": headers})
    assert caught.value.param is None


async def test_what_failed_here_is_not_asked_for_again_by_the_client_itself(door: Door) -> None:
    door.answer = lambda request: fail(400, "no such thing")
    eager = door.client.with_options(max_retries=2)
    with pytest.raises(openai.InternalServerError, match="no such thing") as caught:
        await eager.chat.completions.create(model="drydock", messages=[{"role": "user", "content": "Hi"}])
    assert caught.value.code == "agent_failed"
    page = await door.app.services.database.conversations.list_page(limit=5)
    assert len(page.results) == 1


async def test_without_the_token_there_is_no_way_in(door: Door) -> None:
    stranger = door.client.with_options(api_key="wrong")
    with pytest.raises(openai.AuthenticationError) as caught:
        await stranger.models.list()
    assert caught.value.code == "invalid_api_key"


async def test_what_only_a_model_call_would_know_is_left_alone(door: Door) -> None:
    answer = await door.ask(
        ("user", "Hi"), temperature=0.2, max_tokens=5, response_format={"type": "text"}, n=1, seed=1, user="me"
    )
    assert answer.choices[0].message.content == "Hello."
    answer = await door.ask(("user", "Hi"), stream=None, n=None, tools=None, metadata=None, stream_options=None)
    assert answer.choices[0].message.content == "Hello."
