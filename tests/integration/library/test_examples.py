"""The programs in ``examples/``, each run as a user would run it, with a scripted model over HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from tests.integration.library.conftest import StartModel

pytestmark = pytest.mark.bubblewrap

ROOT = Path(__file__).parents[3]


def run_example(name: str, server: ModelServer, *arguments: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LLM_MODEL": "openai/scripted",
        "LLM_BASE_URL": server.url,
        "LLM_API_KEY": "key-123456",
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_the_minimal_program(start_model: StartModel, project: Path) -> None:
    server = start_model([call("terminal", {"command": "echo five seven five > haiku.txt"}), finish("Written.")])
    out = run_example("minimal.py", server, "Write a haiku.", str(project))
    assert "status: finished" in out
    assert (project / "haiku.txt").read_text() == "five seven five\n"


def test_a_search_tool_that_shares_the_terminals_shell(start_model: StartModel, project: Path) -> None:
    server = start_model(
        [
            call("terminal", {"command": "mkdir -p sub && cp boat.py sub/ship.py && cd sub"}),
            call("search", {"pattern": "class", "include": "*.py"}),
            call(
                "file_editor",
                {"command": "create", "path": str(project / "SUMMARY.txt"), "file_text": "ship.py\n"},
            ),
            finish("Listed."),
            call("terminal", {"command": f"rm {project}/SUMMARY.txt"}),
            finish("Removed."),
        ]
    )
    out = run_example("custom_grep.py", server, str(project))
    # The search began where the terminal's shell had gone: in the folder that has the one file.
    assert "1 lines in 1 files:\\n./ship.py" in out
    assert not (project / "SUMMARY.txt").exists()
    offered = [tool["function"]["name"] for tool in server.requests[0].json["tools"]]
    assert offered == ["file_editor", "terminal", "search", "finish", "think"]
    roles = [line.split(": ")[1] for line in out.splitlines() if line[0].isdigit()]
    assert roles[:4] == ["system", "user", "assistant", "tool"]
    assert roles.count("user") == 2


def test_one_agent_plans_and_another_does_it(start_model: StartModel, project: Path) -> None:
    plan = str(project / "PLAN.md")
    server = start_model(
        [
            call("file_editor", {"command": "create", "path": plan, "file_text": "1. Write VERSION.\n"}),
            finish("Planned."),
            call("terminal", {"command": f"cat {plan} && echo 1.0 > VERSION"}),
            finish("Done."),
        ]
    )
    out = run_example("plan_then_do.py", server, "Add a version.", str(project))
    assert "1. Write VERSION." in out
    assert "status: finished" in out
    assert (project / "VERSION").read_text() == "1.0\n"
    offered = [[tool["function"]["name"] for tool in request.json["tools"]] for request in server.requests]
    assert "terminal" not in offered[0]
    assert "terminal" in offered[2]
