"""What clients send by way of another server lies in the inbox as long as its conversation is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.db.database import open_database
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.inbox import InboxRepository
from server.errors import ConversationNotFoundError


async def test_letters_go_with_their_conversation(tmp_path: Path) -> None:
    async with open_database(tmp_path) as database:
        inbox = InboxRepository(database.engines, database.writer)
        await database.conversations.create(ConversationRecord(id="c"))
        answered, waits = [await inbox.put("c", b'{"n":1}', after=3) for _ in range(2)]
        await inbox.answer(answered, {"id": 4})
        assert [letter.id for letter in await inbox.waiting("c")] == [waits]
        assert (await inbox.answer_to(answered), await inbox.answer_to(waits)) == ({"id": 4}, None)
        await database.conversations.delete("c")
        assert await database.engines.fetch("SELECT 1 FROM inbox") == []
        assert (await inbox.answer_to(waits) or {})["error"] == "ConversationNotFoundError"
        with pytest.raises(ConversationNotFoundError):
            await inbox.put("c", b"{}", after=-1)
