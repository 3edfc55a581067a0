"""`RedisNotices`: short messages to single servers of a cluster by way of a Redis, which spares PostgreSQL that."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from agent_core.errors import DrydockError
from agent_core.troubles import Trouble
from server.errors import ConfigurationError
from server.metrics import ServerMetrics

ANSWER_SECONDS: Final = 2.0
"""How long Redis has for an answer."""
GREETING_SECONDS: Final = 2.0
"""How often a server says something to itself, to see that what is said is heard."""
SILENT_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
CANCEL_SECONDS: Final = 0.1
MAX_WAITING: Final = 10_000
AT_ONCE: Final = 200

_GREETING: Final = "{}"
_log = logging.getLogger(__name__)


class RedisAwayError(DrydockError):
    """Redis cannot be reached, or does not do what it is asked for."""


class _Library:
    """The used part of the client, whose import takes memory that others need not have; it refuses a wrong address."""

    def __init__(self, url: str) -> None:
        try:
            from redis.asyncio import Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
            from redis.exceptions import RedisError
        except ImportError as error:
            raise ConfigurationError(
                "redis_url is set, and the client of Redis is not installed: pip install 'drydock[redis]', or leave "
                f"redis_url out ({error})"
            ) from error
        self.failures = (RedisError, OSError, TimeoutError, RuntimeError)  # the last: uvloop of a closed connection
        self._redis = Redis
        self._url = url
        self._options = {
            "retry": Retry(NoBackoff(), 0),
            "socket_connect_timeout": ANSWER_SECONDS,
            "socket_timeout": ANSWER_SECONDS,
        }
        try:
            self._redis.from_url(url, **self._options).connection_pool.make_connection()
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"redis_url has an option that the client does not take: {error}") from None

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        """A client, connected when it is first used; `RedisAwayError` is all that comes out of it."""
        client = self._redis.from_url(self._url, **self._options)
        try:
            yield client
        except self.failures as error:
            raise RedisAwayError(" ".join(str(error).split()) or "it does not answer in time") from error
        finally:
            await _ended([asyncio.create_task(client.aclose())], of_itself=ANSWER_SECONDS)


class RedisNotices:
    """Sends and hears them while `run` runs.

    Each server hears what is said to the id that it has in that moment (`server_id`). `heard` gets each message on the
    event loop, `unheard` those that no server has heard, and all while Redis `is_there` not; `changed` is called when
    that changes. What is under way when it goes may be lost. Nothing is kept in it.
    """

    def __init__(
        self,
        url: str,
        *,
        server_id: Callable[[], str],
        heard: Callable[[Mapping[str, Any]], None],
        unheard: Callable[[Mapping[str, Any]], object],
        changed: Callable[[], None],
        metrics: ServerMetrics,
    ) -> None:
        self._library = _Library(url)
        self._server_id = server_id
        self._heard = heard
        self._unheard = unheard
        self._changed = changed
        self._metrics = metrics
        self._waiting: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=MAX_WAITING)
        self._wake = asyncio.Event()
        self._was_lost = False
        self.is_there = False
        metrics.gauge("drydock_cluster_redis", lambda: self.is_there)

    def send(self, server_id: str, message: Mapping[str, Any]) -> None:
        """Tell that server soon, in the order of the calls."""
        if not self.is_there:
            self._unheard(message)
            return
        self._waiting.append((server_id, message))
        self._wake.set()

    async def run(self) -> None:
        """Have it work until this is cancelled, whatever becomes of Redis meanwhile."""
        while True:
            try:
                async with self._library.client() as client:
                    await self._serve(client)
            except RedisAwayError as error:
                self._lose(error)
            finally:
                self.is_there = False
            await asyncio.sleep(AGAIN_SECONDS)

    async def _serve(self, client: Any) -> None:
        """Hear and send until one of the two fails."""
        work = [asyncio.create_task(one(client)) for one in (self._listen, self._send)]
        try:
            ended, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            await _ended(work)

    async def _listen(self, client: Any) -> None:
        news = client.pubsub(ignore_subscribe_messages=True)
        try:
            await self._hear(client, news)
        finally:
            with suppress(*self._library.failures):
                await news.aclose()

    async def _hear(self, client: Any, news: Any) -> None:
        listens_as, greeted_at, heard_at = "", 0.0, time.monotonic()
        while True:
            me = self._server_id()  # none for a while, and then another, where it was lost
            if me and me != listens_as:
                if listens_as:
                    await news.unsubscribe(_channel_of(listens_as))
                await news.subscribe(_channel_of(me))
                listens_as, greeted_at = me, 0.0
            if not listens_as:
                await asyncio.sleep(AGAIN_SECONDS)
                heard_at = time.monotonic()
                continue
            if time.monotonic() - greeted_at > GREETING_SECONDS:
                greeted_at = time.monotonic()
                await client.publish(_channel_of(listens_as), _GREETING)
            message = await news.get_message(timeout=AGAIN_SECONDS)
            if message is not None:
                heard_at = time.monotonic()
                self._find()
                self._take(message["data"])
            elif time.monotonic() - heard_at > SILENT_SECONDS:
                raise TimeoutError("nothing is heard that is said to it")

    async def _send(self, client: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
                async with client.pipeline(transaction=False) as pipeline:
                    for server_id, message in some:
                        pipeline.publish(_channel_of(server_id), json.dumps(message, separators=(",", ":")))
                    counts = await pipeline.execute()
                for (_, message), count in zip(some, counts, strict=True):
                    if not count:
                        self._unheard(message)

    def _take(self, line: bytes) -> None:
        with suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict) and message:
                self._heard(message)

    def _find(self) -> None:
        if self.is_there:
            return
        self.is_there = True
        self._changed()
        if self._was_lost:
            _log.info("Redis is there again: live output goes over it")

    def _lose(self, error: RedisAwayError) -> None:
        if not self.is_there and self._was_lost:
            return
        self._was_lost, self.is_there = True, False
        self._changed()
        while self._waiting:
            self._unheard(self._waiting.popleft()[1])
        text = f"Redis is away ({error}): live output goes over PostgreSQL until it is back"
        self._metrics.trouble(Trouble.REDIS_AWAY, text)


async def _ended(tasks: Sequence[asyncio.Task[None]], *, of_itself: float = 0.0) -> None:
    """End these tasks, which have so long to end of themselves.

    The client may swallow a cancellation that meets it when it gives a connection back, so there are several.
    """
    if of_itself:
        await asyncio.wait(tasks, timeout=of_itself)
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCEL_SECONDS)
    for task in tasks:
        task.cancelled() or task.exception()  # what it is was told by whoever failed first


async def examine_redis(url: str) -> str:
    """What is to be said of this Redis, for `drydock doctor`; raises `DrydockError` where it cannot be used."""
    library, channel = _Library(url), _channel_of("doctor")
    async with library.client() as client:
        news = client.pubsub(ignore_subscribe_messages=True)
        try:
            await news.subscribe(channel)
            await client.publish(channel, _GREETING)
            async with asyncio.timeout(ANSWER_SECONDS):
                while await news.get_message(timeout=ANSWER_SECONDS) is None:
                    pass
        finally:
            await news.aclose()
        version = (await client.info("server")).get("redis_version", "")
    return f"Redis {version}: what is said there is heard"


def _channel_of(server_id: str) -> str:
    return f"drydock:{server_id}"
