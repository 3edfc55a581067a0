from __future__ import annotations

import json
import logging
import os
import threading
import time
from contextvars import Context
from pathlib import Path

from agent_core.events.masking import SecretMasker
from agent_core.spans import Span, watched_by
from agent_core.troubles import CONVERSATION, USER, Trouble, coded
from server.cli.process_log import (
    A_MINUTE,
    AT_ONCE,
    MAX_MESSAGE,
    MAX_TRACEBACK,
    JsonFormatter,
    LineLimit,
    ProcessLog,
    TextFormatter,
)


def record(message: str, *, error: BaseException | None = None, **extra: object) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error is not None else None
    made = logging.LogRecord("server.x", logging.WARNING, __file__, 1, message, (), info)
    vars(made).update(extra)
    return made


def failure() -> BaseException:
    try:
        raise ValueError("key top-secret is bad")
    except ValueError as error:
        return error


def test_a_line_for_people_names_level_place_and_text() -> None:
    line = TextFormatter(SecretMasker(), colour=False).format(record("something happened"))
    assert line.endswith("warning  server.x: something happened")
    assert "\x1b" not in line
    assert "\x1b[33m" in TextFormatter(SecretMasker(), colour=True).format(record("x"))


def test_a_json_line_is_one_object_with_the_extra_fields() -> None:
    line = JsonFormatter(SecretMasker()).format(record("text\nof two lines", conversation="abc"))
    data = json.loads(line)
    assert "\n" not in line
    assert data["level"] == "warning"
    assert data["message"] == "text\nof two lines"
    assert data["conversation"] == "abc"


def test_the_code_of_bad_luck_ends_its_line() -> None:
    found = record("nothing can be stored")
    vars(found).update(coded(Trouble.DISK_FULL, "c1"))
    line = TextFormatter(SecretMasker(), colour=False).format(found)
    assert line.endswith("nothing can be stored (conversation c1) [disk_full]")
    data = json.loads(JsonFormatter(SecretMasker()).format(found))
    assert (data["code"], data["conversation_id"]) == ("disk_full", "c1")


def test_a_line_that_names_no_conversation_is_of_the_one_that_it_was_written_for() -> None:
    written = Context()
    written.run(CONVERSATION.set, "c1")
    for message, end in (("a skill is left out", " (conversation c1)"), ("conversation c1: it is so", "")):
        line = written.run(TextFormatter(SecretMasker(), colour=False).format, record(message))
        assert line.endswith(f"{message}{end}")
    data = json.loads(written.run(JsonFormatter(SecretMasker()).format, record("a skill is left out")))
    assert data["conversation_id"] == "c1"
    data = json.loads(written.run(JsonFormatter(SecretMasker()).format, record("x", conversation_id="c2")))
    assert data["conversation_id"] == "c2"
    data = json.loads(written.run(JsonFormatter(SecretMasker()).format, record("x", code=Trouble.DISK_FULL)))
    assert "conversation_id" not in data, "it concerns all"
    assert "conversation_id" not in json.loads(JsonFormatter(SecretMasker()).format(record("x")))


def test_a_line_says_whose_its_conversation_is_and_in_which_trace_it_was_written() -> None:
    owners = {"c1": "ann", "c2": "bob"}.get
    as_text = TextFormatter(SecretMasker(), lambda one: owners(one, ""), colour=False)
    as_json = JsonFormatter(SecretMasker(), lambda one: owners(one, ""))

    def written(line: logging.LogRecord, **context: str) -> tuple[str, str | None]:
        def write() -> tuple[str, str | None]:
            CONVERSATION.set(context.get("conversation", ""))
            USER.set(context.get("user", ""))
            return as_text.format(line).partition(": ")[2], json.loads(as_json.format(line)).get("user_id")

        return Context().run(write)

    assert written(record("x"), conversation="c1") == ("x (conversation c1, user ann)", "ann")
    assert written(record("x"), user="eve") == ("x (user eve)", "eve"), "a request that is of no conversation"
    assert written(record("x"), conversation="c9", user="eve") == ("x (conversation c9, user eve)", "eve")
    of_another, of_an_unknown = record("x"), record("x")
    vars(of_another).update(coded(Trouble.ACTION_FAILED, "c2"))
    vars(of_an_unknown).update(coded(Trouble.ACTION_FAILED, "c9"))
    assert written(of_another, user="eve") == ("x (conversation c2, user bob) [action_failed]", "bob")
    assert written(of_an_unknown, conversation="c1", user="eve") == ("x (conversation c9) [action_failed]", None)
    assert written(record("x", code=Trouble.DISK_FULL), user="eve") == ("x [disk_full]", None), "it concerns all"

    with watched_by(Traces()), Span("step"):
        assert json.loads(as_json.format(record("x")))["trace_id"] == "4bf9"
        assert as_text.format(record("x")).endswith("x (trace 4bf9)")


