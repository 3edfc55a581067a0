"""Nothing that a command prints, sets or closes is taken for its end, fakes its status or costs its shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.runner.client import Client

KEEPS_THE_SHELL = {
    "prompt": "PS1='$ '; PS2='>>'; PS0='zero'; PS4='four'",
    "prompt command": "PROMPT_COMMAND='echo prompt; false'",
    "prompt command that is read-only": "readonly PROMPT_COMMAND='echo prompt'",
    "exit trap": "trap 'echo bye' EXIT",
    "debug trap": "trap 'echo debug >/dev/null' DEBUG",
    "error trap": "trap 'echo oops >/dev/null' ERR",
    "interrupt ignored": "trap '' INT TERM HUP",
    "unset check": "set -u",
    "exit on error": "set -e",
    "no clobber": "set -C",
    "no glob": "set -f",
    "posix": "set -o posix",
    "all exported": "set -a",
    "pipefail": "set -o pipefail; false | true || true",
    "separator": "IFS='0123456789abc'",
    "locale": "export LC_ALL=C LANG=C",
    "history": "set -o history; set -H",
    "job control off": "set +m",
    "output redirected": "exec >/dev/null 2>&1",
    "input redirected": "exec </dev/null",
    "output closed": "exec 1>&- 2>&-",
    "input closed": "exec 0<&-",
    "high descriptor closed": "exec 255<&-",
    "functions in the way": "for name in eval builtin printf unset enable trap export declare set exit cd source; do\n"
    'eval "$name() { echo faked; return 7; }"; done',
    "aliases in the way": "alias builtin='echo faked' eval='echo faked' printf='echo faked' unset='echo faked'",
    "aliases of the shell's own words": "alias '[['='echo faked' '{'=false '}'=x '!'=x if=x",
    "builtins off": "enable -n printf eval export declare",
    "readonly names": "readonly word status command REPLY",
    "no path": "PATH=",
    "terminal modes": "stty raw -echo 2>/dev/null",
    "terminal modes of a hostile kind": "stty -opost -isig -icanon min 0 time 0 2>/dev/null",
    "stopped itself": "kill -STOP $$",
    "suspended itself": "suspend -f",
    "asked to end": "kill -TERM $$",
    "interrupted itself": "kill -INT $$",
    "own environment": "export BASH_ENV=/nonexistent ENV=/nonexistent POSIXLY_CORRECT=1",
    "mode of editing": "set -o vi\ntrue; set -o emacs; set +o emacs",
    "mode of editing that a variable names": 'mode=vi\nset -o $mode; set -eo "$mode"; shopt -uo ${mode}; set +e',
    "shell options": "shopt -u expand_aliases; shopt -s extdebug failglob nocasematch execfail",
    "terminal control": r"printf '\e]0;title\a\e[?1049h\e[2J\e[8;1;1t\ec'",
    "output stopped": r"printf '\023'",
    "many files": 'for n in {20..60}; do eval "exec $n</dev/null"; done',
}


@pytest.mark.parametrize("attack", KEEPS_THE_SHELL.values(), ids=KEEPS_THE_SHELL.keys())
def test_a_setting_does_not_cost_the_shell(client: Client, attack: str) -> None:
    client.run("kept=1; mine() { echo mine; }")
    result = client.run(attack)
    assert result["status"] == "completed", result
    after = client.run("/bin/echo hello; /bin/echo $kept; mine; (exit 9)")
    assert after["status"] == "completed", after
    assert after["exit_code"] == 9
    lines = after["output"].split("\n")
    assert lines[:1] == ["hello"], after
    assert "mine" in lines, after
    assert (lines[1] == "1") is not attack.startswith("IFS"), after
    assert client.run("kept=2; true")["exit_code"] == 0
    assert client.run('[ "$kept" = 2 ]')["exit_code"] == 0


AT_A_PROMPT = ("PROMPT_COMMAND='exit 9'", "PROMPT_COMMAND=('exit 9' 'kill -9 $$')", "PROMPT_COMMAND='sleep 100'")
IN_A_PROMPT = ("builtin() { echo faked; }", "PS1='$(sleep 100)'", "PS1='$(kill -9 $$)'", "PS0='$(kill -9 $$)' PS2=$PS0")


def test_what_is_to_happen_at_a_prompt_neither_lasts_nor_ends_the_shell_nor_changes_a_status(client: Client) -> None:
    shell = client.output("echo $$")
    for attack in (*AT_A_PROMPT, *IN_A_PROMPT):
        result = client.run(f"{attack}; echo hello; (exit 4)", soft_timeout=5)
        assert (result["status"], result["exit_code"], result["output"]) == ("completed", 4, "hello\n"), attack
        assert client.output("echo $?; echo $$") == f"4\n{shell}", attack
    assert client.output("PS4='+$(echo four) '; PS1=mine; set -x; { set +x; } 2>/dev/null; echo $PS1") == "mine\n"
    assert "four" in client.output("set -x; true; set +x")
    assert client.run("set | grep '^_[0-9a-f]\\{16\\}'; shopt promptvars")["output"] == "promptvars     \ton\n"


def test_a_profile_and_a_kept_state_outlive_what_they_set_for_the_prompt(client: Client, directory: Path) -> None:
    hostile = "PROMPT_COMMAND='exit 9'; PS1='$(kill -9 $$)'"
    (directory / ".bashrc").write_text(f"{hostile}\nexport PROFILE=1\n")
    assert client.output("echo $PROFILE") == "1\n"
    assert client.run(f"kept=1; {hostile}; exit 3")["exit_code"] == 3
    assert client.output("echo $PROFILE $kept") == "1 1\n"


def test_a_command_that_its_shell_did_not_live_to_read_is_run_by_the_next(client: Client) -> None:
    dies_between = "trap '[[ $BASH_COMMAND == *declare* ]] && { sleep 0.1; kill -9 $$; }' DEBUG"
    long = f"echo run >> ran # {'x' * 4000}"  # a shell reads a kilobyte ahead
    numbers = [client.send("shell.run", command=command) for command in (f"kept=1; {dies_between}", long)]
    assert client.wait(numbers[0]).result["status"] == "completed"
    result = client.wait(numbers[1]).result
    assert (result["status"], result["exit_code"]) == ("completed", 0)
    assert "signal 9" in result["notice"]
    assert client.output("cat ran") == "run\n"
    numbers = [client.send("shell.run", command=command) for command in (dies_between, long, "echo after")]
    assert client.wait(numbers[0]).result["status"] == "completed"  # or the next is only taken out of the queue
    assert client.call("cancel", id=numbers[1]).result == {"cancelled": True}
    assert client.wait(numbers[1]).result["status"] == "interrupted"
    assert client.wait(numbers[2]).result["output"] == "after\n"
    assert client.output("cat ran") == "run\n"


ENDS_THE_SHELL = {
    "exit": ("exit 3", 3),
    "exit in a function": ("f() { exit 4; }; f", 4),
    "exit on error": ("set -e; true; (exit 5); echo not reached", 5),
    "exit with a trap of its own": ("trap 'echo bye' EXIT; exit 6", 6),
    "exec": ("exec sh -c 'exit 7'", 7),
    "once": ("set -t; (exit 8)", None),
    "end of the input": ("exec 10<&- 11>&- 12>&-", None),
}


@pytest.mark.parametrize(("attack", "status"), ENDS_THE_SHELL.values(), ids=ENDS_THE_SHELL.keys())
def test_a_shell_that_ends_leaves_its_status_and_its_state(client: Client, attack: str, status: int | None) -> None:
    client.run("mkdir sub; cd sub; export EXPORTED=1; plain=2; greet() { echo hello; }; alias hey='echo hey'")
    result = client.run(attack, soft_timeout=0.5)
    if status is not None:
        assert (result["status"], result["exit_code"]) == ("completed", status)
        assert f"exit code {status}" in result["notice"]
        assert result["shell_ended"]
    after = client.run("echo $EXPORTED $plain; greet; hey; basename $PWD; false; echo still")
    assert (after["status"], after["exit_code"]) == ("completed", 0), after
    assert after["output"] == "1 2\nhello\nhey\nsub\nstill\n"


def test_what_a_command_changed_before_it_ended_the_shell_is_kept(client: Client) -> None:
    result = client.run("mkdir there; cd there; export LATE=1; late() { echo late; }; exit 3")
    assert result["working_dir"].endswith("/there")
    assert client.output("basename $PWD; echo $LATE; late") == "there\n1\nlate\n"


def test_a_command_sees_no_traps_but_its_own(client: Client) -> None:
    assert client.output("set -x\nset +x; trap; trap -p") == "++ set +x\n"
    assert client.output("trap 'echo bye' EXIT; trap -p") == "trap -- 'echo bye' EXIT\n"
    assert client.output("trap -p EXIT") == "trap -- 'echo bye' EXIT\n"
    client.run("trap - EXIT")
    assert client.run("cd /; exit 4")["exit_code"] == 4
    assert client.output("echo $? $PWD; trap; (exit 6)\necho $?") == "4 /\n6\n"


def test_a_directory_that_is_gone_is_not_mistaken_for_another(client: Client, workspace: Path) -> None:
    client.run("mkdir gone; cd gone; rmdir ../gone")
    client.run("cd ..")
    assert client.run("PWD=..; exit")["exit_code"] == 0
    assert client.output("pwd") == f"{workspace}\n"


def test_exec_keeps_directory_and_environment(client: Client) -> None:
    running = client.send("shell.run", command="cd /; export LATE=1; exec sh -c 'read x'", soft_timeout=0.3)
    waiting = client.wait(running).result
    assert (waiting["status"], waiting["running"]) == ("soft_timeout", True)
    assert "exec" in waiting["notice"]
    assert client.run("go", is_input=True)["exit_code"] == 0
    assert client.output("pwd; echo $LATE") == "/\n1\n"


@pytest.mark.parametrize("attack", ["PWD=/fake", "unset PWD", "declare -n PWD=other", "PWD=(/fake)"])
def test_the_working_directory_is_the_shells_own_whatever_its_variable_says(client: Client, attack: str) -> None:
    client.run("mkdir real; cd real")
    assert client.run(attack)["working_dir"] == f"{client.hello['workspace']}/real"


def test_an_enormous_path_is_survived(client: Client) -> None:
    client.run("PATH=$(printf %03000000d 1)")
    assert client.output("PATH=/usr/bin:/bin; type -t cat") == "file\n"


def test_a_directory_reached_through_a_link_keeps_the_name_it_was_reached_by(client: Client) -> None:
    workspace = client.hello["workspace"]
    assert client.run("mkdir real; ln -s real link; cd link")["working_dir"] == f"{workspace}/link"
    assert client.run("rmdir ../real")["working_dir"] == f"{workspace}/real"


@pytest.mark.parametrize("number", [9, 11, 6])
def test_a_shell_that_is_killed_is_reported_and_replaced(client: Client, number: int) -> None:
    client.run("cd /; kept=1")
    result = client.run(f"echo before; kill -{number} $$; echo after")
    assert (result["status"], result["exit_code"]) == ("shell_lost", 128 + number)
    assert result["output"].startswith("before\n")
    assert f"signal {number}" in result["notice"]
    assert client.output("pwd; echo $kept") == "/\n1\n"


def test_options_and_functions_written_in_their_syntax_outlive_a_killed_shell(client: Client) -> None:
    client.run("shopt -s extglob nullglob; shopt -u sourcepath; set -f +B")
    client.run("odd() { case $1 in +(a|b)) echo odd;; esac; }")
    client.run("kill -9 $$")
    after = client.run("odd ab; echo $-; shopt extglob nullglob sourcepath")
    lines = after["output"].split("\n")
    assert lines[0] == "odd", after
    assert "f" in lines[1]
    assert "B" not in lines[1]
    assert [line.split()[1] for line in lines[2:5]] == ["on", "on", "off"]


def test_a_state_too_large_to_keep_costs_nothing_but_itself(client: Client) -> None:
    client.run("kept=1")
    client.run("large=$(printf %05000000d 1); late=2")
    assert client.output("echo ${#large}") == "5000000\n"
    client.run("kill -9 $$")
    assert client.output("echo $kept ${late-gone} ${#large}") == "1 gone 0\n"


def test_a_shell_that_dies_between_two_commands_is_replaced(client: Client) -> None:
    client.run("cd /; kept=1; (sleep 0.05; kill -9 $$) &")
    assert client.run("true")["status"] == "completed"
    client.run("wait 2>/dev/null; true")
    result = client.run("pwd; echo $kept")
    assert (result["status"], result["output"]) == ("completed", "/\n1\n")


def test_output_that_looks_like_a_report_is_only_output(client: Client) -> None:
    text = "###PS1JSON### {} ###PS1END###"
    assert client.output(f"echo '{text}'") == f"{text}\n"
    result = client.run(r"printf '\e]0123456789abcdef\a'; printf 'after\n'; (exit 3)")
    assert (result["output"], result["exit_code"]) == ("after\n", 3)


def test_no_descriptor_of_the_runner_is_open_in_a_program(client: Client) -> None:
    names = client.output("ls -l /proc/self/fd").splitlines()[1:]
    targets = [name.rpartition(" -> ")[2] for name in names]
    assert [target for target in targets if not target.startswith(("/dev/pts/", "/proc/"))] == []


def test_a_program_that_floods_every_descriptor_changes_nothing(client: Client) -> None:
    flood = "import os\nfor fd in range(3, 300):\n    try: os.write(fd, b'0\\0' * 500)\n    except OSError: pass"
    assert client.run(f'python3 -c "{flood}"; (exit 4)')["exit_code"] == 4


def test_a_fake_report_in_the_pipe_is_ignored(client: Client) -> None:
    find = "pipe=$(tr''ap -p EXIT | grep -o '>|/dev/pts/[0-9]*' | head -1); pipe=${pipe#*|}; echo found $pipe"
    result = client.run(find + "; printf '%s\\0' 0000000000000000 0 1 /fake /fake x > $pipe; (exit 5)")
    assert result["output"].startswith("found /dev/pts/")
    assert result["exit_code"] == 5
    assert result["working_dir"] != "/fake"


def test_an_interactive_shell_inside_the_shell_is_a_program_like_others(client: Client) -> None:
    result = client.run("PS1='inner> ' bash --norc", soft_timeout=0.5)
    assert (result["status"], result["output"]) == ("soft_timeout", "inner> ")
    result = client.run("echo $((6*7))", is_input=True, soft_timeout=0.5)
    assert "42" in result["output"]
    assert client.run("exit 5", is_input=True)["exit_code"] == 5


def test_a_shell_that_can_never_report_again_is_replaced(client: Client) -> None:
    client.run("kept=1")
    result = client.run("declare -r POSIXLY_CORRECT=; builtin() { echo faked; }")
    assert result["status"] == "shell_lost"
    assert client.output("echo $kept") == "1\n"


def test_a_limit_on_open_files_costs_the_shell_but_not_the_terminal(client: Client) -> None:
    client.run("cd /; kept=1")
    client.run("ulimit -n 3")
    client.run("true")
    assert client.output("pwd; echo $kept") == "/\n1\n"


@pytest.mark.parametrize("number", [5, 13, 14])
def test_a_shell_that_may_open_too_few_files_for_a_command_is_replaced_before_it(client: Client, number: int) -> None:
    client.run("kept=1")
    assert client.run(f"ulimit -n {number}")["exit_code"] == 0
    result = client.run("echo $kept; (exit 3)")
    assert (result["status"], result["exit_code"], result["output"]) == ("completed", 3, "1\n")
    assert ("ulimit -n" in result["notice"]) is (number < 14)


def test_a_function_that_changes_the_mode_of_editing_costs_nothing(client: Client) -> None:
    client.run("kept=1; edit() { set -o vi; }")
    assert client.output("edit\nshopt -o vi\necho $kept").split() == ["vi", "on", "1"]
    client.run("set +o vi; exit 1")
    assert client.output("edit; echo $kept") == "1\n"


def test_a_mode_of_editing_that_costs_the_shell_does_not_cost_the_next(client: Client) -> None:
    client.run("kept=1; f() { echo f; }; v=v; hidden='set -o v''i'")
    assert client.run("eval $hidden")["status"] == "shell_lost"
    assert client.output("echo $kept; f") == "1\nf\n"


def test_a_restricted_shell_is_left_behind(client: Client) -> None:
    client.run("kept=1")
    client.run("set -r")
    client.run("true")
    assert client.output("echo $kept > file; cat file") == "1\n"


def test_skipping_every_command_by_a_debug_trap_does_not_outlast_a_reset(client: Client) -> None:
    client.run("shopt -s extdebug; trap false DEBUG", soft_timeout=0.5)
    client.run("", reset=True)
    assert client.output("echo back") == "back\n"
