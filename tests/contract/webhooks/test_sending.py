"""What webhooks send: every event, in order, at least once, signed, and nothing to where they must not go."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import text
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError
from starlette.responses import Response

from agent_core.destinations import Destinations, is_public
from agent_core.errors import DrydockError
from agent_core.events.control import AgentState, AgentStateChanged, Recorded
from agent_core.events.event import utc_now
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from server.db.database import Database, open_database
from server.db.engine import DatabaseSettings
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.webhooks import StoredWebhook
from server.doors.webhooks import delivery, dispatcher
from server.doors.webhooks.dispatcher import Webhooks
from server.doors.webhooks.sender import DeliveryOutcome, Sender, new_secret
from tests.contract.webhooks.conftest import Receiver

WAITS = (0.001, 0.002)


@asynccontextmanager
async def sending(
    folder: Path, *, waits: tuple[float, ...] = WAITS, **allowed: Any
) -> AsyncIterator[tuple[Database, Webhooks]]:
    """A process's webhooks; opening the same folder again is the next process."""
    sender = Sender(Destinations(**{"hosts": (), "loopback": True, **allowed}), limit_seconds=5)
    async with open_database(folder) as database, Webhooks(database, sender, waits=waits) as webhooks:
        yield database, webhooks


def says(text: str) -> AnyEvent:
    return MessageEvent(source="user", llm_message=Message.user(text))


async def conversation(database: Database, name: str, user_id: str = "") -> EventStream:
    if await database.conversations.get(name) is None:
        await database.conversations.create(ConversationRecord(id=name, user_id=user_id))
    return await EventStream.open(name, database.events)


async def hook(webhooks: Webhooks, receiver: Receiver, **fields: Any) -> StoredWebhook:
    made = StoredWebhook(**{"id": "wh", "user_id": "", "url": receiver.url, "secret": new_secret(), **fields})
    await webhooks.create(made)
    return made


async def test_each_event_is_sent_signed_and_in_the_order_of_its_log(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path) as (database, webhooks):
        one, other = await conversation(database, "one"), await conversation(database, "other")
        made = await hook(webhooks, receiver)
        for number in range(150):
            await one.add_event(says(f"one {number}"))
            await other.add_events([says(f"other {number}"), says("again")])
        await receiver.until(lambda: len(receiver.events("one")) + len(receiver.events("other")) == 450)
    assert receiver.events("one") == list(range(150))
    assert receiver.events("other") == list(range(300))
    verifier = Verifier(made.secret.get_secret_value())
    for headers, body in receiver.requests:
        told = verifier.verify(body.decode(), headers)
        assert told["type"] == "conversation.events"
        assert told["webhook_id"] == "wh"
        assert told["data"]["last_event_id"] == told["data"]["events"][-1]["id"]
        assert told["data"]["first_event_id"] == told["data"]["events"][0]["id"]
        assert len(told["data"]["events"]) <= 100
    first = json.loads(receiver.requests[0][1])["data"]["events"][0]
    assert (first["action"], first["source"]) == ("message", "user")
    with pytest.raises(WebhookVerificationError):
        verifier.verify((receiver.requests[0][1] + b" ").decode(), receiver.requests[0][0])


