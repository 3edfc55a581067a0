"""The programs in ``examples/``, run as a user would run them: in a folder, in a container and on a server.

With a scripted model."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish
from drydock_client import NotFoundError, SyncDrydockClient
from tests.integration.library.conftest import RunningServer, StartModel
from tests.integration.server.forks import ROOT, run_program

pytestmark = pytest.mark.bubblewrap

LIMIT_SECONDS = 120
BROWSER_IMAGE = "drydock/sandbox:browser"


class Home:
    """Where an example works: what it is told, and what its commands see."""

    def __init__(self, place: str, project: Path, server: RunningServer | None) -> None:
        self.is_folder = place == "folder"
        self.is_container = place == "docker"
        self._project = project
        self._server = server
        self.argument = str(project) if server is None else server.process.url
        if self.is_container:
            self.argument = "docker:"
        self.folder = str(project) if self.is_folder else "/workspace"
        self.environment = {"DRYDOCK_API_KEY": server.process.token or ""} if server is not None else {}
        self.files = ["boat.py", "notes.txt"] if self.is_folder else []

    def check(self, name: str, text: str | None) -> None:
        """See that a file has this text afterwards, or is not there; a container is gone by then."""
        if self.is_folder:
            path = self._project / name
            assert (path.read_text() if path.exists() else None) == text
        elif self._server is not None:
            assert self._on_server(self._server, name) == text

    def _on_server(self, server: RunningServer, name: str) -> str | None:
        with SyncDrydockClient(server.process.url, server.process.token) as client:
            newest = next(iter(client.conversations()))
            try:
                return client.files.download(newest.id, name).decode()
            except NotFoundError:
                return None


@pytest.fixture(params=["folder", pytest.param("docker", marks=pytest.mark.docker), "server"])
def home(request: pytest.FixtureRequest, project: Path) -> Home:
    server = request.getfixturevalue("running_server") if request.param == "server" else None
    return Home(request.param, project, server)


def run_example(name: str, server: ModelServer, home: Home, *arguments: str, plainly: bool = False) -> str:
    """What it prints; `plainly`: by an interpreter of its own, otherwise by a fork of one that has imported all."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LLM_MODEL": "openai/scripted",
        "LLM_BASE_URL": server.url,
        "LLM_API_KEY": "key-123456",
        **home.environment,
    }
    command = [str(ROOT / "examples" / name), *arguments]
    if plainly:
        done = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
        )
    else:
        done = run_program(command, environment, ROOT, limit_seconds=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_the_minimal_program(start_model: StartModel, home: Home) -> None:
    server = start_model([call("terminal", {"command": "echo five seven five > haiku.txt"}), finish("Written.")])
    out = run_example("minimal.py", server, home, "Write a haiku.", home.argument, plainly=home.is_folder)
    assert "status: finished" in out
    home.check("haiku.txt", "five seven five\n")


def test_the_tools_of_an_mcp_server(start_model: StartModel, home: Home) -> None:
    noon = {"source_timezone": "Europe/Lisbon", "time": "12:00", "target_timezone": "Asia/Tokyo"}

    def answer(request: ModelRequest) -> Turn:
        if "convert_time" not in [tool["function"]["name"] for tool in request.json["tools"]]:
            return call("terminal", {"command": "sleep 1"})  # a busy machine: the server is not there yet
        return call("convert_time", noon) if "+09:00" not in str(request.messages[-1]) else finish("In the evening.")

    server = start_model(answer)
    home.environment["WORKSPACE"] = home.argument
    out = run_example("mcp_tools.py", server, home, "When is noon?", sys.executable, "-m", "mcp_server_time")
    assert "tools of the server: convert_time, get_current_time" in out
    assert "status: finished" in out
    assert "+09:00" in str(server.requests[-1].messages[-1]["content"])


def test_a_search_tool_that_shares_the_terminals_shell(start_model: StartModel, home: Home) -> None:
    server = start_model(
        [
            call("terminal", {"command": "mkdir -p sub && echo class Boat: > sub/ship.py && cd sub"}),
            call("search", {"pattern": "class", "include": "*.py"}),
            call(
                "file_editor",
                {"command": "create", "path": f"{home.folder}/SUMMARY.txt", "file_text": "ship.py\n"},
            ),
            finish("Listed."),
            call("terminal", {"command": f"rm {home.folder}/SUMMARY.txt"}),
            finish("Removed."),
        ]
    )
    out = run_example("custom_grep.py", server, home, home.argument)
    # The search began where the terminal's shell had gone: in the folder that has the one file.
    assert "1 lines in 1 files:\\n./ship.py" in out
    home.check("SUMMARY.txt", None)
    offered = [tool["function"]["name"] for tool in server.requests[0].json["tools"]]
    assert sorted(offered) == ["file_editor", "finish", "search", "terminal", "think"]
    roles = [line.split(": ")[1] for line in out.splitlines() if line[0].isdigit()]
    assert roles[:4] == ["system", "user", "assistant", "tool"]
    assert roles.count("user") == 2


def test_one_agent_plans_and_another_does_it(start_model: StartModel, home: Home) -> None:
    plan = f"{home.folder}/PLAN.md"
    server = start_model(
        [
            call("glob", {"pattern": "*.py"}),
            call("grep", {"pattern": "CLASS"}),
            call("planning_file_editor", {"command": "view", "path": f"{home.folder}/boat.py"}),
            call("planning_file_editor", {"command": "create", "path": f"{home.folder}/VERSION", "file_text": "1"}),
            call(
                "planning_file_editor",
                {
                    "command": "str_replace",
                    "path": plan,
                    "old_str": "# 4. Implementation Steps\n",
                    "new_str": "# 4. Implementation Steps\n\n1. Write VERSION.\n",
                },
            ),
            finish("Planned."),
            call("task_tracker", {"command": "plan", "task_list": [{"title": "Write VERSION"}]}),
            call("terminal", {"command": f"grep -c '^# ' {plan} && echo 1.0 > VERSION"}),
            finish("Done."),
        ]
    )
    out = run_example("plan_then_do.py", server, home, "Add a version.", home.argument)
    assert "# 1. Objective" in out
    assert "1. Write VERSION." in out
    listed = "".join(f"  {name}\n" for name in sorted(["PLAN.md", "VERSION", *home.files]))
    assert f"Files in the folder:\n{listed}Cost: " in out
    home.check("VERSION", "1.0\n")
    told = [str(request.json["messages"][-1]["content"]) for request in server.requests]
    if home.files:
        assert f"Found 1 file(s) matching pattern '*.py' in '{home.folder}':\n{home.folder}/boat.py" in told[1]
        assert f"Found 2 file(s) containing pattern 'CLASS' in '{home.folder}':" in told[2]
        assert "class Boat" in told[3]
    assert f"not allowed on {home.folder}/VERSION" in told[4]
    assert "has been edited" in told[5]
    assert "5" in told[8].splitlines()[0]
    offered = [[tool["function"]["name"] for tool in request.json["tools"]] for request in server.requests]
    assert offered[0] == ["glob", "grep", "planning_file_editor", "finish", "think"]
    assert offered[6] == ["terminal", "file_editor", "task_tracker", "finish", "think"]


def test_sub_agents_work_in_the_folder_and_are_counted_apart(start_model: StartModel, home: Home) -> None:
    server = start_model(
        [
            call("delegate", {"command": "spawn", "ids": ["eyes", "hands"], "agent_types": ["reviewer", "bash"]}),
            call("delegate", {"command": "delegate", "tasks": {"eyes": "Look.", "hands": "Look."}}),
            *[call("terminal", {"command": "ls && echo seen >> seen.txt"})] * 2,
            *[finish("There is a class Boat.")] * 2,
            call("task", {"prompt": "Count.", "description": "Count the lines"}),
            call("terminal", {"command": "wc -l < seen.txt"}),
            finish("2 lines."),
            finish("All seen."),
        ]
    )
    out = run_example("sub_agents.py", server, home, "Is it ready?", home.argument)
    report = "1. Agent eyes: There is a class Boat.\n2. Agent hands: There is a class Boat.\n"
    assert f"--- Completed delegation of 2 tasks\n{report}" in out
    assert "--- Task ID: task_00000001\nSubagent: general-purpose\nStatus: completed\n\n2 lines.\n" in out
    assert "status: finished" in out
    counted = [line.partition(": ")[0] for line in out.splitlines() if line.endswith(" tokens read")]
    assert counted == ["agent", "delegate:eyes", "delegate:hands", "task:task_00000001"]
    home.check("seen.txt", "seen\nseen\n")
    assert server.requests[-2].json["messages"][-1]["content"].startswith("2")


@pytest.mark.browser
@pytest.mark.browser_image
def test_an_agent_reads_a_site_with_its_browser(start_model: StartModel, home: Home) -> None:
    index = "<title>Log book</title><h1>Log book</h1><a href='newest.html'>Newest entry</a><p>Older ones.</p>"
    newest = "<title>Storm</title><h1>Storm</h1><p>All boats are in.</p>"
    write = f"printf %s {shlex.quote(index)} > index.html; printf %s {shlex.quote(newest)} > newest.html; "
    serve = (
        f"{write}python3 -m http.server 8123 --bind 127.0.0.1 >/tmp/log 2>&1 & until curl -s localhost:8123; do :; done"
    )

    def result(request: ModelRequest) -> str:
        return next(str(one["content"]) for one in reversed(request.messages) if one["role"] == "tool")

    def click_newest(request: ModelRequest) -> Turn:
        found = re.search(r'\[(\d+)\] link "Newest entry"', result(request))
        return call("browser_click", {"index": int(found.group(1)) if found else 0})

    script: list[Callable[[ModelRequest], Turn]] = [
        lambda _: call("terminal", {"command": serve}),
        lambda _: call("browser_navigate", {"url": "localhost:8123"}),
        lambda _: call("browser_get_state", {"include_screenshot": True}),
        click_newest,
        lambda _: call("browser_get_content", {}),
        lambda _: finish("All boats are in."),
    ]
    steps = iter(script)
    server = start_model(lambda request: next(steps)(request))
    out = run_example(
        "browser_use.py", server, home, "localhost:8123", home.argument + BROWSER_IMAGE * home.is_container
    )
    told = [result(request) for request in list(server.requests)[1:]]
    assert "Opened http://localhost:8123/" in told[1]
    assert "Title: Log book" in told[2]
    assert "Clicked element" in told[3]
    assert told[4] == "Storm\n\nAll boats are in."
    shown = ["data:image/jpeg;base64," in request.content.decode() for request in server.requests]
    assert shown == [False, False, False, True, True, True]
    offered = [tool["function"]["name"] for tool in server.requests[0].json["tools"]]
    assert len([name for name in offered if name.startswith("browser_")]) == 14
    assert "browser_get_state before you click" in str(server.requests[0].messages[0]["content"])
    assert len([line for line in out.splitlines() if line.startswith("Message ")]) == 14
