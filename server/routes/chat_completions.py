"""OpenAI's chat completions with a conversation behind each chat: for clients that know nothing of Drydock.

Such a client sends the whole history each time. What it says last goes into the conversation that gave the answer
before; a history that is not known (or was changed) begins a conversation of its own. An answer that is asked for
again goes on in a fork, and so does every request but one of those that come at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

from fastapi import Header, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response, StreamingResponse

from agent_core.errors import DrydockError, EventStoreError, SandboxError
from agent_core.events.branches import Rewind
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState
from agent_core.events.llm_events import MessageEvent, TokenUsage
from agent_core.events.serialization import AnyEvent, from_payload
from server.auth.identity import Identity
from server.conversation_manager.forks import fork_conversation
from server.db.repositories.chat_turns import ChatTurn
from server.db.repositories.conversations import ConversationRecord, id_problem
from server.db.repositories.idempotency_keys import Attempt
from server.dependencies import IdentityDependency, Services, ServicesDependency, find_conversation
from server.doors.chat.requests import MODEL, ChatHistory, ChatRequest, NoUserMessageError
from server.doors.chat.turn import APPROVE, REJECT, ChatClaim, ChatFailedError, Piece, ServerEndingError, TurnRun, paced
from server.errors import RETRY_SECONDS, ConversationNotFoundError, ReplyError, problem_text, refusal_body, status_of
from server.http.base_path import base_path_of
from server.routes.conversations.new_conversation import NewConversation, begin_conversation, warm_id
from server.routes.replies import errors
from server.routes.route_classes import CLIENT_GONE, Handler, JsonRoute, make_router, while_connected
from server.wire.errors import WireError
from server.wire.incoming import from_wire

logger = logging.getLogger(__name__)

DONE = "data: [DONE]\n\n"
AGENT_FAILED: Final = "agent_failed"
STILL_AT_WORK = ": the agent is at work\n\n"
"""A comment: it keeps the connection open through everything between here and the client."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One answer of a conversation; `spent` is what it had used before."""

    conversation_id: str
    ident: str
    spent: tuple[int, int]
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, reasoning: str, usage: TokenUsage | None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if reasoning:
            message["reasoning_content"] = reasoning
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage(usage)}

    def first(self) -> str:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> str:
        name = "content" if piece.channel == "content" else "reasoning_content"
        return self._chunk({name: piece.text})

    def last(self) -> str:
        return self._chunk({}, finish_reason="stop")

    def usage(self, usage: TokenUsage | None) -> str:
        return _data({**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage(usage)})

    def _chunk(self, delta: dict[str, str], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return _data({**self._head("chat.completion.chunk"), "choices": [choice]})

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.ident,
            "object": kind,
            "created": self.created,
            "model": MODEL,
            "conversation_id": self.conversation_id,
        }

    def _usage(self, usage: TokenUsage | None) -> dict[str, int]:
        before_in, before_out = self.spent
        prompt = max(0, usage.prompt_tokens - before_in) if usage is not None else 0
        answered = max(0, usage.completion_tokens - before_out) if usage is not None else 0
        return {"prompt_tokens": prompt, "completion_tokens": answered, "total_tokens": prompt + answered}


def error_chunk(message: str, base_path: str) -> str:
    """An error in the middle of a stream."""
    return _data(refusal_body(500, message, code=AGENT_FAILED, base_path=base_path))


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


class OpenAIRoute(JsonRoute):
    """A `JsonRoute` with OpenAI's form of errors, which reports only the first problem of a long chat."""

    max_values: ClassVar[int] = 100_000

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                return _invalid(error)
            except ReplyError as error:
                body = error.body if isinstance(error.body, dict) else {}
                message = str(body.get("message") or body.get("detail") or error)
                param, code = body.get("param"), body.get("code")
                return _refused(error.status, message, param=param, code=code, base_path=base_path_of(request.scope))
            except HTTPException as error:
                detail = error.detail
                if not isinstance(detail, str):
                    detail = "; ".join(str(one.get("msg", one)) for one in detail)  # type: ignore[unreachable] # see JsonRoute
                return _refused(400 if error.status_code == 422 else error.status_code, detail)
            except ConversationNotFoundError as error:
                return _refused(404, str(error))
            except ChatFailedError as error:
                status = 503 if isinstance(error, ServerEndingError) else 500
                return _refused(status, str(error), code=AGENT_FAILED, base_path=base_path_of(request.scope))
            except DrydockError as error:
                # What a sandbox has no room for is refused before anything has begun.
                code = error.code if isinstance(error, SandboxError | EventStoreError) else ""
                return _refused(
                    status_of(error),
                    str(error),
                    code=code or None,
                    may_repeat=isinstance(error, SandboxError),
                    base_path=base_path_of(request.scope),
                )

        return answered


