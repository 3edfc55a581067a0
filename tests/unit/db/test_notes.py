"""Notes in the database: whose they are, how they are found, and that nothing of two writers is lost unseen."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from server.db.database import DATABASE_FILE, Database, open_database
from server.db.repositories import notes as notes_module
from server.db.repositories.notes import Note, NoteChangedError, NoteRepository, TooManyNotesError


def note(title: str, content: str = "text", user_id: str = "ann", repository: str = "", ident: str = "") -> Note:
    made = Note(user_id=user_id, title=title, content=content, repository=repository)
    return replace(made, id=ident) if ident else made


def titles(found: list[Note]) -> list[str]:
    return [one.title for one in found]


async def test_a_note_is_seen_changed_and_forgotten_by_its_user_alone(database: Database) -> None:
    notes = database.notes
    kept = await notes.add(note("Build", "make all"))
    assert await notes.get("ann", kept.id) == kept
    assert await notes.get("bob", kept.id) is None
    assert await notes.change("bob", kept.id, title="Mine") is None
    assert not await notes.delete("bob", kept.id)
    for whose, expected in (("ann", ["Build"]), ("bob", [])):
        assert titles(await notes.search(whose, "make", limit=5)) == expected
        assert titles(await notes.recent(whose, "", limit=5)) == expected
        assert titles((await notes.list_page(whose, limit=5)).results) == expected
    assert await notes.delete("ann", kept.id)
    assert await notes.search("ann", "make", limit=5) == []


async def test_another_users_note_of_the_same_id_is_not_returned(database: Database) -> None:
    await database.notes.add(note("Ann's", ident="same"))
    with pytest.raises(Exception, match=r"(?i)unique"):
        await database.notes.add(note("Bob's", user_id="bob", ident="same"))
    assert await database.notes.get("bob", "same") is None


async def test_words_their_beginnings_and_accents_are_found_and_titles_count_more(database: Database) -> None:
    notes = database.notes
    await notes.add(note("Releases", "tagged by hand"))
    await notes.add(note("Café", "menu of the cafe; releases are never mentioned, but for this"))
    await notes.add(note("発音", "東京の会議は毎週月曜日です"))
    assert titles(await notes.search("ann", "release", limit=5)) == ["Releases", "Café"]
    assert titles(await notes.search("ann", "CAFE", limit=5)) == ["Café"]
    assert titles(await notes.search("ann", "会議", limit=5)) == ["発音"], "a word in the midst of a sentence"
    assert await notes.search("ann", "zebra", limit=5) == []


@pytest.mark.parametrize(
    "query",
    ["", "  ", '"', 'a" OR "b', "NEAR(a b)", "title:x", "*", "a AND", "-", "'; DROP TABLE notes; --", "x" * 5000],
)
async def test_no_query_is_more_than_words(database: Database, query: str) -> None:
    await database.notes.add(note("Kept", "drop or near"))
    await database.notes.search("ann", query, limit=5)
    assert titles(await database.notes.recent("ann", "", limit=5)) == ["Kept"]


async def test_those_of_the_repository_come_first_and_those_of_others_not_at_all(database: Database) -> None:
    notes = database.notes
    for title, repository in (("here", "a/b"), ("everywhere", ""), ("elsewhere", "c/d")):
        await notes.add(note(title, "about tests", repository=repository))
    assert titles(await notes.recent("ann", "a/b", limit=5)) == ["here", "everywhere"]
    assert sorted(titles(await notes.search("ann", "tests", limit=5, repository="a/b"))) == ["everywhere", "here"]
    assert len(await notes.search("ann", "tests", limit=5)) == 3
    assert titles((await notes.list_page("ann", limit=5, repository="c/d")).results) == ["elsewhere"]


async def test_the_second_of_two_changes_of_one_version_is_refused_and_the_index_follows(database: Database) -> None:
    notes = database.notes
    kept = await notes.add(note("Port", "3000"))
    changes = [notes.change("ann", kept.id, content=f"port {n}", version=1) for n in (3001, 3002)]
    first, second = await asyncio.gather(*changes, return_exceptions=True)
    assert isinstance(first, Note)
    assert (first.version, first.content) == (2, "port 3001")
    assert isinstance(second, NoteChangedError)
    assert titles(await notes.search("ann", "3001", limit=5)) == ["Port"]
    assert await notes.search("ann", "3000", limit=5) == []


async def test_adding_the_same_note_again_changes_nothing(database: Database) -> None:
    first = await database.notes.add(note("Once", ident="n1"))
    await database.notes.change("ann", "n1", content="edited")
    again = await database.notes.add(note("Once", ident="n1"))
    assert (again.id, again.content) == (first.id, "edited")
    assert len((await database.notes.list_page("ann", limit=10)).results) == 1


async def test_there_are_so_many_notes_and_no_more(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes_module, "MAX_NOTES", 2)
    await database.notes.add(note("1"))
    await database.notes.add(note("2"))
    with pytest.raises(TooManyNotesError, match="forget some first"):
        await database.notes.add(note("3"))
    await database.notes.add(note("1", user_id="bob"))


async def test_notes_outlive_the_server_and_an_index_that_does_not_fit_is_made_anew(tmp_path: Path) -> None:
    async with open_database(tmp_path) as database:
        await database.notes.add(note("Kept", "through restarts"))
    with sqlite3.connect(tmp_path / DATABASE_FILE) as connection:
        connection.execute("DELETE FROM notes_index")
    connection.close()
    async with open_database(tmp_path) as database:
        assert titles(await database.notes.search("ann", "restarts", limit=5)) == ["Kept"]


async def test_of_notes_that_are_first_kept_at_once_all_are_found(database: Database) -> None:
    await asyncio.gather(*(database.notes.add(note(f"Note {number}", "about harbours")) for number in range(5)))
    assert len(await database.notes.search("ann", "harbours", limit=9)) == 5


async def test_without_an_index_the_same_is_found(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes_module, "_CREATE", "CREATE VIRTUAL TABLE notes_index USING fts5_of_nobody(title)")
    plain = NoteRepository(database.engines, database.writer)
    kept = await plain.add(note("Releases", "tagged"))
    await plain.add(note("Other", "of releases"))
    assert titles(await plain.search("ann", "release", limit=5)) == ["Releases", "Other"]
    await plain.change("ann", kept.id, content="signed")
    assert titles(await plain.search("ann", "signed", limit=5)) == ["Releases"]
    assert await plain.delete("ann", kept.id)
