"""`ServerMetrics`: what a running server counts, in the form that Prometheus reads."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from agent_core.troubles import Trouble, coded

TROUBLES: Final = "drydock_troubles"
"""Counter of bad luck by its code; Prometheus adds ``_total`` to its name."""

LOG_SECONDS: Final = 60.0
"""The same trouble of the same conversation has at most one line in the log in this time."""
_MAX_REMEMBERED: Final = 1_000

logger = logging.getLogger(__name__)


class ServerMetrics:
    """Counts since the server's start, and gauges that are read when somebody asks."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._troubles = Counter(dict.fromkeys(Trouble, 0))  # an alert sees only a counter that was there before
        self._gauges: dict[str, _Gauge] = {}
        self._told: OrderedDict[tuple[str, str], _Told] = OrderedDict()

    def trouble(self, code: Trouble, sentence: str, conversation_id: str = "", *, level: int = logging.WARNING) -> None:
        """Count bad luck under its `code` and write its sentence to the log, with its conversation if it is of one.

        What happens again within `LOG_SECONDS` is counted, and the next line says how often.
        """
        self.count(code)
        unsaid = self._unsaid(code, conversation_id)
        if unsaid is None:
            return
        where = f"conversation {conversation_id}: " if conversation_id else ""
        again = f" (and {unsaid} more times since it was last said)" if unsaid else ""
        facts = coded(code, conversation_id)
        logger.log(level, "%s%s%s", where, " ".join(sentence.split()), again, extra=facts)

    def count(self, code: Trouble, times: int = 1) -> None:
        """Count it without a line in the log: somebody else writes that."""
        with self._lock:
            self._troubles[code] += times

    @contextmanager
    def counting_lines(self) -> Iterator[None]:
        """Context in which every line of the process's log that tells of bad luck is counted.

        Under its code (`coded`); without one as unexpected if it has a traceback, else as other from warnings on.
        """
        handler = _LineCounter(self)
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)

    def troubles(self, code: Trouble) -> int:
        """How often there was trouble of this code since the start."""
        return self._troubles[code]

    def gauge(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Show `read()` under this name, which says its unit; a gauge of the same name is replaced."""
        self._gauges[name] = _Gauge(meaning, read)

    def render(self) -> bytes:
        """Everything in Prometheus' text format. Blocks for some 60 ms the first time: its library is imported then."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterable[Any]:
        """What Prometheus' library asks of a collector: families of values."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        troubles = CounterMetricFamily(TROUBLES, "Bad luck that was met, by its code", labels=["code"])
        for code, times in sorted(self._troubles.items()):
            troubles.add_metric([code], times)
        yield troubles
        for name, gauge in sorted(self._gauges.items()):
            yield GaugeMetricFamily(name, gauge.meaning, value=gauge.read())

    def _unsaid(self, code: str, conversation_id: str) -> int | None:
        """How many times it was not said since it last was; None: it is not to be said now."""
        key, now = (code, conversation_id), self._now()
        told = self._told.get(key)
        if told is not None and now - told.at < LOG_SECONDS:
            self._told[key] = told._replace(unsaid=told.unsaid + 1)
            return None
        self._told[key] = _Told(now, 0)
        self._told.move_to_end(key)
        while len(self._told) > _MAX_REMEMBERED:
            self._told.popitem(last=False)
        return told.unsaid if told is not None else 0


class _LineCounter(logging.Handler):
    def __init__(self, metrics: ServerMetrics) -> None:
        super().__init__(logging.INFO)
        self._metrics = metrics

    def emit(self, record: logging.LogRecord) -> None:
        code = getattr(record, "code", None)
        if record.name == __name__:  # it was counted before its line was written
            return
        if isinstance(code, Trouble):
            self._metrics.count(code, getattr(record, "times", 1))
        elif record.exc_info:
            self._metrics.count(Trouble.UNEXPECTED)
        elif record.levelno >= logging.WARNING:
            self._metrics.count(Trouble.OTHER)


class _Gauge(NamedTuple):
    meaning: str
    read: Callable[[], float]


class _Told(NamedTuple):
    """When a trouble was last said, and how often it happened since without being said."""

    at: float
    unsaid: int
