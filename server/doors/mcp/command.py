"""``drydock mcp``: tools and transcripts of conversations, for the program that starts it."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

from pydantic import AfterValidator, BaseModel, Field

from agent_core.tools.spec import ToolAnnotations
from agent_core.version import VERSION
from drydock_client import NotFoundError
from server.doors.mcp.conversations import DoorConversations, DoorError, ListPage, Outcome, ReadPage, Tell
from server.doors.mcp.sdk import Caller, DoorTool, Offer, Resource, ResourcePage, ToolResult, load, serve_stdio
from server.doors.stdio_program import run_over_stdio
from server.settings.running_server import client_of

A = TypeVar("A", bound=BaseModel)
ToolCallable = Callable[[A, Caller], Awaitable[BaseModel]]

PREFIX: Final = "drydock://conversations/"
PAGE: Final = 50
MAX_ENTRIES: Final = 500
MAX_CHARS: Final = 100_000
ENTRY_CHARS: Final = 4_000

_URI: Final = re.compile(re.escape(PREFIX) + r"([A-Za-z0-9_.~-]{1,100})")
INSTRUCTIONS: Final = (
    "Drydock runs software agents, each in a sandbox of its own. Start one with start_conversation, wait for it with"
    " wait_for_conversation (again, while at_rest is false), and say more with send_message. An agent in the state"
    " awaiting_user_confirmation asks whether it may do something: answer with answer_confirmation."
)

MAX_WAIT_SECONDS: Final = 3600.0
WAIT_SECONDS: Final = 45.0
"""Below the minute after which many clients give a call up."""

_WAIT: Final = (
    "Seconds to wait for the agent to come to rest; the call returns earlier when it does. 0 returns at once. Many"
    " clients give a call up after 60"
)


def _says_something(text: str) -> str:
    if not text.strip():
        raise ValueError("says nothing; send more than white space")
    return text


ConversationArgument = Annotated[
    str, Field(min_length=1, max_length=100, description="The conversation, as start_conversation gave it")
]
MessageText = Annotated[str, Field(min_length=1, max_length=1_000_000), AfterValidator(_says_something)]
WaitSeconds = Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS, description=_WAIT)]


class _Arguments(BaseModel, extra="forbid"):
    pass


class Start(_Arguments):
    """Arguments of ``start_conversation``."""

    message: MessageText = Field(description="The task for the agent")
    repository: str | None = Field(
        None, max_length=500, description="Cloned into its workspace: owner/name, or https://…"
    )
    branch: str | None = Field(None, max_length=500, description="Of the repository; by default its own choice")
    git_provider: str | None = Field(None, max_length=50, description="Of the repository, such as github")
    instructions: str | None = Field(None, max_length=100_000, description="For the agent, besides its own")
    wait_seconds: WaitSeconds = 0.0


class Send(_Arguments):
    """Arguments of ``send_message``."""

    conversation_id: ConversationArgument
    message: MessageText = Field(description="What to say to the agent")
    wait_seconds: WaitSeconds = 0.0


class WaitFor(_Arguments):
    """Arguments of ``wait_for_conversation``."""

    conversation_id: ConversationArgument
    wait_seconds: WaitSeconds = WAIT_SECONDS


class Read(_Arguments):
    """Arguments of ``read_conversation``."""

    conversation_id: ConversationArgument
    after: int = Field(-1, ge=-1, description="Read what came behind this entry; -1 from the beginning")
    latest: bool = Field(False, description="The last entries instead, whatever after says")
    limit: int = Field(50, ge=1, le=500, description="The most entries to give")
    max_chars: int = Field(20_000, ge=500, le=200_000, description="The most text to give, over all entries")
    entry_chars: int = Field(4_000, ge=100, le=100_000, description="Longer entries are cut in their middle")


class ConfirmationAnswer(_Arguments):
    """Arguments of ``answer_confirmation``."""

    conversation_id: ConversationArgument
    accept: bool = Field(description="Whether the agent may do what it asks about")
    feedback: str = Field("", max_length=100_000, description="With accept=false: what the agent is told")
    wait_seconds: WaitSeconds = 0.0


class Stop(_Arguments):
    """Arguments of ``stop_conversation``."""

    conversation_id: ConversationArgument
    end_session: bool = Field(
        False, description="Also end its sandbox and all that runs in it; a message starts it again, with its files"
    )


class List(_Arguments):
    """Arguments of ``list_conversations``."""

    limit: int = Field(20, ge=1, le=100)
    cursor: str | None = Field(None, max_length=500, description="next_cursor of the page before")
    repository: str | None = Field(None, max_length=500, description="Only those that began with this repository")


def conversation_tools(conversations: DoorConversations) -> tuple[DoorTool[Any], ...]:
    """All tools, for these conversations; each takes and gives what its function says, under that function's name."""
    tools: list[DoorTool[Any]] = []

    def tool(description: str, annotations: ToolAnnotations) -> Callable[[ToolCallable[A]], ToolCallable[A]]:
        def add(call: ToolCallable[A]) -> ToolCallable[A]:
            async def called(arguments: A, caller: Caller) -> ToolResult:
                data = (await call(arguments, caller)).model_dump(mode="json")
                return ToolResult(json.dumps(data, ensure_ascii=False), data)

            hints = get_type_hints(call)
            tools.append(
                DoorTool(
                    name=call.__name__,
                    description=description,
                    arguments=hints["arguments"],
                    parameters=_schema(hints["arguments"]),
                    annotations=annotations,
                    call=called,
                    output=_schema(hints["return"]),
                )
            )
            return call

        return add

    @tool(
        "Give a task to a new agent, which works on it in a sandbox of its own. It goes on after this call: wait"
        " with wait_for_conversation.",
        ToolAnnotations(title="Start a conversation", destructiveHint=False),
    )
    async def start_conversation(arguments: Start, caller: Caller) -> Outcome:
        conversation_id = await conversations.start(**arguments.model_dump(exclude={"wait_seconds"}))
        try:
            return await conversations.wait(conversation_id, arguments.wait_seconds, _teller(caller))
        except DoorError as error:  # it is there, and its id must not be lost
            raise DoorError(f"The conversation {conversation_id} was started. {error}") from error

    @tool(
        "Say something to the agent of a conversation; one that has ended its work takes it up again, and one at"
        " work reads it at its next step.",
        ToolAnnotations(title="Send a message", destructiveHint=False),
    )
    async def send_message(arguments: Send, caller: Caller) -> Outcome:
        await conversations.send(arguments.conversation_id, arguments.message)
        return await conversations.wait(arguments.conversation_id, arguments.wait_seconds, _teller(caller))

    @tool(
        "Wait until the agent has come to rest, and get its answer. With at_rest false it is still at work: wait"
        " again. Giving the call up stops nothing.",
        ToolAnnotations.read_only("Wait for the agent"),
    )
    async def wait_for_conversation(arguments: WaitFor, caller: Caller) -> Outcome:
        return await conversations.wait(arguments.conversation_id, arguments.wait_seconds, _teller(caller))

    @tool(
        "Read what was said and done in a conversation, entry by entry. While has_more is true, go on with"
        " after=next_after.",
        ToolAnnotations.read_only("Read a conversation"),
    )
    async def read_conversation(arguments: Read, caller: Caller) -> ReadPage:
        return await conversations.read(**dict(arguments))

    @tool(
        "Say whether an agent that waits in the state awaiting_user_confirmation may do what it asks about.",
        ToolAnnotations(title="Answer the agent's question"),
    )
    async def answer_confirmation(arguments: ConfirmationAnswer, caller: Caller) -> Outcome:
        await conversations.confirm(arguments.conversation_id, accept=arguments.accept, feedback=arguments.feedback)
        return await conversations.wait(arguments.conversation_id, arguments.wait_seconds, _teller(caller))

    @tool(
        "Have the agent stop what it is doing, and what it runs be interrupted. A message lets it go on.",
        ToolAnnotations(title="Stop the agent", idempotentHint=True, openWorldHint=False),
    )
    async def stop_conversation(arguments: Stop, caller: Caller) -> Outcome:
        await (conversations.stop if arguments.end_session else conversations.pause)(arguments.conversation_id)
        return await conversations.outcome(arguments.conversation_id)

    @tool("List conversations, newest first.", ToolAnnotations.read_only("List conversations"))
    async def list_conversations(arguments: List, caller: Caller) -> ListPage:
        return await conversations.page(arguments.limit, arguments.cursor, arguments.repository)

    return tuple(tools)


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return {name: value for name, value in model.model_json_schema(mode="serialization").items() if name != "title"}


