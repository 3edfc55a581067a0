"""`ServerMetrics`: what a running server counts and measures, in the form that Prometheus reads."""

from __future__ import annotations

import logging
import math
import threading
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from agent_core.spans import Span
from agent_core.troubles import Trouble, coded
from server.measures import MEASURES, TROUBLES, MetricInfo

LOG_SECONDS: Final = 60.0
"""The same trouble of the same conversation has at most one line in the log in this time."""
MAX_SERIES: Final = 500
"""So many combinations of labels one name may have; whatever comes then is counted under `OTHERS`."""
OTHERS: Final = "other"

_MAX_REMEMBERED: Final = 1_000
_MAX_LABEL: Final = 100

logger = logging.getLogger(__name__)


class ServerMetrics:
    """Counts and measures since the server's start (a `SpanWatcher`), and gauges that are read when somebody asks.

    Every name is one of `MEASURES`. May be told of things in any thread.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.RLock()  # what is collected while it is held may write to the log
        self._series: dict[str, dict[tuple[str, ...], _Histogram | _Counter]] = {name: {} for name in MEASURES}
        self._gauges: dict[str, Callable[[], Mapping[tuple[str, ...], float]]] = {}
        for name, measure in MEASURES.items():  # an alert sees only what was there before
            if not measure.labels and measure.kind != "gauge":
                self._of(name, ())
        for code in Trouble:
            self._of(TROUBLES, (code,))
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
        self.add(TROUBLES, times, code)

    def add(self, name: str, amount: float, *labels: str) -> None:
        """Add to the counter of this name and these labels."""
        with self._lock:
            self._of(name, labels).add(amount)

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Note a value in the histogram of this name and these labels."""
        self.add(name, value, *labels)

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
        return int(self._of(TROUBLES, (code,)).total)

    def gauge(self, name: str, read: Callable[[], float], *labels: str) -> None:
        """Show `read()` under this name, with these labels of its own; what had the name before is replaced."""
        self.gauges(name, lambda: {labels: self._read(name, read)})

    def gauges(self, name: str, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """As `gauge`, of several things: `read()` has each by the values of its labels."""
        if name not in MEASURES:
            raise KeyError(f"{name} is none of the measures of server/measures.py")
        self._gauges[name] = read

    # --- what spans tell ---

    def begun(self, span: Span) -> None:
        """Nothing is counted before its end."""

    def ended(self, span: Span) -> None:
        facts, seconds = span.facts, span.seconds
        outcome = "ok" if not span.error else "cancelled" if span.error == "CancelledError" else "error"
        match span.name:
            case "step":
                self.observe("drydock_step_duration_seconds", seconds, outcome)
                self.observe("drydock_step_overhead_seconds", max(0.0, seconds - span.inside.get("model_call", 0.0)))
            case "model_call":
                self._count_call(facts["model"], outcome, span)
            case "tool_call":
                self.observe("drydock_tool_call_duration_seconds", seconds, facts["tool"], outcome)
            case "sandbox_request":
                self.observe("drydock_sandbox_request_duration_seconds", seconds, facts["operation"], outcome)
            case "sandbox_start":
                found = "running" if facts.get("survived") else "down"
                self.observe("drydock_sandbox_start_duration_seconds", seconds, facts["provider"], found, outcome)
            case "queue_wait":
                self.observe("drydock_queue_wait_seconds", seconds, facts["wanted"])
            case "http_request":
                self.add("drydock_http_requests_total", 1, facts["method"], facts["route"], facts["status"])
                self.observe("drydock_http_request_duration_seconds", seconds, facts["method"], facts["route"])
            case "socket_message":
                self.observe("drydock_socket_message_duration_seconds", seconds, outcome)
            case "socket_join":
                self.observe("drydock_socket_join_duration_seconds", seconds, outcome)

    def _count_call(self, model: str, outcome: str, span: Span) -> None:
        facts = span.facts
        self.observe("drydock_model_call_duration_seconds", span.seconds, model, outcome)
        if "first_token_seconds" in facts:
            self.observe("drydock_model_first_token_seconds", facts["first_token_seconds"], model)
        self.add("drydock_model_attempts_total", facts.get("attempts", 0), model)
        for kind in ("input", "output", "cached"):
            self.add("drydock_model_tokens_total", facts.get(f"{kind}_tokens", 0), model, kind)
        self.add("drydock_model_cost_dollars_total", facts.get("cost", 0.0), model)

    # --- what is shown ---

    def render(self) -> bytes:
        """Everything in Prometheus' text format; a gauge that cannot be read is not a number."""
        lines: list[str] = []
        for name, measure in MEASURES.items():
            samples = self._samples(name, measure)
            if samples:
                lines += [f"# HELP {name} {_escaped(measure.meaning)}", f"# TYPE {name} {measure.kind}", *samples]
        return "\n".join([*lines, ""]).encode("utf-8", "replace")

    def _samples(self, name: str, measure: MetricInfo) -> list[str]:
        if (read := self._gauges.get(name)) is not None:
            found = list(read().items())[:MAX_SERIES]
            return [f"{name}{_shown(zip(measure.labels, one, strict=True))} {float(value)!r}" for one, value in found]
        with self._lock:
            return [
                line
                for labels, one in self._series[name].items()
                for line in one.lines(name, list(zip(measure.labels, labels, strict=True)))
            ]

    def _read(self, name: str, read: Callable[[], float]) -> float:
        try:
            return float(read())
        except Exception as error:  # noqa: BLE001 - the others are to be seen all the same
            self.trouble(Trouble.OTHER, f"{name} cannot be read: {error!r}")
            return math.nan

    def _of(self, name: str, labels: tuple[str, ...]) -> _Histogram | _Counter:
        series, measure = self._series[name], MEASURES[name]
        found = series.get(labels)
        if found is None:
            if len(series) >= MAX_SERIES:
                labels = (OTHERS,) * len(labels)
            found = series.setdefault(labels, _Histogram(measure.bounds) if measure.bounds else _Counter())
        return found

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


class _Counter:
    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0.0

    def add(self, amount: float) -> None:
        self.total += amount

    def lines(self, name: str, labels: Sequence[tuple[str, str]]) -> list[str]:
        return [f"{name}{_shown(labels)} {self.total!r}"]


class _Histogram:
    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: Sequence[tuple[str, str]]) -> list[str]:
        lines, so_far = [], 0
        for bound, count in zip((*map(repr, self._bounds), "+Inf"), self._counts, strict=True):
            so_far += count
            lines.append(f"{name}_bucket{_shown([*labels, ('le', bound)])} {float(so_far)!r}")
        shown = _shown(labels)
        return [*lines, f"{name}_sum{shown} {self.total!r}", f"{name}_count{shown} {float(so_far)!r}"]


def _shown(labels: Iterable[tuple[str, str]]) -> str:
    pairs = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def _quoted(value: str) -> str:
    return _escaped(value[:_MAX_LABEL]).replace('"', '\\"')


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


class _Told(NamedTuple):
    """When a trouble was last said, and how often it happened since without being said."""

    at: float
    unsaid: int