def _invalid(error: RequestValidationError) -> Response:
    """The finding that lies deepest: of what may have several forms, that is about the one that was meant."""
    problem = max(error.errors(), key=lambda one: len(one["loc"]))
    text = problem_text(problem).removeprefix("Value error, ")
    if problem["type"] == "json_invalid":
        return _refused(400, text)
    names = [
        part
        for part in problem["loc"]
        if isinstance(part, int) or (part.isidentifier() and part not in {"body", "str"})
    ]
    param = ".".join(str(name) for name in names)
    return _refused(400, f"{param or 'body'}: {text}", param=param or None)


def _refused(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    may_repeat: bool = False,
    base_path: str = "",
) -> Response:
    """The refusal. What has failed here fails again: OpenAI's clients would ask twice more on their own account.

    `may_repeat`: unless it is for now only; then they are told when.
    """
    headers = {"X-Should-Retry": "false"} if status >= 500 else {}
    if status == 503:
        headers = {"Retry-After": str(RETRY_SECONDS)} | ({} if may_repeat else headers)
    body = refusal_body(status, message, param=param, code=code, base_path=base_path)
    return JSONResponse(body, status, headers=headers)


class OpenAIProblem(BaseModel):
    """What OpenAI's clients read of an error."""

    message: str
    type: str
    param: str | None
    code: str | None
    docs: str = Field("", description="Path of this server's page about that code.")


class OpenAIError(BaseModel):
    """An error of the routes for OpenAI's clients."""

    error: OpenAIProblem


