from __future__ import annotations

import json
import logging

from agent_core.events.masking import SecretMasker
from agent_core.troubles import Trouble, coded
from server.cli.serve import JsonFormatter, TextFormatter


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
    assert TextFormatter(SecretMasker(), colour=False).format(found).endswith("nothing can be stored [disk_full]")
    data = json.loads(JsonFormatter(SecretMasker()).format(found))
    assert (data["code"], data["conversation_id"]) == ("disk_full", "c1")


def test_secrets_are_masked_in_messages_and_tracebacks() -> None:
    masker = SecretMasker(["top-secret"])
    for formatter in (TextFormatter(masker, colour=False), JsonFormatter(masker)):
        text = formatter.format(record("the key is top-secret", error=failure()))
        assert "top-secret" not in text
        assert "ValueError" in text
