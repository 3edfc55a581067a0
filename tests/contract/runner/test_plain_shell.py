"""An image without bash: its sh is kept and spoken to as well as such a shell allows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.runner.client import Client, Runner

WITHOUT_BASH = ("bwrap", "--die-with-parent", "--dev-bind", "/", "/", "--ro-bind", "/dev/null", "/usr/bin/bash", "--")


@pytest.fixture
def runner(directory: Path) -> Iterator[Runner]:
    runner = Runner(directory, before=WITHOUT_BASH)
    try:
        yield runner
    finally:
        runner.close()


def test_status_directory_variables_and_functions_are_kept(client: Client, workspace: Path) -> None:
    assert client.output("echo $0 ${BASH_VERSION-none}") == "sh none\n"
    client.output("mkdir sub; cd sub; export A=1; b=2; f() { echo f; }; alias hey='echo hey'; umask 027")
    result = client.run("echo $A $b; f; hey; umask; (exit 7)")
    assert (result["output"], result["exit_code"]) == ("1 2\nf\nhey\n0027\n", 7)
    assert result["working_dir"] == f"{workspace}/sub"
    assert client.output("echo $?") == "7\n"
    assert client.run("sleep 0.01 & wait")["pid"] > 0
    assert client.output("true; printenv TOKEN", env={"TOKEN": "it's"}) == "it's\n"
    client.run("exit 3", env={"TOKEN": "it's"})
    assert client.output("echo ${TOKEN-gone} $A") == "gone 1\n"


def test_a_command_arrives_byte_for_byte(client: Client, workspace: Path) -> None:
    text = "tab\there ' \" \\ $HOME `id` !! 漢字 🙂\n  blanks  "
    client.output(f"cat > file <<'END'\n{text}\nEND")
    assert (workspace / "file").read_text() == text + "\n"
    script = "".join(f"echo {n} >> many  # {'x' * 90}\n" for n in range(1000))
    client.output(script)
    assert (workspace / "many").read_text() == "".join(f"{n}\n" for n in range(1000))
    assert client.output("ls / | head -1 | wc -l; seq 3 | sed p | wc -l") == "1\n6\n"


@pytest.mark.parametrize(
    "command",
    [
        "if then",
        "echo 'unclosed",
        "set -u; echo $NOPE",
        "${x?bad}",
        "readonly RO=1; RO=2",
        ". ./none-such",
        "shift 5",
        "kill -INT $$",
        "exec >/dev/null 2>&1; false",
        "printf() { echo fake; }; unset() { :; }",
        "trap 'exit 9' INT; false",
    ],
)
def test_an_error_costs_neither_the_shell_nor_the_next_command(client: Client, command: str) -> None:
    client.run("kept=1")
    result = client.run(command)
    assert result["status"] == "completed", result
    assert result["exit_code"] != 0, result
    assert client.output("set +u; echo hello $kept") == "hello 1\n"


@pytest.mark.parametrize(("command", "status"), [("exit 3", 3), ("set -e; (exit 5); echo no", 5), ("kill -9 $$", 137)])
def test_a_shell_that_ends_leaves_its_status_its_directory_and_what_it_exported(
    client: Client, command: str, status: int
) -> None:
    client.run('mkdir sub; cd sub; export A="it\'s"')
    result = client.run(command)
    assert result["exit_code"] == status
    assert "The shell" in result["notice"]
    assert client.output("echo $A; basename $PWD") == "it's\nsub\n"


def test_programs_are_talked_to_interrupted_and_stopped(client: Client) -> None:
    waiting = client.run("read x; echo got $x", soft_timeout=0.2)
    assert waiting["status"] == "soft_timeout"
    assert client.run("hello", is_input=True)["output"] == "got hello\n"
    assert client.run("sleep 60; echo no", soft_timeout=0.2)["running"]
    ended = client.run("C-c", is_input=True)
    assert (ended["status"], ended["exit_code"], ended["output"]) == ("completed", 130, "")
    for command in ("echo begun; sleep 60", "echo begun; while :; do :; done"):
        number = client.send("shell.run", command=command, soft_timeout=60)
        client.wait_for_output(number, "begun")
        client.call("cancel", id=number)
        assert client.wait(number).result["status"] == "interrupted"
        assert client.output("echo fine") == "fine\n"
    assert client.run("sleep 60", timeout=0.2)["status"] == "hard_timeout"
    assert client.run("echo anew", reset=True)["output"] == "anew\n"


def test_a_prompt_that_never_ends_is_not_shown(client: Client, workspace: Path) -> None:
    client.run("export kept=1")
    for prompt in ("PS1='$(sleep 100)'", "export PS1='$(sleep 100)' PS2='$(kill -9 $$)'"):
        assert client.run(f"{prompt}; (exit 3)")["exit_code"] == 3
        assert client.output("echo $? $kept") == "3 1\n"
    assert client.run("export PS1='$(sleep 100)'; exit 4")["exit_code"] == 4
    assert client.output("echo $kept; cd - >/dev/null; pwd") == f"1\n{workspace}\n"
