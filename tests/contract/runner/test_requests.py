"""Requests: checked, carried out once, answered to whoever is there, also after the connection or the runner went."""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime_images.runner.wire import MAX_JSON, encode
from tests.contract.runner.client import PATIENCE_SECONDS, Client, Runner, processes_with, until


def test_the_runner_says_hello(client: Client, runner: Runner) -> None:
    hello = client.hello
    assert hello["protocol"] == 1
    assert hello["pid"] == runner.process.pid
    assert hello["workspace"] == str(runner.workspace)
    facts = {"protocol", "runner", "python", "pid", "boot", "workspace", "user", "hostname", "tunnels", "programs"}
    assert set(hello) == facts


def test_the_socket_is_for_its_owner_only(client: Client, runner: Runner) -> None:
    assert stat.S_IMODE(os.stat(runner.socket).st_mode) == 0o600


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"id": 1, "op": "shell.fly", "args": {}}, "shell.run"),
        ({"id": 1, "args": {}}, "shell.run"),
        ({"id": 1, "op": ["x"]}, "shell.run"),
        ({"op": "ping"}, "id must"),
        ({"id": "one", "op": "ping"}, "id must"),
        ({"id": True, "op": "ping"}, "id must"),
        ({"id": 1, "op": "ping", "args": []}, "args must"),
        ({"id": 1, "op": "ping", "key": 3}, "key must"),
        ({"id": 1, "op": "ping", "key": ""}, "key must"),
        ({"id": 1, "op": "shell.run"}, "command must be a string"),
        ({"id": 1, "op": "shell.run", "args": {"command": 3}}, "command must be a string"),
        ({"id": 1, "op": "shell.run", "args": {"command": "a\0b"}}, "NUL"),
        ({"id": 1, "op": "shell.run", "args": {"command": "\ud800"}}, "surrogate"),
        ({"id": 1, "op": "shell.run", "args": {"command": "", "is_input": "yes"}}, "is_input must"),
        ({"id": 1, "op": "shell.run", "args": {"command": "", "timeout": -1}}, "timeout must"),
        ({"id": 1, "op": "shell.run", "args": {"command": "", "timeout": "1"}}, "timeout must"),
        ({"id": 1, "op": "shell.run", "args": {"command": "", "max_output": 1.5}}, "max_output must"),
        ({"id": 1, "op": "shell.run", "args": {"command": "", "env": {"A-B": "x"}}}, "env holds a name"),
        ({"id": 1, "op": "shell.run", "args": {"command": "", "env": {"A": 1}}}, "env.A must"),
        ({"id": 1, "op": "shell.run", "args": {"command": "", "session": "../x"}}, "session must"),
        ({"id": 1, "op": "shell.run", "args": {"command": "x", "reset": True, "is_input": True}}, "reset and is_input"),
        ({"id": 1, "op": "cancel", "args": {}}, "cancel needs"),
        ({"id": 1, "op": "journal.ack", "args": {"keys": "k"}}, "keys must"),
        ({"id": 1, "op": "ping", "forget": "k"}, "forget must"),
        ({"id": 1, "op": "file.read", "args": {"path": "relative"}}, "absolute"),
        ({"id": 1, "op": "file.write", "args": {"path": "/tmp/x"}}, "attachment"),
        ({"id": 1, "op": "file.edit", "args": {"command": "view"}}, "path must"),
        ({"id": 1, "op": "file.edit", "args": {"command": "view", "path": "/", "view_range": 3}}, "view_range must"),
        ({"id": 1, "op": "file.edit", "args": {"command": "insert", "path": "/", "insert_line": "1"}}, "insert_line"),
    ],
)
def test_what_is_wrong_with_a_request_is_answered(client: Client, message: dict[str, object], words: str) -> None:
    client.stream.sendall(encode(message))
    answer = client.receive().message
    assert answer["ok"] is False
    assert answer["error"]["code"] == "bad_request"
    assert words in answer["error"]["message"]
    assert client.call("ping").result["journal"] == "ok"


def test_variables_that_are_set_are_there_in_what_begins_from_then_on(client: Client) -> None:
    assert client.output("echo _$SHOP") == "_\n"
    assert client.call("environment.set", variables={"SHOP": "it's open\n", "EMPTY": ""}).result == {}
    assert client.output("echo _$SHOP", session="other") == "_it's open\n"
    refused = client.call("environment.set", variables={"DRYDOCK_MARK": "x"})
    assert refused.error["code"] == "bad_request"