async def test_what_is_not_acknowledged_is_sent_again_until_it_is_and_nothing_overtakes_it(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.answer = lambda number: Response(status_code=500 if number <= 5 else 200, content="x" * 10_000)
    async with sending(tmp_path) as (database, webhooks):
        log = await conversation(database, "one")
        await hook(webhooks, receiver)
        await log.add_event(says("first"))
        await receiver.until(lambda: len(receiver.requests) >= 2)
        await log.add_event(says("second"))
        await receiver.until(lambda: len(receiver.events("one")) == 2)
        assert receiver.events("one") == [0, 1]
        assert len(set(receiver.message_ids[:6])) == 1
        assert len({body for _, body in receiver.requests[:6]}) == 1
        await receiver.until(lambda: webhooks.of_user("")[0].problem == "")


async def test_what_a_process_did_not_get_acknowledged_the_next_one_sends(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answer = lambda number: Response(status_code=204 if number == 1 else 503)
    async with sending(tmp_path) as (database, webhooks):
        log = await conversation(database, "one")
        await hook(webhooks, receiver)
        await log.add_event(says("acknowledged"))
        await receiver.until(lambda: receiver.events("one") == [0])
        await receiver.until_position(database, "one", 0)
        await log.add_event(says("refused"))
        await receiver.until(lambda: len(receiver.requests) >= 2)
    async with sending(tmp_path, waits=(60.0,)) as (database, webhooks):
        late = await conversation(database, "late")
        await late.add_event(says("while it fails"))
    receiver.answer = lambda number: Response(status_code=204)
    async with sending(tmp_path):
        await receiver.until(lambda: receiver.events("one") == [0, 1] and receiver.events("late") == [0])


async def test_an_acknowledgement_that_was_lost_leads_to_the_same_message_again(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with sending(tmp_path) as (database, webhooks):
        log = await conversation(database, "one")
        made = await hook(webhooks, receiver)
        await log.add_event(says("hello"))
        await receiver.until(lambda: receiver.events("one") == [0])
        await receiver.until_position(database, "one", 0)
        await database.webhooks.move(made.id, "one", -1)  # as if the process had died before it could note it
    async with sending(tmp_path):
        await receiver.until(lambda: receiver.events("one") == [0, 0])
    assert receiver.message_ids[0] == receiver.message_ids[1]


async def test_a_new_webhook_is_told_of_nothing_that_was_before_it(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path) as (database, webhooks):
        log, silent = await conversation(database, "one"), await conversation(database, "silent")
        await log.add_events([says("old"), says("older")])
        await silent.add_event(says("old"))
        await hook(webhooks, receiver)
        await log.add_event(says("new"))
        await receiver.until(lambda: receiver.events("one") != [])
        assert receiver.events("one") == [2]
        await receiver.until_position(database, "one", 2)
    async with sending(tmp_path) as (database, _):
        log = await conversation(database, "one")
        await log.add_event(says("newer"))
        await receiver.until(lambda: receiver.events("one") == [2, 3])
    assert receiver.events("silent") == []


async def test_only_what_is_wanted_is_sent(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path) as (database, webhooks):
        for name, user_id in (("mine", ""), ("another", ""), ("theirs", "somebody")):
            await conversation(database, name, user_id)
        await hook(webhooks, receiver, events=("agent_state_changed",), conversation_id="mine")
        for name in ("theirs", "another", "mine"):
            log = await conversation(database, name)
            await log.add_events([says("no"), AgentStateChanged(agent_state=AgentState.FINISHED), says("no")])
        await receiver.until_position(database, "mine", 2)
        await webhooks.update("wh", events=())
        await (await conversation(database, "mine")).add_event(says("yes"))
        await receiver.until(lambda: len(receiver.acknowledged) == 2)
    assert receiver.events("mine") == [1, 3]
    assert {one["data"]["conversation_id"] for one in receiver.acknowledged} == {"mine"}


async def test_what_clients_do_not_see_is_not_sent_and_pictures_are_left_out(
    tmp_path: Path, receiver: Receiver
) -> None:
    records: list[dict[str, Any]] = [
        {"action": "null", "args": {}},
        {"action": "run", "args": {"command": "ls", "hidden": True}},
        {"observation": "browse", "content": "A page", "extras": {"url": "http://x/", "screenshot": "data:…"}},
    ]
    async with sending(tmp_path) as (database, webhooks):
        log = await conversation(database, "one")
        await hook(webhooks, receiver)
        await log.add_events([Recorded(source="agent", record={"message": "", **record}) for record in records])
        await receiver.until_position(database, "one", 2)
    assert receiver.events("one") == [2]
    ((page,),) = [one["data"]["events"] for one in receiver.acknowledged]
    assert page["extras"] == {"url": "http://x/"}


async def test_events_that_are_not_wanted_are_looked_at_once(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path) as (database, webhooks):
        log = await conversation(database, "one")
        await hook(webhooks, receiver, events=("finish",))
        await log.add_event(says("hello"))
        await receiver.until_position(database, "one", 0)
    assert receiver.requests == []


async def test_a_receiver_that_asks_for_a_pause_gets_it_but_for_an_hour_at_most(
    tmp_path: Path, receiver: Receiver
) -> None:
    asked = iter(["60", "7200", "soon"])
    receiver.answer = lambda number: Response(status_code=503, headers={"retry-after": next(asked)})
    made = StoredWebhook(id="wh", user_id="", url=receiver.url, secret=new_secret())
    sender = Sender(Destinations(hosts=(), loopback=True), limit_seconds=5)
    async with open_database(tmp_path) as database:
        one = delivery.WebhookDelivery(made, database.webhooks, database.events, sender, waits=WAITS)
        pauses = [one._wait(await sender.send(made, "message", b"{}")) for _ in range(3)]
        await sender.aclose()
    assert pauses[:2] == [60.0, 3600.0]
    assert 0 < pauses[2] < 1


async def test_a_receiver_that_wants_no_more_is_sent_no_more_until_it_is_made_active(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.answer = lambda number: Response(status_code=410)
    async with sending(tmp_path) as (database, webhooks):
        log = await conversation(database, "one")
        await hook(webhooks, receiver)
        await log.add_event(says("hello"))
        await receiver.until(lambda: not webhooks.of_user("")[0].active)
        assert "410" in webhooks.of_user("")[0].problem
    async with sending(tmp_path) as (database, webhooks):
        receiver.answer = lambda number: Response(status_code=200)
        assert not webhooks.of_user("")[0].active
        await (await conversation(database, "one")).add_event(says("again"))
        await webhooks.update("wh", active=True)
        await receiver.until(lambda: receiver.events("one") == [0, 1])


async def test_a_receiver_that_fails_for_days_is_given_up_and_nothing_is_lost(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "GIVES_UP_AFTER", timedelta(0))
    receiver.answer = lambda number: Response(status_code=302, headers={"location": receiver.url})
    async with sending(tmp_path) as (database, webhooks):
        await hook(webhooks, receiver)
        await (await conversation(database, "one")).add_event(says("hello"))
        await receiver.until(lambda: not webhooks.of_user("")[0].active)
        assert "redirects are not followed" in webhooks.of_user("")[0].problem
        assert len(receiver.requests) == 1
        receiver.answer = lambda number: Response(status_code=200)
        await webhooks.update("wh", active=True, failing_since=None, problem="")
        await receiver.until(lambda: receiver.events("one") == [0])


async def test_a_log_can_be_sent_again_from_an_event_on(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path) as (database, webhooks):
        log = await conversation(database, "one")
        await hook(webhooks, receiver)
        await log.add_events([says(f"{number}") for number in range(3)])
        await receiver.until_position(database, "one", 2)
        await webhooks.replay("wh", "one", 0)
        await receiver.until(lambda: receiver.events("one") == [0, 1, 2, 1, 2])
    assert receiver.message_ids[-1] not in receiver.message_ids[:-1], "another batch is another message"


async def test_a_place_beyond_the_end_of_a_log_is_its_end(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path) as (database, webhooks):
        log = await conversation(database, "one")
        await hook(webhooks, receiver)
        await log.add_events([says("old")])
        await receiver.until_position(database, "one", 0)
        await webhooks.replay("wh", "one", 1_000)
        await log.add_events([says("new")])
        await receiver.until(lambda: receiver.events("one") == [0, 1])


async def test_a_deleted_conversation_or_webhook_leaves_nothing_behind(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path) as (database, webhooks):
        await hook(webhooks, receiver)
        await (await conversation(database, "one")).add_event(says("hello"))
        await (await conversation(database, "two")).add_event(says("hello"))
        await receiver.until(lambda: receiver.events("one") == receiver.events("two") == [0])
        stored = "SELECT conversation_id FROM webhook_positions"
        await receiver.until_position(database, "one", 0)
        await receiver.until_position(database, "two", 0)
        await database.conversations.delete("one")
        await database.webhooks.move("wh", "one", 0)  # an acknowledgement that comes too late
        assert await database.engines.fetch(f"{stored} WHERE conversation_id = 'one'") == []
        await webhooks.delete("wh")
        assert await database.engines.fetch(stored) == []
        assert webhooks.of_user("") == await database.webhooks.all() == []


async def test_a_webhook_for_one_conversation_goes_with_it(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path) as (database, webhooks):
        await conversation(database, "one")
        await hook(webhooks, receiver)
        await webhooks.create(replace(webhooks.of_user("")[0], id="own", conversation_id="one"))
        await database.conversations.delete("one")
        assert [one.id for one in webhooks.of_user("")] == [one.id for one in await database.webhooks.all()] == ["wh"]
        assert await webhooks.update("own", active=True) is None  # asked for before, and carried out behind it


async def test_what_the_storage_does_not_delete_or_change_is_told_on(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path) as (database, webhooks):
        await hook(webhooks, receiver)
        log = await conversation(database, "one")
        changes = (webhooks.delete("wh"), webhooks.update("wh", active=True), webhooks.replay("wh", "one", -1))
        told = list[int]()
        for number, change in enumerate(changes):
            told.append(number)
            await database.writer.execute(text("ALTER TABLE webhooks RENAME TO elsewhere"))
            with pytest.raises(DrydockError):
                await change
            await database.writer.execute(text("ALTER TABLE elsewhere RENAME TO webhooks"))
            await log.add_event(says("hello"))
            # What is told again, since that it was told could not be noted yet, is the same.
            await receiver.until(lambda: list(dict.fromkeys(receiver.events("one"))) == told)


async def test_what_was_deleted_before_it_could_be_told_is_not_told(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path) as (database, webhooks):
        receiver.answer = lambda number: Response(status_code=500)
        await hook(webhooks, receiver)
        await (await conversation(database, "one")).add_event(says("hello"))
        await receiver.until(lambda: len(receiver.requests) >= 1)
        await database.conversations.delete("one")
        await (await conversation(database, "two")).add_event(says("hello"))
        receiver.answer = lambda number: Response(status_code=500 if b'"one"' in receiver.requests[-1][1] else 204)
        await receiver.until(lambda: receiver.events("two") == [0])


async def test_an_event_that_is_too_big_for_a_batch_is_sent_alone(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path) as (database, webhooks):
        log = await conversation(database, "one")
        await log.add_event(says("before"))
        await hook(webhooks, receiver)
        await log.add_events([says("small"), says("x" * 600_000), says("small")])
        await receiver.until(lambda: receiver.events("one") == [1, 2, 3])
    assert [len(one["data"]["events"]) for one in receiver.acknowledged] == [1, 1, 1]


NOWHERE = [
    ("http://10.1.2.3/hook", "10.1.2.3, which is no public address; the setting webhook_hosts allows more"),
    ("http://169.254.169.254/latest", "no public address"),
    ("http://[::1]:9/", "no public address"),
    ("http://[::ffff:127.0.0.1]:9/", "no public address"),
    ("http://127.0.0.1:9/", "no public address"),
    ("http://0.0.0.0:9/", "no public address"),
    ("http://localhost:9/", "no public address"),
    ("http://no-such-host.invalid/", "the host no-such-host.invalid is not known"),
]

NOT_PUBLIC = (
    *("0.1.2.3", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fc00::1", "fec0::1", "ff02::1", "2001:db8::1"),
    *("::ffff:10.1.2.3", "::10.1.2.3", "::ffff:0:10.1.2.3", "2002:a01:203::1", "64:ff9b::10.1.2.3"),
    *("64:ff9b:1::10.1.2.3", "2001:0:a01:203::f5fe:fdfc", "::10.1.2.3", "2002:7f00:1::", "64:ff9b::127.0.0.1"),
    "168.63.129.16",
    *("192.0.0.9", "192.0.2.1", "192.88.99.1", "198.18.0.1", "203.0.113.1", "239.1.1.1", "172.16.0.1", "192.168.0.1"),
    *("::ffff:224.0.0.1", "64:ff9b::239.1.1.1", "ff0e::1", "2001:1::1", "2001:2::1", "2001:20::1", "3fff::1"),
)
PUBLIC = ("8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8", "2002:808:808::1", "64:ff9b::8.8.8.8")


@pytest.mark.parametrize(("text", "public"), [*((one, False) for one in NOT_PUBLIC), *((one, True) for one in PUBLIC)])
def test_an_address_that_stands_for_another_one_is_as_public_as_that(text: str, public: bool) -> None:
    assert is_public(ip_address(text)) is public


async def test_a_name_with_several_addresses_is_told_at_the_first_that_answers(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    find = loop.getaddrinfo

    async def found(host: str, port: int, **options: Any) -> Any:
        if host != "receiver.test":
            return await find(host, port, **options)
        return [(2, 1, 6, "", ("127.0.0.2", port)), (2, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(loop, "getaddrinfo", found)
    async with sending(tmp_path, waits=(60.0,)) as (database, webhooks):
        await hook(webhooks, receiver, url=f"http://receiver.test:{receiver.port}/hook")
        await (await conversation(database, "one")).add_event(says("hello"))
        await receiver.until(lambda: receiver.events("one") == [0])


async def test_what_only_the_server_can_reach_is_not_sent_to(tmp_path: Path) -> None:
    async with sending(tmp_path, waits=(60.0,), loopback=False) as (database, webhooks):
        for number, (url, _) in enumerate(NOWHERE):
            await webhooks.create(StoredWebhook(id=f"{number}", user_id="", url=url, secret=new_secret()))
        await (await conversation(database, "one")).add_event(says("hello"))
        async with asyncio.timeout(60):
            while not all(one.problem for one in webhooks.of_user("")):  # noqa: ASYNC110 - the sending changes them
                await asyncio.sleep(0.01)
        for one, (_, problem) in zip(webhooks.of_user(""), NOWHERE, strict=True):
            assert problem in one.problem
            assert one.failing_since is not None


async def test_each_request_has_a_connection_of_its_own_whose_other_end_was_looked_at_for_this_name(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with sending(tmp_path) as (database, webhooks):
        await hook(webhooks, receiver, id="a")
        await hook(webhooks, receiver, id="b", url=receiver.url.replace("127.0.0.1", "localhost"))
        stream = await conversation(database, "one")
        for position in range(2):
            await stream.add_event(says("hello"))
            await receiver.until(lambda: receiver.events("one").count(stream.last_id) == 2)
            await receiver.until_position(database, "one", position)
    assert len(set(receiver.lines)) == 4


async def test_a_host_that_the_settings_allow_is_sent_to(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path, loopback=False, hosts=("localhost",)) as (database, webhooks):
        await hook(webhooks, receiver, url=receiver.url.replace("127.0.0.1", "LOCALHOST"))
        await (await conversation(database, "one")).add_event(says("hello"))
        await receiver.until(lambda: receiver.events("one") == [0])
    assert receiver.requests[0][0]["host"] == f"LOCALHOST:{receiver.port}"


async def test_secrets_are_encrypted_and_survive(tmp_path: Path) -> None:
    secret = new_secret()
    async with sending(tmp_path) as (database, webhooks):
        await webhooks.create(StoredWebhook(id="wh", user_id="", url="http://127.0.0.1:9/", secret=secret))
        (row,) = await database.engines.fetch("SELECT secret FROM webhooks")
        assert secret.get_secret_value() not in row[0]
    async with sending(tmp_path) as (_, webhooks):
        (stored,) = webhooks.of_user("")
        assert stored.secret == secret
        assert replace(stored, secret=SecretStr("")).created_at <= utc_now()


class PlayedServers:
    """One of two servers over a database; whoever does the chores sends, and what is told comes at once."""

    def __init__(self, *, does_chores: bool) -> None:
        self.does_chores = does_chores
        self.other: PlayedServers | None = None
        self.stored: Callable[[str], None] = lambda conversation_id: None

    def tell_stored(self, conversation_id: str) -> None:
        if self.other is not None:
            self.other.stored(conversation_id)

    def hear_stored(self, stored: Callable[[str], None]) -> None:
        self.stored = stored


@pytest.mark.postgresql
async def test_of_servers_over_one_database_one_sends_what_each_of_them_stores(
    tmp_path: Path, postgresql_url: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "RELOAD_SECONDS", 0.05)
    settings = DatabaseSettings(url=postgresql_url)
    one, two = PlayedServers(does_chores=True), PlayedServers(does_chores=False)
    one.other, two.other = two, one
    senders = [CountingSender(Destinations(hosts=(), loopback=True)) for _ in range(2)]
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_database(tmp_path / "first", settings))
        (tmp_path / "second").mkdir(mode=0o700)
        shutil.copy2(tmp_path / "first" / "secret.key", tmp_path / "second")
        second = await stack.enter_async_context(open_database(tmp_path / "second", settings))
        at_first = await stack.enter_async_context(Webhooks(first, senders[0], waits=WAITS, others=one))
        at_second = await stack.enter_async_context(Webhooks(second, senders[1], waits=WAITS, others=two))
        await hook(at_second, receiver)
        log = await conversation(second, "one")
        for number in range(20):
            await log.add_event(says(f"{number}"))
        await receiver.until(lambda: receiver.events("one") == list(range(20)))
        await receiver.until_position(first, "one", 19)
        assert senders[0].sent
        assert not senders[1].sent
        await receiver.until(lambda: at_second.of_user("")[0].delivered_at is not None)  # it is shown there as well
        one.does_chores = False
        sent = senders[0].sent
        await log.add_event(says("while nobody does"))
        two.does_chores = True
        await receiver.until(lambda: receiver.events("one") == list(range(21)))
        assert (senders[0].sent, senders[1].sent) == (sent, 1)
        await at_first.delete("wh")
        await receiver.until(lambda: at_second.of_user("") == [])
        await log.add_event(says("to nobody"))
    assert receiver.events("one") == list(range(21))


class CountingSender(Sender):
    """Counts what it sends."""

    sent = 0

    async def send(self, webhook: StoredWebhook, message_id: str, body: bytes) -> DeliveryOutcome:
        self.sent += 1
        return await super().send(webhook, message_id, body)