def _teller(caller: Caller) -> Tell:
    sent = 0

    async def tell(message: str) -> None:
        nonlocal sent
        sent += 1
        await caller.progress(sent, message)

    return tell


class Transcripts:
    """The `tools.Resources` of a server's conversations."""

    mime_type = "text/markdown"
    template = Resource(
        f"{PREFIX}{{conversation_id}}",
        "transcript",
        "Transcript of a conversation",
        "What was said and done in a conversation, its end if it is long; read_conversation reads all of it.",
    )

    def __init__(self, conversations: DoorConversations) -> None:
        self._conversations = conversations

    async def page(self, cursor: str | None) -> ResourcePage:
        page = await self._conversations.page(PAGE, cursor, None)
        found = [
            Resource(f"{PREFIX}{one.conversation_id}", one.conversation_id, one.title or one.conversation_id)
            for one in page.conversations
        ]
        return ResourcePage(found, page.next_cursor)

    async def read(self, uri: str) -> str | None:
        match = _URI.fullmatch(uri)
        if match is None:
            return None
        try:
            page = await self._conversations.read(
                match[1], latest=True, limit=MAX_ENTRIES, max_chars=MAX_CHARS, entry_chars=ENTRY_CHARS
            )
        except DoorError as error:
            if isinstance(error.__cause__, NotFoundError):
                return None
            raise
        return _markdown(page)


def _markdown(page: ReadPage) -> str:
    parts = [f"# Conversation {page.conversation_id}"]
    if page.entries and page.has_earlier:
        parts.append(f"(What came before entry {page.entries[0].id} is left out.)")
    for entry in page.entries:
        answered = f" of {entry.result_of}" if entry.result_of is not None else ""
        parts.append(f"## {entry.id} {entry.source}: {entry.kind}{answered}\n\n{entry.text}")
    return "\n\n".join(parts) + "\n"


def mcp(url: str | None, key_file: Path | None, environment: Mapping[str, str]) -> int:
    """Serve one client over standard input and output until it ends; the arguments are those of `client_of`."""
    client = client_of(url, key_file, environment)
    load()
    conversations = DoorConversations(client)
    tools, transcripts = conversation_tools(conversations), Transcripts(conversations)

    async def serve() -> None:
        async with client:
            await serve_stdio(Offer("drydock", VERSION, tools, INSTRUCTIONS, transcripts))

    return run_over_stdio("mcp", serve())
