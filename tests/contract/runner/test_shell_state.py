"""A kept shell: what one command leaves behind is there for the next, and each result belongs to its own command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.contract.runner.client import Client, processes_with, until


def test_directory_variables_functions_aliases_and_options_persist(client: Client, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    client.output(
        "cd sub; export EXPORTED=1; plain=2; list=(a 'b c'); greet() { echo \"hello $1\"; }; alias twice='echo 2x'\n"
        "shopt -s nullglob; umask 027"
    )
    result = client.run('echo "$EXPORTED $plain ${list[1]}"; greet you; twice; pwd; umask; shopt nullglob')
    assert result["output"].split("\n")[:5] == ["1 2 b c", "hello you", "2x", str(workspace / "sub"), "0027"]
    assert "on" in result["output"].split("\n")[5]
    assert result["working_dir"] == str(workspace / "sub")


@pytest.mark.parametrize("status", [0, 1, 2, 42, 126, 127, 130, 255])
def test_the_exit_status_is_the_commands_and_the_next_command_sees_it(client: Client, status: int) -> None:
    assert client.run(f"(exit {status})")["exit_code"] == status
    assert client.output("echo $?") == f"{status}\n"


def test_the_last_status_is_seen_under_set_e_without_ending_the_shell(client: Client) -> None:
    client.run("kept=1; set -e")
    client.run("true; (exit 3) || (exit 3) && true")
    assert client.output("echo $? $kept") == "3 1\n"


def test_a_result_has_the_facts_of_its_shell(client: Client, workspace: Path) -> None:
    result = client.run("true")
    assert result == {
        "status": "completed",
        "exit_code": 0,
        "shell_ended": False,
        "output": "",
        "omitted": 0,
        "working_dir": str(workspace),
        "pid": -1,
        "python": result["python"],
        "username": client.hello["user"],
        "hostname": os.uname().nodename,
        "running": False,
        "notice": "",
        "prefix": "",
    }
    assert result["python"] == client.output("type -P python || type -P python3").strip()


def test_the_python_of_a_result_follows_the_path(client: Client, workspace: Path) -> None:
    (workspace / "bin").mkdir()
    (workspace / "bin/python").write_text("#!/bin/sh\n")
    (workspace / "bin/python").chmod(0o755)
    client.output('PATH="$PWD/bin:$PATH"')
    assert client.run("true")["python"] == str(workspace / "bin/python")
    assert client.run("PATH=/nowhere")["python"] is None


def test_environment_given_with_a_command_is_exported_for_its_time_and_never_printed(client: Client) -> None:
    value = 'it\'s a "secret"\n$HOME `id` \\'
    result = client.run("printenv TOKEN; sh -c 'printf %s \"$TOKEN\"'", env={"TOKEN": value})
    assert result["output"] == f"{value}\n{value}"
    assert client.run("set -x")["output"] == ""
    assert "other" not in client.run("true", env={"TOKEN": "other"})["output"]
    assert client.output("{ set +x; } 2>/dev/null; printenv TOKEN || echo gone") == "gone\n"


def test_what_is_lent_to_one_command_is_in_no_other_however_its_shell_ends(client: Client) -> None:
    lent = {"TOKEN": "lent", "OTHER": "o"}
    assert client.output("env | grep -c ^TOKEN=lent; f() { echo $TOKEN; }; f", env=lent) == "1\nlent\n"
    assert client.output("f; echo ${TOKEN-gone}") == "\ngone\n"
    for end in ("exit 3", "exec sh -c 'exit 3'", "kill -9 $$"):
        assert client.run(f"export KEPT=1; {end}", env=lent)["status"] in ("completed", "shell_lost")
        assert client.output("echo ${TOKEN-gone} ${OTHER-gone} $KEPT; env | grep -c lent || true") == "gone gone 1\n0\n"
    client.run("export TOKEN=own; (exit 7)")
    assert client.output("echo $? $TOKEN; TOKEN=new", env=lent) == "7 lent\n"
    assert client.output("printenv TOKEN; readonly TOKEN") == "own\n"
    assert client.output("echo still $TOKEN", env=lent) == "still own\n"


def test_a_directory_whose_name_is_no_text_is_named_in_escapes(client: Client, workspace: Path) -> None:
    result = client.run(
        "mkdir $'d\\xff\\n'; cd $'d\\xff\\n'; mkdir .git bin; cp $(type -P true) bin/python; PATH=$PWD/bin:$PATH"
    )
    assert (result["working_dir"], result["python"]) == (f"{workspace}/d\\xff\n", f"{workspace}/d\\xff\n/bin/python")
    assert client.run("kill -9 $$")["notice"].count("d\\xff\n") == 1
    assert client.output('basename "$PWD" | wc -c') == "4\n"
    assert client.call("workspace.facts").result["git"]["root"] == f"{workspace}/d\\xff\n"


def test_a_fresh_shell_is_for_one_command_and_disturbs_no_other(client: Client, workspace: Path) -> None:
    client.run("mkdir sub; cd /; kept=1")
    waiting = client.send("shell.run", command="read line; echo $line", soft_timeout=20)
    result = client.run("pwd; echo ${kept-none}; sleep 100 & exit 3", fresh=True, cwd="sub", timeout=10)
    assert (result["status"], result["exit_code"], result["running"]) == ("completed", 3, False)
    assert (result["shell_ended"], result["notice"]) == (False, "")
    assert result["output"].startswith(f"{workspace}/sub\nnone\n")
    assert client.output("pwd; echo $$ > shell", fresh=True) == f"{workspace}\n"
    assert client.output("echo here", fresh=True, cwd="/usr", max_output=100) == "here\n"
    late = client.run("echo begun; sleep 100", fresh=True, timeout=0.3)
    assert (late["status"], late["output"], late["running"]) == ("hard_timeout", "begun\n", False)
    assert "timed out after 0.3 seconds. The shell of its own" in late["notice"]
    cancelled = client.send("shell.run", command="echo begun; sleep 100", fresh=True, timeout=20)
    client.wait_for_output(cancelled, "begun")
    assert client.call("cancel", id=cancelled).result == {"cancelled": True}
    assert client.wait(cancelled).result["status"] == "interrupted"
    assert client.call("ping").result["sessions"] == ["default"]
    assert client.run("yes", is_input=True)["status"] == "soft_timeout"
    assert client.wait(waiting).result["output"] == "yes\n"
    for wrong in (
        {"cwd": "/"},
        {"fresh": True, "cwd": "none"},
        {"fresh": True, "session": "a"},
        {"fresh": True, "cwd": "\0"},
    ):
        assert client.call("shell.run", command="true", **wrong).error["code"] == "bad_request"
    for number in range(70):
        assert client.output(f"echo {number}", fresh=True) == f"{number}\n"


def test_terminals_are_independent_and_run_side_by_side(client: Client) -> None:
    client.output("where=first", session="one")
    slow = client.send("shell.run", session="one", command="read line; echo $where $line", soft_timeout=20)
    assert client.output("echo ${where-nowhere}", session="two") == "nowhere\n"
    client.call("shell.run", session="one", command="x", is_input=True)
    assert client.wait(slow).result["output"] == "first x\n"


def test_commands_for_one_terminal_are_served_in_order(client: Client) -> None:
    numbers = [client.send("shell.run", command=f"echo {n} >> order; cat order") for n in range(5)]
    outputs = [client.wait(number).result["output"] for number in numbers]
    assert outputs == ["".join(f"{n}\n" for n in range(last + 1)) for last in range(5)]


def test_a_background_job_returns_at_once_with_its_process_id(client: Client) -> None:
    result = client.run("sleep 4711 &")
    assert result["status"] == "completed"
    until(lambda: processes_with("sleep 4711") == [result["pid"]], "the job's begin")
    assert client.run("jobs")["output"].count("sleep 4711") == 1
    client.output("kill %1")
    until(lambda: not processes_with("sleep 4711"), "the job's end")


def test_what_a_background_job_prints_later_is_kept_out_of_other_results(client: Client, workspace: Path) -> None:
    client.run("(until [ -e go ]; do sleep 0.01; done; echo noise; touch done) &")
    (workspace / "go").touch()
    until((workspace / "done").exists, "the job's output")
    result = client.run("echo mine")
    assert result["output"] == "mine\n"
    assert "noise" in result["notice"]
    assert client.run("echo mine")["notice"] == ""


def test_a_reset_kills_everything_and_begins_anew(client: Client, workspace: Path) -> None:
    client.run("cd /; kept=1; sleep 4712 & export there=1")
    running = client.send("shell.run", command="echo begun; sleep 4713", soft_timeout=20)
    client.wait_for_output(running, "begun")
    result = client.run("", reset=True)
    assert (result["status"], result["exit_code"], result["output"]) == ("reset", 0, "")
    assert "reset" in result["notice"]
    assert client.wait(running).result["status"] == "shell_lost"
    assert processes_with("sleep 4712") == processes_with("sleep 4713") == []
    assert client.output("echo ${kept-gone} ${there-gone}; pwd") == f"gone gone\n{workspace}\n"


def test_a_reset_with_a_command_runs_it_in_the_new_shell(client: Client) -> None:
    client.run("kept=1")
    result = client.run("echo ${kept-gone}", reset=True)
    assert (result["status"], result["output"]) == ("completed", "gone\n")
    assert "reset" in result["notice"]


def test_the_users_bashrc_is_read_and_what_it_prints_is_not_shown(client: Client, directory: Path) -> None:
    (directory / ".bashrc").write_text("echo noise; export FROM_RC=yes; alias hi='echo hi there'\n")
    assert client.output("echo $FROM_RC; hi") == "yes\nhi there\n"


def test_a_bashrc_that_ends_the_shell_is_left_out(client: Client, directory: Path) -> None:
    (directory / ".bashrc").write_text("exec true\n")
    assert client.output("echo works") == "works\n"


def test_killing_a_terminal_ends_its_processes(client: Client) -> None:
    client.run("sleep 4714 & setsid sleep 4715 &")
    until(lambda: len(processes_with("sleep 4714")) == 1 and bool(processes_with("sleep 4715")), "both jobs")
    assert client.call("shell.kill", session="default").result == {"killed": True}
    until(lambda: not processes_with("sleep 4714") and not processes_with("sleep 4715"), "their end")
    assert client.call("shell.kill", session="default").result == {"killed": False}
    assert client.output("echo anew") == "anew\n"


def test_the_shells_own_lines_are_in_no_history(client: Client) -> None:
    assert client.output("history") == ""


def test_of_many_terminals_the_one_not_used_for_longest_makes_room_unless_something_is_left_in_it(
    client: Client,
) -> None:
    client.run("kept=1")
    client.run("kept=1; sleep 100 &", session="background")
    client.run("sleep 100", session="running", soft_timeout=0.05)
    client.run("kept=1", session="longest")
    client.run("kept=1", session="next")
    numbers = [client.send("shell.run", command="true", session=f"many{number}") for number in range(60)]
    assert {client.wait(number).result["status"] for number in numbers} == {"completed"}
    kept = {name: client.output("echo ${kept-gone}", session=name) for name in ("default", "background", "next")}
    assert kept == {"default": "1\n", "background": "1\n", "next": "1\n"}
    assert client.run("", session="running", soft_timeout=0.05)["running"] is True
    assert client.output("echo ${kept-gone}", session="longest") == "gone\n"
