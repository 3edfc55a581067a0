"""Schemathesis goes through the OpenAPI document: what it allows, what it does not, and all that is answered.

What is generated is the same in every run. To look further, give it another seed and more examples:
``SCHEMATHESIS_SEED=7 SCHEMATHESIS_EXAMPLES=500 pytest tests/contract/openapi/test_schemathesis.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from tests.contract.openapi.documents import document
from tests.contract.openapi.served import Served, serving

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "3"))
IS_WHOLE = "SCHEMATHESIS_EXAMPLES" in os.environ
FIRST, STRIDE = 25, 8
"""Of a route with hundreds of cases, such as one with a large body: so many, and then one of so many."""
SEED = int(os.environ.get("SCHEMATHESIS_SEED", "1"))
SHORT = 64
_ALONE = {"extra-data-sources": {"responses": False}}
"""What is sent depends on the seed alone, not on the answers, in which ids are random."""

_NOT = {"enabled": False}
CONFIG = schemathesis.Config.from_dict(
    {
        "seed": SEED,
        "generation": {"max-examples": EXAMPLES, "database": "none", "with-security-parameters": False},
        "phases": {
            "examples": _ALONE,
            "coverage": {**_ALONE, "unexpected-methods": []},
            "fuzzing": {**_ALONE, "error-feedback": _NOT},
            "stateful": _NOT,
        },
        "checks": {
            # What one field allows may depend on another, on what is stored, or on names: no schema says that.
            "positive_data_acceptance": _NOT,
            # The page is there for other methods, and steps that depend on one another have tests of their own.
            "unsupported_method": _NOT,
            "allow_header_conformance": _NOT,
            "use_after_free": _NOT,
            "ensure_resource_availability": _NOT,
            "object_level_authorization": _NOT,
        },
    }
)


@schemathesis.serializer("application/x-tar")
def as_it_is(ctx: schemathesis.SerializationContext, value: Any) -> bytes:
    """No archive: what is generated is text or bytes."""
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.fixture
def whole(request: pytest.FixtureRequest) -> schemathesis.BaseSchema:
    """All but the one answer that goes on as long as somebody listens; `tests/integration/library` follows it."""
    request.node._nodeid = request.node.nodeid  # as pytest called it when this schemathesis was made
    return schemathesis.openapi.from_dict(dict(document()), config=CONFIG).exclude(path_regex="/log/live$")


# A fixture: it takes seconds to think the cases up, and every process that shares in the tests collects this one.
SCHEMA = schemathesis.pytest.from_fixture("whole")


def _name_what_is_there(case: schemathesis.Case[Any], there: Mapping[str, str]) -> None:
    """Plain words stand for any; what is no plain word, or a long one, is asked for as it is."""
    for container in (case.path_parameters, case.query):
        for name, value in there.items():
            word = str(container.get(name, ""))
            if word.isalnum() and len(word) <= SHORT:
                container[name] = value


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.mark.timeout(1200)  # all routes, one after the other, each a subtest
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")  # schemathesis does so itself
@SCHEMA.parametrize()
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_the_document_is_true(case: schemathesis.Case[Any], served: Served) -> None:
    number = served.prepare_once(case.operation.label)
    if not IS_WHOLE and number > FIRST and number % STRIDE:
        return
    _name_what_is_there(case, served.there)
    case.call_and_validate(base_url=served.url, session=served.session, timeout=30)
