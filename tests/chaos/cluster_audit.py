"""What has to be true after a run with several servers, each thing that is not as one sentence."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.chaos.users import Front, User, answered
from tests.integration.server.conftest import comparable
from tests.postgresql import Cluster

STEPS: Final = 2
"""Commands that are run for each word."""

WITNESS: Final = (
    "CREATE TABLE witnessed_servers (id text, name text)",
    "INSERT INTO witnessed_servers SELECT id, 'server-0' FROM servers",
    "CREATE TABLE witnessed_writes (log text, id bigint, name text, owner text)",
    """CREATE FUNCTION witness_server() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO witnessed_servers VALUES (NEW.id, current_setting('application_name')); RETURN NULL; END $$""",
    "CREATE TRIGGER witness AFTER INSERT ON servers FOR EACH ROW EXECUTE FUNCTION witness_server()",
    """CREATE FUNCTION witness_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO witnessed_writes SELECT NEW.conversation_id, NEW.id, current_setting('application_name'),
            (SELECT owner FROM leases WHERE conversation_id = split_part(NEW.conversation_id, '/', 1)); RETURN NULL;
        END $$""",
    "CREATE TRIGGER witness AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION witness_write()",
)
"""Has the database itself note which server writes what, and who has the lease in that moment."""

_FOREIGN: Final = """
    SELECT w.log, w.id, w.name, s.name AS owner FROM witnessed_writes w JOIN witnessed_servers s ON s.id = w.owner
    WHERE s.name <> w.name AND w.log = ANY($1::text[]) ORDER BY w.log, w.id
"""

_GAPS: Final = """
    SELECT conversation_id, max(id) + 1 - count(*) AS gaps FROM events GROUP BY 1 HAVING max(id) + 1 <> count(*)
"""


async def audit(front: Front, users: list[User], folder: Path, database: Cluster, name: str) -> list[str]:
    found = list[str]()
    for user in users:
        log = await _log(front, user.conversation_id)
        found += [f"{user.name}: {one}" for one in _of_log(user, log)]
        found += [f"{user.name}: {one}" for one in _of_client(user, log)]
        found += [f"{user.name}: {one}" for one in _of_effects(user, log, folder / user.name)]
    logs = [user.conversation_id for user in users]
    listed = ", ".join(f"'{one}'" for one in logs)
    for row in await database.run(_FOREIGN.replace("$1::text[]", f"ARRAY[{listed}]"), database=name):
        found.append(f"event {row['id']} of {row['log']} was written by {row['name']}, {row['owner']} had the lease")
    for row in await database.run(_GAPS, database=name):
        found.append(f"the log {row['conversation_id']} has {row['gaps']} gaps")
    waiting = f"SELECT count(*) FROM inbox WHERE answer IS NULL AND conversation_id IN ({listed})"  # noqa: S608 - ours
    if left := (await database.run(waiting, database=name))[0][0]:
        found.append(f"{left} letters wait in the inbox, though all was said")
    return found


async def _log(front: Front, conversation_id: str) -> list[dict[str, Any]]:
    """The whole log as clients see it, over REST."""
    found: list[dict[str, Any]] = []
    while True:
        query = {"start_id": found[-1]["id"] + 1 if found else 0, "limit": 100}
        path = f"/api/conversations/{conversation_id}/events"
        page = (await front.done("GET", path, random.Random(0), params=query)).json()
        found += page["events"]
        if not page["has_more"]:
            return found


def _of_log(user: User, log: list[dict[str, Any]]) -> Iterator[str]:
    said = [
        str(event["args"]["content"])
        for event in log
        if event.get("action") == "message" and event.get("source") == "user"
    ]
    if said != user.words:
        yield f"said {user.words}, and in the log is {said}"
    answers = Counter(word for event in log for word in answered(event))
    yield from (f"{word} was answered {answers[word]} times" for word in user.words if answers[word] != 1)
    causes = Counter(event["cause"] for event in log if "observation" in event and event.get("cause") is not None)
    for event in log:
        if event.get("action") in ("run", "finish") and causes[event["id"]] != 1:
            yield f"the action {event['id']} has {causes[event['id']]} answers"


def _of_client(user: User, log: list[dict[str, Any]]) -> Iterator[str]:
    ids = [frame["id"] for _, frame in user.frames if isinstance(frame.get("id"), int)]
    if ids != sorted(set(ids)):
        yield f"its client was shown events twice, or in another order: {ids}"
    stored = {event["id"]: event for event in log}
    for number, frame in user.events.items():
        if number not in stored:
            yield f"its client was shown event {number}, which is not in the log: {frame}"
        elif comparable(frame) != comparable(stored[number]):
            yield f"its client was shown event {number} otherwise: {frame} instead of {stored[number]}"
    missing = [event for number, event in stored.items() if number not in user.events and _is_shown(event)]
    if missing:
        yield f"its client was not shown the events {missing}"


def _is_shown(event: dict[str, Any]) -> bool:
    """Of states a history shows the last one alone, and what asks for them, or looks something up, not at all."""
    is_passed_over = event.get("action") in ("change_agent_state", "recall")
    return not is_passed_over and event.get("observation") not in ("agent_state_changed", "null")


def _of_effects(user: User, log: list[dict[str, Any]], file: Path) -> Iterator[str]:
    counted = Counter(file.read_text("utf-8").split() if file.exists() else [])
    failed = {event["cause"] for event in log if event.get("observation") == "error"}
    unsure = [str(event.get("args")) for event in log if event.get("action") == "run" and event["id"] in failed]
    for line in (f"{word}.{step}" for word in user.words for step in range(STEPS)):
        if counted[line] > 1:
            yield f"the side effect {line} is there {counted[line]} times"
        elif not counted[line] and not any(f"echo {line} " in one for one in unsure):
            runs = [one["id"] for one in log if one.get("action") == "run" and f"echo {line} " in str(one.get("args"))]
            answers = [one for one in log if "observation" in one and one.get("cause") in runs]
            yield f"the side effect {line} is not there, and its answer does not say so: {answers}"
