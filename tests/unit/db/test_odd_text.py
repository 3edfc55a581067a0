"""What a database might not take as it is: characters that models, sandboxes and recordings may bring."""

from __future__ import annotations

from sqlalchemy import select

from agent_core.testing.store_contract import new_event
from server.db.database import Database
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.notes import Note
from server.db.repositories.user_settings import StoredSettings
from server.db.tables import PlainText, metadata
from tests.unit.db.conftest import save_settings

ODD = "a\0b \x01\x7f\u2028\ufeff 💡 e\u0301"
KEPT = ODD.replace("\0", "\ufffd")


async def test_text_is_kept_but_for_the_one_character_that_no_text_has(database: Database) -> None:
    await database.conversations.create(ConversationRecord(id="one", title=ODD, selected_branch=ODD))
    kept = await database.conversations.get("one")
    assert kept is not None
    assert (kept.title, kept.selected_branch) == (KEPT, KEPT)
    await database.conversations.update("one", title=f"{ODD}!")
    changed = await database.conversations.get("one")
    assert changed is not None
    assert changed.title == f"{KEPT}!"
    note = await database.notes.add(Note(user_id="ann", title=ODD, content=ODD))
    found = await database.notes.get("ann", note.id)
    assert found is not None
    assert (found.title, found.content) == (KEPT, KEPT)
    assert [one.content for one in await database.notes.search("ann", "b", limit=5)] == [KEPT]


async def test_documents_and_events_are_kept_as_they_are(database: Database) -> None:
    half = "half \ud83d a character"
    await database.conversations.create(ConversationRecord(id="one", options={ODD: [half, None, 1e300, 2**60]}))
    kept = await database.conversations.get("one")
    assert kept is not None
    assert kept.options == {ODD: [half, None, 1e300, 2**60]}
    await save_settings(database, StoredSettings(language=ODD))
    assert await database.settings.get() == StoredSettings(language=ODD)
    payload = f'{{"text": "{ODD}", "escaped": "\\u0000\\ud83d"}}'.encode()
    await database.events.append("one", [new_event(payload), new_event(b"\xff\0")])
    assert [event.payload for event in await database.events.read("one")] == [payload, b"\xff\0"]


async def test_whatever_is_looked_for_with_that_character_is_not_found(database: Database) -> None:
    columns = [column for table in metadata.sorted_tables for column in table.columns]
    free = [column for column in columns if isinstance(column.type, PlainText)]
    assert len(free) > 40
    for column in free:
        assert await database.engines.select(select(column).where(column == ODD)) == []
