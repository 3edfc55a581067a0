"""What is another user's is, for everybody else, not there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from server.db.repositories.conversations import ConversationRecord
from tests.contract.openapi.documents import Operation, operations
from tests.contract.rest.conftest import Server, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

OF_CONVERSATIONS = [one for one in operations() if "{conversation_id}" in one.path]
ANSWERED = {"get_conversation": "null", "delete_conversation": "false"}
"""The routes that answer 200 for a conversation that is not there."""

BODIES: dict[str, Any] = {"rename_conversation": {"title": "mine now"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server that has a conversation of somebody else."""
    async with serving(tmp_path_factory.mktemp("owners")) as server:
        theirs = ConversationRecord(
            id="theirs", user_id="somebody", selected_repository="o/n", trigger="microagent_management"
        )
        await server.app.services.database.conversations.create(theirs)
        yield server


async def ask(server: Server, operation: Operation, conversation_id: str) -> tuple[int, str]:
    path = operation.path.replace("{conversation_id}", conversation_id)
    for one in operation.parameters("path"):
        path = path.replace(f"{{{one['name']}}}", "1")
    query = {one["name"]: "1" for one in operation.parameters("query") if one.get("required")}
    sent = {"json": BODIES.get(operation.spec["operationId"], {})} if operation.takes_json else {}
    response = await server.client.request(operation.method, path, params=query, **sent)
    return response.status_code, response.text.replace(conversation_id, "?")


@pytest.mark.parametrize("operation", OF_CONVERSATIONS, ids=[one.name for one in OF_CONVERSATIONS])
async def test_another_users_conversation_is_as_little_there_as_none(server: Server, operation: Operation) -> None:
    status, text = await ask(server, operation, "theirs")
    name = operation.spec["operationId"]
    if name == "rename_conversation":  # the one route that the protocol has another answer for
        assert (status, "AUTHORIZATION$PERMISSION_DENIED" in text) == (403, True)
    else:
        assert (status, text) == await ask(server, operation, "unknown")
        assert (status, text) == (200, ANSWERED[name]) if name in ANSWERED else status == 404
    record = await server.app.services.database.conversations.get("theirs")
    assert record is not None
    assert record.title is None


async def test_lists_show_nothing_of_other_users(server: Server) -> None:
    for path in ("/api/conversations", "/api/microagent-management/conversations?selected_repository=o/n"):
        assert (await server.get(path)).json()["results"] == []