def test_a_number_under_way_is_not_taken_twice(client: Client) -> None:
    number = client.send("shell.run", command="echo begun; read x", soft_timeout=20)
    client.wait_for_output(number, "begun")
    client.stream.sendall(encode({"id": number, "op": "ping"}))
    assert client.wait(number).error["code"] == "bad_request"


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", MAX_JSON + 1) + b"{",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 3) + b"{a}",
        struct.pack(">I", 4) + b"\xff\xfe{}",
        struct.pack(">I", 11) + b'{"blob":-1}',
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_malformed_frame_ends_the_connection_with_a_reason_and_nothing_else(
    connect: Callable[[], Client], data: bytes
) -> None:
    client = connect()
    client.run("kept=1")
    client.stream.sendall(data)
    assert client.receive().message["error"]["code"] == "protocol"
    with pytest.raises(EOFError):
        client.receive()
    assert connect().output("echo $kept") == "1\n"


def test_the_newest_connection_wins_and_finds_everything_as_it_was(connect: Callable[[], Client]) -> None:
    first = connect()
    first.run("cd /; kept=1")
    second = connect()
    assert first.receive().message["error"]["code"] == "replaced"
    with pytest.raises(EOFError):
        first.receive()
    assert second.output("pwd; echo $kept") == "/\n1\n"
    assert second.hello["boot"] == first.hello["boot"]


def test_a_keyed_request_runs_once_however_often_it_is_asked(client: Client) -> None:
    command = "echo run >> count; echo done"
    first = client.call("shell.run", key="c:1", command=command)
    assert client.call("shell.run", key="c:1", command=command).result == first.result
    assert client.call("shell.run", key="c:1", command="something else").result["output"] == "done\n"
    assert client.output("cat count") == "run\n"


def test_a_full_disk_that_holds_the_log_too_keeps_no_request_from_its_answer(directory: Path) -> None:
    runner = Runner(directory, before=("sh", "-c", 'exec "$0" "$@" 2>/dev/full'))
    try:
        client = runner.connect()
        resource.prlimit(runner.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        for number in range(2):
            answer = client.call("shell.run", key=f"c:{number}", command=f"echo {number}")
            assert answer.result["output"] == f"{number}\n"
        assert "memory only" in client.call("ping").result["journal"]
    finally:
        runner.close()


def test_the_journal_tells_the_state_of_a_key(client: Client) -> None:
    numbers = iter(range(1000, 2000))

    def state(key: str) -> str:
        number = next(numbers)
        client.stream.sendall(encode({"id": number, "op": "journal.lookup", "args": {"key": key}}))
        found: str = client.wait(number).result["state"]
        return found

    assert state("c:1") == "unknown"
    number = client.send("shell.run", key="c:1", command="echo begun; read x", soft_timeout=20)
    client.wait_for_output(number, "begun")
    assert state("c:1") == "running"
    client.call("shell.run", command="ENTER", is_input=True)
    client.wait(number)
    assert state("c:1") == "done"
    assert client.call("journal.ack", keys=["c:1", "c:unknown"]).result == {"forgotten": 1}
    assert state("c:1") == "unknown"
    client.call("shell.run", key="c:2", command="true")
    assert state("c:2") == "done"
    number = next(numbers)
    client.stream.sendall(encode({"id": number, "op": "ping", "forget": ["c:2", "c:unknown"]}))
    assert client.wait(number).message["ok"] is True
    assert state("c:2") == "unknown"


def test_a_result_waits_for_the_server_that_lost_its_connection(connect: Callable[[], Client], workspace: Path) -> None:
    first = connect()
    number = first.send("shell.run", key="c:1", command="echo begun; until [ -e go ]; do sleep 0.01; done; echo ended")
    first.wait_for_output(number, "begun")
    first.close()
    second = connect()
    (workspace / "go").touch()
    answer = second.call("shell.run", key="c:1", command="must not run")
    assert answer.result["output"] == "begun\nended\n"


def test_a_running_request_answers_who_asked_last(connect: Callable[[], Client]) -> None:
    first = connect()
    number = first.send("shell.run", key="c:1", command="echo begun; read x; echo got $x", soft_timeout=20)
    first.wait_for_output(number, "begun")
    second = connect()
    attached = second.send("shell.run", key="c:1", command="must not run")
    second.call("shell.run", command="it", is_input=True)
    assert second.wait(attached).result["output"] == "begun\ngot it\n"


def test_a_keyed_request_is_cancelled_by_its_key(connect: Callable[[], Client]) -> None:
    first = connect()
    number = first.send("shell.run", key="c:1", command="echo begun; sleep 4740", soft_timeout=60)
    first.wait_for_output(number, "begun")
    second = connect()
    attached = second.send("shell.run", key="c:1", command="must not run")
    second.stream.sendall(encode({"id": 99, "op": "cancel", "args": {"key": "c:1"}}))
    assert second.wait(99).result == {"cancelled": True}
    result = second.wait(attached).result
    assert (result["status"], result["output"]) == ("interrupted", "begun\n")
    assert processes_with("sleep 4740") == []


def test_a_cancel_of_nothing_says_so(client: Client) -> None:
    assert client.call("cancel", id=12345).result == {"cancelled": False}


def test_results_outlive_the_runner_and_broken_off_requests_are_not_run_again(
    runner: Runner, client: Client, connect: Callable[[], Client]
) -> None:
    done = client.call("shell.run", key="c:done", command="echo done | tee -a log").result
    number = client.send("shell.run", key="c:broken", command="echo broken | tee -a log; read x", soft_timeout=20)
    client.wait_for_output(number, "broken")
    acknowledged = client.call("shell.run", key="c:acknowledged", command="x", session="other")
    assert acknowledged.result["exit_code"] == 127
    client.call("journal.ack", keys=["c:acknowledged"])
    runner.restart(signal.SIGKILL)
    again = connect()
    assert again.hello["boot"] != client.hello["boot"]
    assert again.call("shell.run", key="c:done", command="echo again >> log").result == done
    assert again.call("shell.run", key="c:broken", command="echo again >> log").error["code"] == "interrupted"
    assert again.call("shell.run", key="c:acknowledged", command="true").result["exit_code"] == 0
    assert again.output("cat log") == "done\nbroken\n"


def test_a_request_refused_for_its_form_may_be_asked_again_under_its_key(client: Client) -> None:
    assert client.call("shell.run", key="c:1", command=3).error["code"] == "bad_request"
    assert client.call("shell.run", key="c:1", command="echo ok").result["output"] == "ok\n"


def test_a_runner_told_to_end_takes_its_processes_along(runner: Runner, client: Client) -> None:
    ran = client.run("sleep 4741 & setsid -f sleep 4741", soft_timeout=0.2)
    until(lambda: len(processes_with("sleep 4741")) == 2, f"both processes of {ran}")
    runner.process.terminate()
    assert runner.process.wait(PATIENCE_SECONDS) == 0
    until(lambda: processes_with("sleep 4741") == [], "their end")
    assert not runner.socket.exists()


def test_a_second_runner_does_not_take_the_socket_of_a_living_one(runner: Runner, client: Client) -> None:
    second = Runner(runner.socket.parent)
    assert second.process.wait(PATIENCE_SECONDS) == 1
    assert client.call("ping").message["ok"] is True


def test_an_unattached_runner_ends_by_itself_when_told_to(directory: Path) -> None:
    runner = Runner(directory, options=("--idle-exit-seconds", "0.2"))
    try:
        client = runner.connect()
        assert client.output("sleep 0.4; echo still here") == "still here\n"
        client.close()
        assert runner.process.wait(PATIENCE_SECONDS) == 0
    finally:
        runner.close()


def test_a_server_that_does_not_read_costs_bounded_memory_and_loses_no_result(runner: Runner, client: Client) -> None:
    client.run("true")
    before = runner.memory_kilobytes()
    flood = client.send("shell.run", command="timeout 1.5 yes 'a line of some length to fill the pipe'; echo end")
    others = [client.send("shell.run", command=f"echo {n}", session="other") for n in range(20)]
    until(lambda: processes_with("timeout 1.5 yes") != [], "the flood's begin")
    until(lambda: processes_with("timeout 1.5 yes") == [], "the flood's end")
    assert runner.memory_kilobytes() - before < 16_000
    assert [client.wait(number).result["output"] for number in others] == [f"{n}\n" for n in range(20)]
    assert client.wait(flood).result["output"].endswith("end\n")


def test_many_requests_at_once_are_all_answered(client: Client) -> None:
    numbers = [client.send("ping") for _ in range(2000)]
    assert all(client.wait(number).message["ok"] for number in numbers)


def test_frames_in_the_smallest_pieces_are_understood(client: Client) -> None:
    for byte in encode({"id": 7, "op": "ping"}):
        client.stream.sendall(bytes([byte]))
    assert client.receive().message == {"id": 7, "ok": True, "result": {"journal": "ok", "sessions": []}}


def test_a_connection_that_ends_in_the_middle_of_a_frame_is_no_trouble(connect: Callable[[], Client]) -> None:
    client = connect()
    client.stream.sendall(encode({"id": 7, "op": "ping"})[:-3])
    client.stream.shutdown(socket.SHUT_WR)
    assert connect().call("ping").message["ok"] is True


def test_terminals_are_limited_in_number(client: Client) -> None:
    for n in range(64):
        client.send("shell.run", command="read x", session=f"s{n}")
    error = client.call("shell.run", command="true", session="one-more").error
    assert (error["code"], "64 terminals are in use" in error["message"]) == ("busy", True)
    client.call("shell.kill", session="s0")
    assert client.run("true", session="one-more")["status"] == "completed"


def test_the_facts_of_the_workspace(client: Client, workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("be kind\n" + "x" * 40_000)
    (workspace / ".cursorrules").write_text("rule\n")
    os.mkfifo(workspace / "CLAUDE.md")
    for folder in ("lib/core", "lib/node_modules/x", ".hidden"):
        (workspace / folder).mkdir(parents=True)
        (workspace / folder / "Agents.md").write_text(folder)
    client.output(
        "git init -q -b trunk . && git remote add other http://x/y && "
        "git remote add origin https://user:secret@host.example/path/project.git"
    )
    facts = client.call("workspace.facts").result
    assert facts["working_dir"] == str(workspace)
    assert facts["git"] == {
        "branch": "trunk",
        "remote": "https://host.example/path/project.git",
        "root": str(workspace),
    }
    paths = [entry["path"] for entry in facts["instructions"]]
    assert paths == [str(workspace / name) for name in ("AGENTS.md", ".cursorrules", "lib/core/Agents.md")]
    assert len(facts["instructions"][0]["content"]) == 32 * 1024
    assert facts["skills"] == []
    assert facts["user"] == client.hello["user"]
    assert facts["os"]


def test_the_facts_hold_instructions_in_any_case_and_the_files_of_skills(client: Client, workspace: Path) -> None:
    (workspace / "agents.md").write_text("lower\n")
    skills = workspace / ".openhands/skills"
    (skills / "pdf/scripts").mkdir(parents=True)
    (skills / "pdf/SKILL.md").write_text("---\nname: pdf\n---\n" + "x" * 100_000)
    (skills / "pdf/scripts/run.py").write_text("print()")
    (skills / "README.md").write_text("about")
    (skills / "empty.md").write_text("")
    (workspace / ".openhands/microagents").mkdir()
    (workspace / ".openhands/microagents/repo.md").write_text("rules")
    (workspace / ".agents").symlink_to(workspace / ".openhands")
    facts = client.call("workspace.facts").result
    assert [entry["path"] for entry in facts["instructions"]] == [str(workspace / "agents.md")]
    found = {str(Path(entry["path"]).relative_to(workspace)): len(entry["content"]) for entry in facts["skills"]}
    assert found == {
        ".agents/skills/pdf/SKILL.md": 64 * 1024,
        ".openhands/skills/pdf/SKILL.md": 64 * 1024,
        ".openhands/microagents/repo.md": 5,
    }


def test_the_facts_hold_the_definitions_of_sub_agents(client: Client, workspace: Path) -> None:
    assert client.call("workspace.facts").result["agents"] == []
    for folder in (".openhands/agents", ".agents/agents"):
        (workspace / folder).mkdir(parents=True)
        (workspace / folder / "reviewer.md").write_text(f"in {folder}")
    (workspace / ".agents/agents/notes.txt").write_text("no definition")
    agents = client.call("workspace.facts").result["agents"]
    assert [(entry["path"], entry["content"]) for entry in agents] == [
        (str(workspace / ".agents/agents/reviewer.md"), "in .agents/agents"),
        (str(workspace / ".openhands/agents/reviewer.md"), "in .openhands/agents"),
    ]