class Model(BaseModel):
    """A model of this door."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    """All of them."""

    object: Literal["list"]
    data: list[Model]


class Answer(BaseModel):
    """What the agent says."""

    role: Literal["assistant"]
    content: str
    refusal: None
    reasoning_content: str = Field("", description="What it thinks and does on the way.")


class Choice(BaseModel):
    """The one answer."""

    index: int
    message: Answer
    finish_reason: Literal["stop"]
    logprobs: None


class Usage(BaseModel):
    """The tokens of all model calls behind an answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    """An answer in one piece."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    conversation_id: str = Field(description="The conversation behind the chat; an addition.")
    choices: list[Choice]
    usage: Usage


router = make_router("/v1", route_class=OpenAIRoute, responses=errors(404, model=OpenAIError))

CONVERSATION_HEADER = "X-Conversation-Id"
SILENCE_SECONDS = 15.0
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer: whole, or with `stream` as server-sent events (`chat.completion.chunk`)",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
        "headers": {CONVERSATION_HEADER: {"description": "The conversation behind.", "schema": {"type": "string"}}},
    }
}
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_LOOK_BEHIND = 100
_DECISIONS = {APPROVE: AgentState.USER_CONFIRMED, REJECT: AgentState.USER_REJECTED}


class _Place(NamedTuple):
    """The conversation of a turn, whether its agent knows what was said before, and what keeps others out of it."""

    record: ConversationRecord
    goes_on: bool
    claim: ChatClaim | None = None


@router.get("/models", response_model=ModelList)
async def list_models(identity: IdentityDependency) -> dict[str, Any]:
    """The models of this door."""
    return {"object": "list", "data": [_model()]}


@router.get("/models/{model}", response_model=Model)
async def get_model(model: str, identity: IdentityDependency) -> dict[str, Any]:
    """One of them."""
    _check_model(model)
    return _model()


def _check_model(name: str) -> None:
    if name != MODEL:
        fix = f"there is {MODEL!r}, and which one it asks is set in Drydock's settings"
        problem = {"param": "model", "code": "model_not_found"}
        raise ReplyError(404, {"message": f"model: there is no {name[:100]!r} here; {fix}", **problem})


def _model() -> dict[str, Any]:
    return {"id": MODEL, "object": "model", "created": 0, "owned_by": MODEL}


@router.post("/chat/completions", response_model=Completion, responses=_ANSWERS)
async def complete_chat(
    request: Request,
    body: ChatRequest,
    services: ServicesDependency,
    identity: IdentityDependency,
    conversation: Annotated[str | None, Header(alias=CONVERSATION_HEADER)] = None,
) -> Response:
    """Let the agent answer, in one piece or in a stream of pieces; the conversation's id is in a header."""
    _check_model(body.model)
    try:
        history = ChatHistory.of(body.messages, speaker=body.speaker)
    except NoUserMessageError as error:
        raise ReplyError(400, {"message": str(error), "param": "messages"}) from error
    chosen = conversation or body.chosen_conversation
    record, goes_on, claim = await _place(services, identity, history, chosen)
    user_event = await _user_event(services, record, history, goes_on=goes_on)
    turn = TurnRun(services.manager, identity, record.id)
    spent = (record.prompt_tokens, record.completion_tokens)
    reply = ChatReply(record.id, f"chatcmpl-{uuid.uuid4().hex}", spent)
    answer = paced(turn.run(user_event), services.ending, SILENCE_SECONDS)
    pieces = _noted(services, identity, history, turn, answer, claim)
    headers = {CONVERSATION_HEADER: record.id}
    if body.stream:
        wants_usage = body.stream_options is not None and body.stream_options.include_usage
        stream = _stream(reply, turn, pieces, wants_usage=wants_usage, base_path=services.settings.base_path)
        headers |= {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def collected() -> str:
        async with contextlib.aclosing(pieces):
            return "".join([piece.text async for piece in pieces if piece is not None and piece.channel == "reasoning"])

    try:
        reasoning = await while_connected(request, collected())
    except ClientDisconnect:
        raise ReplyError(CLIENT_GONE, {"message": "The client has gone"}) from None
    return JSONResponse(reply.whole(turn.text, reasoning, turn.usage), headers=headers)


@router.api_route("/{path:path}", methods=_METHODS, include_in_schema=False)
async def refuse_path(request: Request, path: str) -> Response:
    """Everything else that OpenAI has, in the form in which its clients read that it is not here."""
    there = "; there are /v1/chat/completions and /v1/models"
    raise ReplyError(404, {"message": f"There is no {request.method} /v1/{path[:200]}{there}", "code": "unknown_url"})


async def _place(services: Services, identity: Identity, history: ChatHistory, chosen: str | None) -> _Place:
    if chosen is not None:
        if (problem := id_problem(chosen)) is not None:
            raise ReplyError(400, {"message": f"conversation_id: {problem}", "param": "conversation_id"})
        if (record := await find_conversation(services, identity, chosen)) is None:
            raise ConversationNotFoundError(chosen)
        return _Place(record, goes_on=True, claim=services.chats.claim(record.id))
    for digest in history.digests:
        known = await services.database.chat_turns.get(identity.user_id, digest)
        if known is None or (record := await find_conversation(services, identity, known.conversation_id)) is None:
            continue
        claim = services.chats.claim(record.id)  # before it is looked at, since that takes its time
        if claim is not None and not await _went_on(services, known):
            return _Place(record, goes_on=True, claim=claim)
        return _Place(await _fork(services, record, known), goes_on=True)
    new = NewConversation(conversation_instructions=history.instructions or None)
    async with warm_id(services, identity, new) as new_id:
        attempt = Attempt(new_id, is_repeated=False)
        return _Place(await begin_conversation(services, identity, new, attempt), goes_on=False)


async def _went_on(services: Services, known: ChatTurn) -> bool:
    """Whether the conversation is no longer where that answer left it: then this is another way to go on from it."""
    after = await services.database.events.read(known.conversation_id, after=known.event_id, limit=_LOOK_BEHIND)
    events = (from_payload(one.payload, one.id, known.conversation_id) for one in after)
    return len(after) == _LOOK_BEHIND or any(
        isinstance(event, Rewind) or (isinstance(event, MessageEvent) and event.source == "user") for event in events
    )


async def _fork(services: Services, source: ConversationRecord, known: ChatTurn) -> ConversationRecord:
    new_id = uuid.uuid4().hex
    await fork_conversation(
        services.database, services.manager, source, new_id, upto=known.event_id, reset_metrics=True, copy_files=True
    )
    record = await services.database.conversations.get(new_id)
    if record is None:
        raise ConversationNotFoundError(new_id)
    return record


async def _user_event(
    services: Services, record: ConversationRecord, history: ChatHistory, *, goes_on: bool
) -> AnyEvent:
    decision = _DECISIONS.get(history.text.strip(" .!").lower())
    if decision is not None and await _agent_state(services, record.id) is AgentState.AWAITING_USER_CONFIRMATION:
        return ChangeAgentState(agent_state=decision, source="user")
    text = history.text if goes_on else history.whole_text
    data = {"action": "message", "args": {"content": text, "image_urls": list(history.images) or None}}
    try:
        return from_wire(data, max_chars=services.settings.max_message_bytes)
    except WireError as error:
        raise ReplyError(400, {"message": f"messages: {error}", "param": "messages"}) from error


async def _agent_state(services: Services, conversation_id: str) -> AgentState | None:
    newest = await services.database.events.read_before(conversation_id, before=2**63 - 1, limit=_LOOK_BEHIND)
    events = (from_payload(one.payload, one.id, conversation_id) for one in newest)
    return next((event.agent_state for event in events if isinstance(event, AgentStateChanged)), None)


async def _noted(
    services: Services,
    identity: Identity,
    history: ChatHistory,
    turn: TurnRun,
    pieces: AsyncGenerator[Piece | None, None],
    claim: ChatClaim | None,
) -> AsyncGenerator[Piece | None, None]:
    try:
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece
        place = ChatTurn(turn.conversation_id, turn.last_event_id)
        await services.database.chat_turns.keep(identity.user_id, history.digests_after(turn.text), place)
    finally:
        if claim is not None:
            claim.release()


async def _stream(
    reply: ChatReply,
    turn: TurnRun,
    pieces: AsyncGenerator[Piece | None, None],
    *,
    wants_usage: bool,
    base_path: str,
) -> AsyncIterator[str]:
    yield reply.first()
    async with contextlib.aclosing(pieces):
        try:
            async for piece in pieces:
                yield STILL_AT_WORK if piece is None else reply.piece(piece)
        except DrydockError as error:
            yield error_chunk(str(error), base_path)
            yield DONE
            return
    yield reply.last()
    if wants_usage:
        yield reply.usage(turn.usage)
    yield DONE