class Traces:
    """A watcher that gives spans the names of their traces."""

    def begun(self, span: Span) -> None:
        span.trace = "4bf9"

    def ended(self, span: Span) -> None:
        """Nothing is kept."""


def test_secrets_are_masked_in_messages_and_tracebacks() -> None:
    masker = SecretMasker(["top-secret"])
    for formatter in (TextFormatter(masker, colour=False), JsonFormatter(masker)):
        text = formatter.format(record("the key is top-secret", error=failure()))
        assert "top-secret" not in text
        assert "ValueError" in text


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def logged_to(descriptor: int, *, clock: Clock | None = None) -> tuple[logging.Logger, ProcessLog]:
    """A logger, and its handler, which has the limit of the process's log."""
    handler = ProcessLog(os.fdopen(descriptor, "w"), LineLimit(now=clock or Clock()))
    handler.setFormatter(TextFormatter(SecretMasker(), colour=False))
    logger = logging.Logger("server.x")
    logger.addHandler(handler)
    return logger, handler


def test_what_is_provoked_again_and_again_cannot_fill_the_disk(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "log"
    logger, handler = logged_to(os.open(path, os.O_CREAT | os.O_WRONLY), clock=clock)

    def provoke() -> None:
        logger.info("a client took nothing", extra=coded(Trouble.SLOW_CLIENT))

    def fail(kind: type[Exception]) -> None:
        try:
            raise kind("x" * 10**6)
        except Exception:
            logger.exception("GET /%s failed", "path" * 10_000)

    for _ in range(20_000):
        provoke()
    assert AT_ONCE <= path.stat().st_size < AT_ONCE + 1_000
    logger.info("something else")
    clock.now += 60
    for _ in range(1_000):
        provoke()
    assert "something else" in path.read_text()
    assert "lines like it that were left out)" in path.read_text()
    size = path.stat().st_size
    assert size < AT_ONCE + A_MINUTE + 1_000
    for _ in range(100):
        fail(ValueError)
    fail(KeyError)  # another fault is another kind
    assert "KeyError" in path.read_text()
    assert path.stat().st_size < size + AT_ONCE + 3 * (MAX_MESSAGE + MAX_TRACEBACK)
    handler._stream.close()


def test_who_reads_no_log_holds_nobody_up_and_is_told_what_is_missing() -> None:
    reading, writing = os.pipe()
    logger, handler = logged_to(writing)
    began = time.monotonic()
    for number in range(3_000):
        logger.handle(record("x" * 1_000, lineno=number))  # each of a kind of its own
    assert time.monotonic() - began < 30
    taken: list[str] = []

    def take() -> None:
        with open(reading) as file:
            taken.extend(file)

    reader = threading.Thread(target=take)
    reader.start()
    handler.flush()
    logger.warning("read again")
    handler._stream.close()
    reader.join(60)
    (told,) = [line for line in taken if "lines of the log are missing here" in line]
    whole = [line for line in taken if line.endswith("x" * 1_000 + "\n")]
    assert len(whole) + int(told.split(": ")[1].split()[0]) == 3_000
    assert 1_000 < len(whole) < 1_200
    assert taken[-1].endswith("read again\n")


def test_a_log_that_cannot_be_written_ends_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    logger, handler = logged_to(writing)
    for _ in range(10):
        logger.warning("nobody is there")
    assert handler._lost == 10
    handler._stream.close()


def test_what_others_have_written_is_no_line_of_its_own_and_does_nothing_to_a_terminal() -> None:
    said = record("GET /a\n12:00:00 error    server.db: the disk is gone \x1b[2J\r\x9b31m\u202e", error=failure())
    first, *more = TextFormatter(SecretMasker(), colour=False).format(said).split("\n")
    assert first.endswith("GET /a")
    assert all(line.startswith("  ") for line in more)
    assert not any(character in "".join(more) for character in "\x1b\r\x9b\u202e")
