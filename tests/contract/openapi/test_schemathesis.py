"""Schemathesis goes through the OpenAPI document: what it allows, what it does not, and all that is answered.

What is generated is the same in every run. To look further, give it another seed and more examples:
``SCHEMATHESIS_SEED=7 SCHEMATHESIS_EXAMPLES=500 pytest tests/contract/openapi/test_schemathesis.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import (
    ChecksConfig,
    CoveragePhaseConfig,
    FuzzingPhaseConfig,
    GenerationConfig,
    PhasesConfig,
    PositiveDataAcceptanceConfig,
    ProjectConfig,
    ProjectsConfig,
    SimpleCheckConfig,
    StatefulPhaseConfig,
)

from server.chat.forms import MODEL
from tests.contract.openapi.documents import document
from tests.contract.openapi.served import CONVERSATION, REPOSITORY, SECRET, Served, serving

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "10"))
SEED = int(os.environ.get("SCHEMATHESIS_SEED", "1"))
LEFT_OUT = SimpleCheckConfig(enabled=False)
CHECKS = ChecksConfig(
    # What one field allows may depend on another, on what is stored, or on a list of names: that no schema says.
    positive_data_acceptance=PositiveDataAcceptanceConfig(enabled=False),
    unsupported_method=LEFT_OUT,
    allow_header_conformance=LEFT_OUT,
    use_after_free=LEFT_OUT,
    ensure_resource_availability=LEFT_OUT,
    object_level_authorization=LEFT_OUT,
)

SCHEMA = schemathesis.openapi.from_dict(
    dict(document()),
    config=schemathesis.Config(
        seed=SEED,
        projects=ProjectsConfig(
            default=ProjectConfig(
                checks=CHECKS,
                generation=GenerationConfig(
                    max_examples=EXAMPLES,
                    deterministic="SCHEMATHESIS_SEED" not in os.environ,
                    with_security_parameters=False,
                ),
                phases=PhasesConfig(
                    coverage=CoveragePhaseConfig(unexpected_methods=set()),
                    fuzzing=FuzzingPhaseConfig(),
                    stateful=StatefulPhaseConfig(enabled=False),
                ),
            )
        ),
    ),
)


THERE = {"conversation_id": CONVERSATION, "repository": REPOSITORY, "secret_id": SECRET, "model": MODEL}
"""Values of parameters with which more happens than that something is not found."""


def _name_what_is_there(case: schemathesis.Case) -> None:
    """Plain words stand for any; what is no plain word is asked for as it is."""
    for container in (case.path_parameters, case.query):
        for name, value in THERE.items():
            if str(container.get(name, "")).isalnum():
                container[name] = value


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as running:
        yield running


@SCHEMA.parametrize()
@settings(
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_the_document_is_true(case: schemathesis.Case, served: Served) -> None:
    served.prepare_once(case.operation.label)
    _name_what_is_there(case)
    case.call_and_validate(base_url=served.url, session=served.session, timeout=30)
