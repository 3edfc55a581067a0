"""Time limits, input to running commands, and stopping them (decision order and results)."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.contract.runner.client import Client, processes_with, until


def test_no_new_output_for_the_soft_limit_hands_back_what_there_is(client: Client, workspace: Path) -> None:
    begun = time.monotonic()
    result = client.run("echo begun; until [ -e go ]; do sleep 0.01; done; echo ended; (exit 6)", soft_timeout=1)
    assert time.monotonic() - begun >= 1
    assert (result["status"], result["exit_code"], result["running"]) == ("soft_timeout", -1, True)
    assert (result["output"], result["prefix"]) == ("begun\n", "")
    for words in ("no new output after 1 seconds", "empty command", "is_input", "C-c", "C-z", "C-d", "timeout"):
        assert words in result["notice"]
    (workspace / "go").touch()
    result = client.run("")
    assert (result["status"], result["exit_code"], result["running"]) == ("completed", 6, False)
    assert (result["prefix"], result["output"]) == ("[Below is the output of the previous command.]\n", "ended\n")
    assert client.run("true")["prefix"] == ""


def test_output_that_goes_on_holds_the_soft_limit_off(client: Client) -> None:
    result = client.run("for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 0.2; done", soft_timeout=1.5)
    assert (result["status"], result["output"]) == ("completed", "1\n2\n3\n4\n5\n6\n7\n8\n")


def test_a_timeout_is_a_hard_limit_and_ignores_the_soft_one(client: Client) -> None:
    begun = time.monotonic()
    result = client.run("echo begun; sleep 60", soft_timeout=0.05, timeout=0.4)
    assert time.monotonic() - begun >= 0.4
    assert (result["status"], result["exit_code"], result["running"]) == ("hard_timeout", -1, True)
    for words in ("timed out after 0.4 seconds", "empty command", "is_input", "C-c", "C-z", "C-d", "timeout"):
        assert words in result["notice"]
    assert client.run("C-c", is_input=True)["exit_code"] == 130


def test_a_timeout_of_nothing_answers_at_once(client: Client) -> None:
    assert client.run("sleep 60", timeout=0)["status"] == "hard_timeout"


def test_another_command_is_not_executed_while_one_runs(client: Client, workspace: Path) -> None:
    client.run("echo begun; sleep 60", soft_timeout=0.1)
    result = client.run("touch executed")
    assert (result["status"], result["exit_code"], result["running"]) == ("not_executed", -1, True)
    for word in ("NOT executed", "is_input", "empty", "C-c"):
        assert word in result["notice"]
    assert not (workspace / "executed").exists()


@pytest.mark.parametrize(
    ("command", "is_input", "words"),
    [("", False, "retrieve logs from"), ("", True, "retrieve logs from"), ("text", True, "interact with")],
)
def test_nothing_runs_and_nothing_is_asked(client: Client, command: str, is_input: bool, words: str) -> None:
    result = client.run(command, is_input=is_input)
    assert (result["status"], result["exit_code"]) == ("not_executed", -1)
    assert "no previous running command" in result["notice"]
    assert words in result["notice"]


def test_a_command_that_ended_unwatched_is_told_of_once(client: Client, workspace: Path) -> None:
    client.run("until [ -e go ]; do sleep 0.01; done; echo late; touch done; (exit 3)", soft_timeout=0.1)
    (workspace / "go").touch()
    until((workspace / "done").exists, "the command's end")
    client.call("shell.run", command="true", session="other")
    told = ""
    while (result := client.run("echo next"))["status"] == "not_executed":
        told += result["output"]  # it was still ending
    assert (result["status"], result["output"]) == ("completed", "next\n")
    assert "exit code 3" in result["notice"]
    assert (told + result["notice"]).count("late") == 1
    assert client.run("echo again")["notice"] == ""


def test_input_goes_to_the_running_command(client: Client) -> None:
    result = client.run('read -p "name: " name; echo "[$name]"', soft_timeout=1)
    assert result["output"] == "name: "
    assert client.run("Ada  Lövelace ", is_input=True)["output"] == "[Ada  Lövelace]\n"


def test_input_of_several_lines_arrives_as_typed(client: Client) -> None:
    client.run("cat > file", soft_timeout=0.1)
    client.run("one\n\ttwo", is_input=True, soft_timeout=0.1)
    client.run("C-d", is_input=True)
    assert client.output("cat file") == "one\n\ttwo\n"


def test_a_password_prompt_sees_a_terminal(client: Client) -> None:
    program = "import getpass; print(len(getpass.getpass('Password: ')))"
    number = client.send("shell.run", command=f'python3 -c "{program}"', soft_timeout=20)
    client.wait_for_output(number, "Password: ")
    client.run("secret", is_input=True)
    result = client.wait(number).result
    assert (result["status"], result["output"].split()) == ("completed", ["Password:", "6"])


def test_an_interactive_python_is_talked_to(client: Client) -> None:
    number = client.send("shell.run", command="python3 -q", soft_timeout=20)
    client.wait_for_output(number, ">>> ")
    client.run("6*7", is_input=True)
    client.wait_for_output(number, "42")
    client.run("C-d", is_input=True)
    result = client.wait(number).result
    assert (result["status"], result["exit_code"]) == ("completed", 0)


@pytest.mark.parametrize("name", ["C-c", "CTRL-c", "CTRL+C", "c-C", "ctrl+c"])
def test_an_interrupt_key_ends_a_command_with_130(client: Client, name: str) -> None:
    seen = client.run("sh -c 'echo begun; exec sleep 60'\necho not reached", soft_timeout=0.1)
    while "begun" not in seen["output"]:  # a key that comes before the program has the terminal is lost
        seen = client.run("", soft_timeout=0.1)
    result = client.run(name, is_input=True)
    assert (result["status"], result["exit_code"]) == ("completed", 130)
    assert "CTRL+C was sent" in result["notice"]
    assert "not reached" not in result["output"]


def test_a_command_is_suspended_and_continued(client: Client) -> None:
    client.run("sleep 4720", soft_timeout=0.1)
    until(lambda: bool(processes_with("sleep 4720")), "the command's beginning")
    assert client.run("C-z", is_input=True)["exit_code"] == 148
    assert "Stopped" in client.output("jobs")
    client.run("fg", soft_timeout=0.1)
    assert client.run("C-c", is_input=True)["exit_code"] == 130
    assert processes_with("sleep 4720") == []


def test_special_keys_are_sent_without_enter(client: Client) -> None:
    show = "stty raw; echo ready; dd bs=1 count={} 2>/dev/null | od -An -c; stty -raw"
    for name, count, expected in (("UP", 3, "033   [   A"), ("TAB", 1, r"\t"), ("ENTER", 1, r"\r"), ("C-a", 1, "001")):
        number = client.send("shell.run", command=show.format(count), soft_timeout=20)
        client.wait_for_output(number, "ready")
        client.run(name, is_input=True)
        assert expected in client.wait(number).result["output"]


def test_input_nobody_read_is_not_run_as_a_command(client: Client, workspace: Path) -> None:
    client.run("sleep 0.3", soft_timeout=0.05)
    client.run("touch executed", is_input=True)
    client.run("true")
    assert client.run("read -t 0.05 x; echo [$x]")["output"] == "[]\n"
    assert not (workspace / "executed").exists()


def test_input_reaches_a_command_that_another_request_waits_for(client: Client) -> None:
    number = client.send("shell.run", command="echo ready; read x; echo [$x]", soft_timeout=20)
    client.wait_for_output(number, "ready")
    sent = client.run("hello", is_input=True)
    assert (sent["status"], sent["running"]) == ("soft_timeout", True)
    assert client.wait(number).result["output"] == "ready\n[hello]\n"


def test_more_input_than_anybody_reads_is_refused(client: Client) -> None:
    number = client.send("shell.run", command="stty raw; echo ready; sleep 60", soft_timeout=60)
    client.wait_for_output(number, "ready")
    line = "x" * 500_000
    notices = [client.run(line, is_input=True, soft_timeout=0.05)["notice"] for _ in range(4)]
    assert "not sent" in notices[-1]
    assert client.call("shell.interrupt").result == {"interrupted": True}


STUBBORN = {
    "ordinary": "sleep 4730; echo not reached",
    "builtin loop": "while :; do :; done",
    "loop of programs": "while :; do sleep 4730; done",
    "ignores interrupts": "bash -c 'trap \"\" INT; sleep 4730; sleep 4730'",
    "ignores everything": "python3 -c 'import signal,time\nfor n in (1,2,3,15,20): signal.signal(n,signal.SIG_IGN)\n"
    'print("ready",flush=True)\ntime.sleep(4730)\'',
    "shell ignores everything": "trap '' INT TERM; while :; do sleep 4730; done",
    "pipeline": "sleep 4730 | cat | cat",
    "background too": "sleep 4730 & sleep 4730",
    "own session": "setsid -f sleep 4730; setsid setsid sleep 4730 & sleep 4730",
    "daemon": "(setsid sh -c 'sleep 4730 & sleep 4730' &) ; sleep 4730",
    "stopped": "sleep 4730 & kill -STOP $!; sleep 4730",
    "replaced shell": "exec sleep 4730",
    "subshells": "( ( ( sleep 4730; sleep 4730 ) ) )",
    "substitution": "echo $(sleep 4730)",
    "many": "for n in {1..40}; do sleep 4730 & done; wait",
    "raw terminal": "stty raw -isig; sleep 4730",
    "printing": "yes",
}


@pytest.mark.parametrize("command", STUBBORN.values(), ids=STUBBORN.keys())
def test_stopping_a_command_ends_all_its_processes_and_keeps_the_terminal(client: Client, command: str) -> None:
    client.run("cd /; kept=1")
    seconds = f"4730.{os.getpid()}"  # not those of another run of this test
    command = command.replace("4730", seconds)
    number = client.send("shell.run", command=f"echo begun; {command}", soft_timeout=60)
    client.wait_for_output(number, "ready" if "ready" in command else "begun")
    time.sleep(0.1)  # most give no sign of having started what they start
    assert client.call("shell.interrupt", session="default").result == {"interrupted": True}
    assert processes_with(f"sleep {seconds}") == []
    result = client.wait(number).result
    assert result["status"] == "interrupted"
    assert result["output"].startswith("begun\n")
    assert "not reached" not in result["output"]
    assert client.output("pwd; echo $kept") == "/\n1\n"


def test_stopping_spares_the_background_jobs_of_earlier_commands(client: Client) -> None:
    job = client.run("sleep 4731 &")["pid"]
    time.sleep(0.05)  # start times are known to a hundredth of a second
    number = client.send("shell.run", command="echo begun; sleep 4732", soft_timeout=60)
    client.wait_for_output(number, "begun")
    client.call("cancel", id=number)
    assert client.wait(number).result["status"] == "interrupted"
    assert processes_with("sleep 4731") == [job]
    assert client.run("kill %1")["exit_code"] == 0


def test_a_command_nobody_waits_for_is_stopped_too(client: Client) -> None:
    client.run("sleep 4733", soft_timeout=0.1)
    assert client.call("shell.interrupt").result == {"interrupted": True}
    assert processes_with("sleep 4733") == []
    assert client.call("shell.interrupt").result == {"interrupted": False}
    result = client.run("")
    assert (result["status"], result["exit_code"]) == ("interrupted", 130)


def test_a_waiting_command_is_cancelled_before_it_begins(client: Client, workspace: Path) -> None:
    first = client.send("shell.run", command="echo begun; read x", soft_timeout=20)
    second = client.send("shell.run", command="touch executed")
    client.wait_for_output(first, "begun")
    assert client.call("cancel", id=second).result == {"cancelled": True}
    assert client.wait(second).result["status"] == "interrupted"
    client.run("ENTER", is_input=True)
    client.wait(first)
    assert not (workspace / "executed").exists()


def test_interrupts_that_come_late_cost_no_part_of_the_next_command(client: Client) -> None:
    """Keys and cancels at the moment when a command ends by itself: the next command is whole, or not run at all."""
    for n in range(40):
        number = client.send("shell.run", command=f"sleep 0.00{n % 10}", soft_timeout=5)
        if n % 2:
            client.send("cancel", id=number)
        else:
            client.send("shell.run", command="C-c", is_input=True)
        assert client.wait(number).result["status"] in ("completed", "interrupted")
        long = "x" * 3000
        assert client.output(f"echo '{long}' {n}", soft_timeout=5) == f"{long} {n}\n"


def test_a_script_that_is_stopped_while_the_shell_still_reads_it_is_not_run_from_its_middle(
    client: Client, workspace: Path
) -> None:
    client.run("kept=1")
    script = "sleep 4742\n" + ">executed\n" * 20_000
    number = client.send("shell.run", command=script, soft_timeout=60)
    client.call("cancel", id=number)
    assert client.wait(number).result["status"] == "interrupted"
    assert client.output("echo $kept; ls") == "1\n"
    assert not (workspace / "executed").exists()


@pytest.mark.parametrize("command", ['[{"a": 1}]', '["ls"]', '{"command": "ls"}', "[[1, 2], [3]]", '  ["ls", "-l"]'])
def test_a_literal_is_no_command(client: Client, command: str) -> None:
    result = client.run(command)
    assert (result["status"], result["exit_code"], result["output"]) == ("not_executed", -1, "")
    assert "heredoc" in result["notice"]


def test_what_only_begins_like_a_literal_is_run(client: Client) -> None:
    assert client.output("[[ 1 ]] && echo yes") == "yes\n"
    assert client.output("[[(1 -eq 1)]] || echo no; [ x ] && echo yes") in ("yes\n", "no\nyes\n")
    assert client.output("{ echo yes; }") == "yes\n"
    client.run("cat", soft_timeout=0.1)
    seen = client.run('["text"]', is_input=True, soft_timeout=0.2)["output"]
    while '["text"]' not in seen:
        seen = client.run("", soft_timeout=0.2)["output"]
    assert client.run("C-d", is_input=True)["exit_code"] == 0


AT_ONCE: dict[str, Any] = {"at_once": True, "soft_timeout": 1.0}


def test_who_does_not_wait_in_line_is_told_that_the_terminal_is_busy(client: Client, workspace: Path) -> None:
    running = client.send("shell.run", command="echo begun; until [ -e go ]; do sleep 0.01; done; echo ended")
    client.wait_for_output(running, "begun")
    queued = client.send("shell.run", command="echo queued")
    refused = client.run("touch executed", **AT_ONCE)
    assert (refused["status"], refused["running"], "NOT executed" in refused["notice"]) == ("not_executed", True, True)
    looked = client.run("", **AT_ONCE)
    assert (looked["status"], looked["output"]) == ("soft_timeout", "")
    assert "another request is waiting" in looked["notice"]
    (workspace / "go").touch()
    assert client.wait(running).result["output"] == "begun\nended\n", "nobody else has taken its output"
    assert client.wait(queued).result["output"] == "queued\n"
    assert not (workspace / "executed").exists()
    assert client.output("echo free", **AT_ONCE) == "free\n"


def test_input_to_a_command_that_prints_on_and_on_is_answered(client: Client) -> None:
    client.run("while sleep 0.05; do echo more; done", timeout=0.3)
    typed = client.run("x", is_input=True, **AT_ONCE)
    assert (typed["status"], typed["running"]) == ("soft_timeout", True)
    assert "more" in typed["output"]
    assert "was sent to the running command" in typed["notice"]
    stopped = client.run("C-c", is_input=True, **AT_ONCE)
    while stopped["running"]:  # on a busy machine it may hit a `sleep` that has just ended
        stopped = client.run("C-c", is_input=True, **AT_ONCE)
    assert stopped["exit_code"] == 130


def test_input_that_comes_before_the_shell_is_ready_is_for_the_command_that_it_waits_for(client: Client) -> None:
    running = client.send("shell.run", command="read -r line; echo got $line", timeout=20)
    typed = client.send("shell.run", command="hello", is_input=True, **AT_ONCE)
    assert client.wait(typed).result["status"] == "soft_timeout"
    assert client.wait(running).result["output"].splitlines()[-1] == "got hello"


@pytest.mark.parametrize("command", ["sleep 60", "sh -c 'sleep 60; echo on'", "(sleep 60)", "sleep 60 | cat"])
def test_an_interrupt_is_heard_however_early_it_is_typed(client: Client, command: str) -> None:
    client.output("true")
    unheard = []
    for pause in (0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.15):
        running = client.send("shell.run", command=command)
        time.sleep(pause)  # it is just this moment that counts, whatever the shell does in it
        client.run("C-c", is_input=True, **AT_ONCE)
        ended = client.wait(running).result
        if ended["status"] == "soft_timeout":
            unheard.append(pause)
            ended = client.run("C-c", is_input=True)
        assert (ended["status"], ended["exit_code"]) == ("completed", 130), pause
    assert len(unheard) <= 1  # on a busy machine a program may take so long to start that it hears nothing
    assert client.output("echo alive") == "alive\n"


def test_a_program_that_handles_an_interrupt_itself_gets_one(client: Client, workspace: Path) -> None:
    program = (
        "import os, signal, time\n"
        "heard = []\n"
        "signal.signal(signal.SIGINT, lambda *_: (heard.append(1), print('heard', flush=True)))\n"
        "print('begun', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
        "print(len(heard))\n"
    )
    (workspace / "counts.py").write_text(program)
    running = client.send("shell.run", command=f"'{sys.executable}' counts.py")
    client.wait_for_output(running, "begun")
    time.sleep(0.2)  # it is no longer just starting
    client.run("C-c", is_input=True, **AT_ONCE)
    client.wait_for_output(running, "heard")
    time.sleep(0.2)
    (workspace / "go").touch()
    assert client.wait(running).result["output"].splitlines()[-1] == "1"
