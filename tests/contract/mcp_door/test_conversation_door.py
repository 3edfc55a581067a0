"""``drydock mcp``: conversations for any MCP client, through the official one over the real standard streams."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest
from jsonschema import Draft202012Validator
from mcp import Client, MCPError

from agent_core.testing.model_turns import call, finish, say
from drydock_client import DrydockClient
from server.cli import main
from server.doors.mcp.command import Transcripts
from server.doors.mcp.conversations import DoorConversations, DoorError
from tests.contract.mcp_door.conftest import LIMIT, ROOT, Behind, data_of, program, refusal_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

READING = {"wait_for_conversation", "read_conversation", "list_conversations"}
ACTING = {"start_conversation", "send_message", "answer_confirmation", "stop_conversation"}


async def test_a_conversation_is_started_waited_for_read_and_gone_on_with(behind: Behind, door: Client) -> None:
    behind.script(call("terminal", {"command": "ls"}, text="I look."), finish("Nothing there."), say("And hello."))
    started = await data_of(door, "start_conversation", message="What is there?")
    ident = started["conversation_id"]
    found = await data_of(door, "wait_for_conversation", conversation_id=ident, wait_seconds=60)
    assert (found["at_rest"], found["state"], found["answer"]) == (True, "finished", "Nothing there.")
    again = await data_of(door, "wait_for_conversation", conversation_id=ident)
    assert again == found, "whoever waits for an agent at rest has its answer at once"

    said = await data_of(door, "send_message", conversation_id=ident, message="Say hello.", wait_seconds=60)
    assert (said["at_rest"], said["state"], said["answer"]) == (True, "awaiting_user_input", "And hello.")

    page = await data_of(door, "read_conversation", conversation_id=ident)
    shown = [(entry["source"], entry["kind"], entry["text"]) for entry in page["entries"] if entry["kind"] != "state"]
    assert shown == [
        ("user", "message", "What is there?"),
        ("agent", "run", "I look.\nls"),
        ("agent", "run result", "ran ls\n"),
        ("agent", "finish", "Nothing there."),
        ("user", "message", "Say hello."),
        ("agent", "message", "And hello."),
    ]
    run, result = (next(one for one in page["entries"] if one["kind"] == kind) for kind in ("run", "run result"))
    assert result["result_of"] == run["id"]
    listed = await data_of(door, "list_conversations")
    assert listed["conversations"][0]["conversation_id"] == ident


async def test_every_tool_says_what_it_takes_gives_back_and_does(door: Client) -> None:
    listed = {tool.name: tool for tool in (await door.list_tools()).tools}
    assert listed.keys() == READING | ACTING
    for name, tool in listed.items():
        assert tool.description, name
        assert tool.title, name
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is (name in READING), name
        assert tool.output_schema is not None
        for schema in (tool.input_schema, tool.output_schema):
            Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object", name
        assert tool.input_schema["additionalProperties"] is False, name
    server = door.server_info
    assert server is not None
    assert server.name == "drydock"
    assert "start_conversation" in (door.instructions or "")


async def test_results_fit_their_schemas_and_are_told_as_text_too(behind: Behind, door: Client) -> None:
    schemas = {tool.name: tool.output_schema for tool in (await door.list_tools()).tools}
    ident = (await data_of(door, "start_conversation", message="Hi", wait_seconds=60))["conversation_id"]
    for name, arguments in {
        "wait_for_conversation": {"conversation_id": ident},
        "read_conversation": {"conversation_id": ident},
        "list_conversations": {},
        "stop_conversation": {"conversation_id": ident},
    }.items():
        result = await door.call_tool(name, arguments)
        Draft202012Validator(schemas[name] or {}).validate(result.structured_content)
        (block,) = result.content
        assert json.loads(getattr(block, "text", "")) == result.structured_content, name


async def test_a_wait_tells_what_the_agent_does_and_ends_with_its_limit(behind: Behind, door: Client) -> None:
    behind.script(call("terminal", {"command": "hold"}), finish("Done."))
    ident = (await data_of(door, "start_conversation", message="Hold."))["conversation_id"]
    told: list[tuple[float, str]] = []
    has_begun = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message or ""))
        if "hold" in (message or ""):
            has_begun.set()

    arguments = {"conversation_id": ident, "wait_seconds": 60}
    waiting = asyncio.create_task(door.call_tool("wait_for_conversation", arguments, progress_callback=note))
    async with asyncio.timeout(LIMIT):
        await has_begun.wait()
        short = await data_of(door, "wait_for_conversation", conversation_id=ident, wait_seconds=0.2)
        assert (short["at_rest"], short["state"]) == (False, "running")
        behind.release.set()
        result = await waiting
    assert result.structured_content["answer"] == "Done."
    assert [value for value, _ in told] == sorted({value for value, _ in told}), "what tells of progress grows"
    assert any(message == "run: hold" for _, message in told), told


async def test_a_wait_that_is_given_up_stops_nothing(behind: Behind, door: Client) -> None:
    behind.script(call("terminal", {"command": "hold"}), finish("Done."))
    ident = (await data_of(door, "start_conversation", message="Hold."))["conversation_id"]
    waiting = asyncio.create_task(
        door.call_tool("wait_for_conversation", {"conversation_id": ident, "wait_seconds": 3000})
    )
    while (await data_of(door, "wait_for_conversation", conversation_id=ident, wait_seconds=0))["state"] != "running":
        pass
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    found = await data_of(door, "wait_for_conversation", conversation_id=ident, wait_seconds=0)
    assert found["state"] == "running"
    behind.release.set()
    found = await data_of(door, "wait_for_conversation", conversation_id=ident, wait_seconds=60)
    assert found["answer"] == "Done."


async def test_an_agent_is_stopped_and_goes_on_with_the_next_message(behind: Behind, door: Client) -> None:
    behind.script(call("terminal", {"command": "hold"}), say("Back again."), say("And once more."))
    ident = (await data_of(door, "start_conversation", message="Hold."))["conversation_id"]
    while (await data_of(door, "wait_for_conversation", conversation_id=ident, wait_seconds=0))["state"] != "running":
        pass
    await data_of(door, "stop_conversation", conversation_id=ident)
    found = await data_of(door, "wait_for_conversation", conversation_id=ident, wait_seconds=60)
    assert (found["at_rest"], found["state"]) == (True, "paused")
    found = await data_of(door, "send_message", conversation_id=ident, message="Go on.", wait_seconds=60)
    assert found["answer"] == "Back again."
    await data_of(door, "stop_conversation", conversation_id=ident, end_session=True)
    found = await data_of(door, "stop_conversation", conversation_id=ident)
    assert (found["at_rest"], found["state"]) == (True, "stopped")
    listed = await data_of(door, "list_conversations")
    assert listed["conversations"][0]["status"] == "STOPPED", "to stop it once more starts nothing"
    found = await data_of(door, "send_message", conversation_id=ident, message="Once more.", wait_seconds=60)
    assert (found["at_rest"], found["answer"]) == (True, "And once more."), "a rest from before does not count"


async def test_an_agent_that_asks_is_answered(behind: Behind, door: Client) -> None:
    await behind.store_settings(confirmation_mode=True, llm_model="openai/scripted", llm_base_url=behind.model.url)
    behind.script(
        call("terminal", {"command": "rm -rf x", "security_risk": "HIGH"}),
        call("terminal", {"command": "rm -rf y", "security_risk": "HIGH"}),
        finish("Done."),
    )
    found = await data_of(door, "start_conversation", message="Remove x.", wait_seconds=60)
    ident = found["conversation_id"]
    assert (found["at_rest"], found["state"]) == (True, "awaiting_user_confirmation")
    assert found["asks"] == ["run: rm -rf x"]
    found = await data_of(door, "answer_confirmation", conversation_id=ident, accept=True, wait_seconds=60)
    assert found["asks"] == ["run: rm -rf y"]
    given = {"conversation_id": ident, "accept": False, "feedback": "Leave y.", "wait_seconds": 60}
    found = await data_of(door, "answer_confirmation", **given)
    assert found["at_rest"] is True
    says = await refusal_of(door, "answer_confirmation", accept=True, conversation_id=ident)
    assert says.startswith("Its agent asks nothing: its state is ")
    page = await data_of(door, "read_conversation", conversation_id=ident)
    assert [entry["text"] for entry in page["entries"] if entry["kind"] == "run result"] == ["ran rm -rf x\n"]
    await behind.store_settings(confirmation_mode=False)


async def test_what_is_read_is_bounded_and_goes_on_at_its_cursor(behind: Behind, door: Client) -> None:
    turns = [call("terminal", {"command": f"flood {number}"}) for number in range(4)]
    behind.script(*turns, finish("Done."))
    found = await data_of(door, "start_conversation", message="Flood.", wait_seconds=60)
    ident = found["conversation_id"]
    whole = (await data_of(door, "read_conversation", conversation_id=ident, max_chars=200_000))["entries"]
    read: list[dict[str, object]] = []
    after, has_more = -1, True
    while has_more:
        page = await data_of(
            door, "read_conversation", conversation_id=ident, after=after, max_chars=3000, entry_chars=1000
        )
        assert sum(len(entry["text"]) for entry in page["entries"]) <= 3000
        assert all(len(entry["text"]) <= 1000 for entry in page["entries"])
        assert page["next_after"] > after
        read += page["entries"]
        after, has_more = page["next_after"], page["has_more"]
    assert [entry["id"] for entry in read] == [entry["id"] for entry in whole]
    limited = await data_of(door, "read_conversation", conversation_id=ident, limit=2)
    assert [entry["id"] for entry in limited["entries"]] == [entry["id"] for entry in whole[:2]]
    latest = await data_of(door, "read_conversation", conversation_id=ident, limit=3, latest=True)
    assert [entry["id"] for entry in latest["entries"]] == [entry["id"] for entry in whole[-3:]]
    assert (latest["has_earlier"], latest["has_more"], latest["next_after"]) == (True, False, found["last_event_id"])


async def test_conversations_are_listed_page_by_page(behind: Behind, door: Client) -> None:
    made = [(await data_of(door, "start_conversation", message=f"{n}"))["conversation_id"] for n in range(3)]
    first = await data_of(door, "list_conversations", limit=2)
    rest = await data_of(door, "list_conversations", limit=100, cursor=first["next_cursor"])
    found = [one["conversation_id"] for page in (first, rest) for one in page["conversations"]]
    assert found[:3] == made[::-1]
    assert len(set(found)) == len(found)
    assert rest["next_cursor"] is None
    resources = await door.list_resources()
    assert {str(one.uri) for one in resources.resources} >= {f"drydock://conversations/{ident}" for ident in made}


async def test_a_transcript_is_a_resource(behind: Behind, door: Client) -> None:
    ident = (await data_of(door, "start_conversation", message="Hi there", wait_seconds=60))["conversation_id"]
    (template,) = (await door.list_resource_templates()).resource_templates
    assert template.uri_template == "drydock://conversations/{conversation_id}"
    (content,) = (await door.read_resource(f"drydock://conversations/{ident}")).contents
    text = getattr(content, "text", "")
    assert text.startswith(f"# Conversation {ident}\n")
    assert "user: message\n\nHi there\n" in text
    assert "agent: message\n\nHello.\n" in text
    for nothing in ("drydock://conversations/none", "drydock://conversations/../x", "file:///etc/passwd"):
        with pytest.raises(MCPError, match="there is no resource"):
            await door.read_resource(nothing)


async def test_what_cannot_be_done_is_told_with_its_place_and_fix(behind: Behind, door: Client) -> None:
    for tool in ("wait_for_conversation", "read_conversation", "stop_conversation"):
        assert "Conversation none not found" in await refusal_of(door, tool, conversation_id="none"), tool
    says = await refusal_of(door, "send_message", conversation_id="none", message="Hi")
    assert "none not found" in says
    for nothing in ("", " \n"):
        assert "message: " in await refusal_of(door, "start_conversation", message=nothing)
    assert "colour: Extra inputs" in await refusal_of(door, "start_conversation", message="x", colour="red")
    assert "after: Input should be" in await refusal_of(door, "read_conversation", conversation_id="x", after=-5)
    assert "wait_seconds: " in await refusal_of(door, "wait_for_conversation", conversation_id="x", wait_seconds=1e9)
    says = await refusal_of(door, "list_conversations", cursor="nonsense")
    assert "page_id is not valid" in says
    with pytest.raises(MCPError, match="there is no tool 'delete_everything'; there are: start_conversation"):
        await door.call_tool("delete_everything", {})


async def test_a_server_that_is_away_or_wants_another_key_is_an_error_of_each_call(behind: Behind) -> None:
    async with DrydockClient("http://127.0.0.1:9", timeout=2) as client:
        for asked in (
            DoorConversations(client).page(20, None, None),
            Transcripts(DoorConversations(client)).page(None),
        ):
            with pytest.raises(DoorError, match=r"127\.0\.0\.1:9.*`drydock serve`.*--url"):
                await asked
    async with DrydockClient(behind.url) as client:
        with pytest.raises(DoorError, match="access token with --key-file or DRYDOCK_API_KEY"):
            await DoorConversations(client).page(20, None, None)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--key-file", "/nowhere/key"], "--key-file: /nowhere/key cannot be read"),
        (["--url", "ftp://x"], "--url: "),
    ],
)
async def test_options_that_cannot_be_used_end_it_with_a_clear_line(
    options: list[str], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", *options]) == 2
    told = capfd.readouterr()
    assert told.out == ""
    assert says in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize("number", [signal.SIGTERM, None])
async def test_it_ends_with_its_input_and_by_signals_and_writes_nothing_but_messages(
    behind: Behind, number: signal.Signals | None
) -> None:
    parameters = program("--url", behind.url)
    process = await asyncio.create_subprocess_exec(
        parameters.command,
        *parameters.args,
        cwd=ROOT,
        env=parameters.env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    lines = [
        b"\xff\xfe nonsense",
        b"{",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode(),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode(),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).encode(),
    ]
    process.stdin.write(b"".join(line + b"\n" for line in lines))
    answers: list[dict[str, object]] = []
    async with asyncio.timeout(LIMIT):
        while not any(one.get("id") == 2 for one in answers):
            answers.append(json.loads(await process.stdout.readline()))
        if number is None:
            process.stdin.close()
        else:
            process.send_signal(number)
        status = await process.wait()
    errors = (await process.stderr.read()).decode()
    assert status == 0, errors
    assert "Traceback" not in errors
    process.stdin.close()
