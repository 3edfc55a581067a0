"""The conformance suite of the terminal: the same shell in every provider's sandboxes.

A test module inherits from the class and gives it a fixture ``kit`` (a `SandboxKit`). Each test has
one sandbox for many cases, since starting one takes longer than all that is done in it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_core.errors import SandboxLostError
from agent_core.runtime.action_runner import DirectContext
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.testing.sandbox_contract import SandboxKit, run
from agent_core.tools.terminal import (
    FreshTerminalAction,
    NamedTerminalAction,
    TerminalAction,
    TerminalExecutor,
    TerminalObservation,
)

SCRIPT = "".join(f"echo {number} >> many  # {'x' * 90}\n" for number in range(1000))
AT_A_PROMPT = (
    ("printf 'a\\tb\\n'", 0, "a\tb\n"),
    ("cat <<'END'\n\ttab  $x `y` \\z !!\n  blanks  \nEND", 0, "\ttab  $x `y` \\z !!\n  blanks  \n"),
    ("cat <<-END\n\tone\n\tEND\necho two", 0, "one\ntwo\n"),
    ("echo a\nfalse\necho c", 0, "a\nc\n"),
    ("for i in 1 2\ndo echo $i\ndone\n", 0, "1\n2\n"),
    ("echo 'é 漢字 🎉' \"it's\" \\; '|' a\\&b", 0, "é 漢字 🎉 it's ; | a&b\n"),
    ("echo 'unfinished", 2, "bash: unexpected EOF while looking for matching `''\n"),
    ("echo )", 2, "bash: syntax error near unexpected token `)'\n"),
    ("echo a \\\n  b", 0, "a b\n"),
    ("none-such", 127, "bash: none-such: command not found\n"),
    ("# a comment", 0, ""),
    ("printf abc", 0, "abc"),
    ("printf '\\n\\na\\n\\n'", 0, "\n\na\n\n"),
    ("(exit 300)", 44, ""),
    ("echo $?", 0, "44\n"),
    ("kill -TERM $BASHPID | true; sh -c 'kill -9 $$'", 137, "Killed\n"),
    ("echo $((1/0)); echo after", 1, 'bash: 1/0: division by 0 (error token is "0")\n'),
    (SCRIPT + "wc -l < many", 0, "1000\n"),
    (f"printf %s {'y' * 100_000} | wc -c", 0, "100000\n"),
    ("test -t 0 && test -t 1 && test -t 2 && tput cols && tput lines", 0, "256\n200\n"),
    ("printf '1%%\\r50%%\\r100%%\\n'", 0, "100%\n"),
    ("printf '\\e[31mred\\e[0m \\e]0;title\\a\\e[?25lplain\\n'", 0, "red plain\n"),
    ("printf '漢字\\rab\\n'", 0, "ab字\n"),
    ("printf '\\e[?1049h\\e[H\\e[2Jone\\e[3;1Hthree\\e[?1049l'", 0, "one\n\nthree\n"),
    ("printf 'head\\n1\\n2\\n\\e[2;3r\\e[3;1H\\n3\\e[r\\e[4;1H\\n'", 0, "head\n2\n3\n"),
    ("printf '\\377\\0a\\n'", 0, "\ufffda\n"),
    ("seq 300 | ${PAGER:-less} | tail -1; git --version | grep -c git", 0, "300\n1\n"),
)
SETTINGS = (
    "PS1='$(sleep 100)' PS2='>' PS0='$(exit 3)'",
    "PROMPT_COMMAND='exit 9'",
    "PROMPT_COMMAND=('sleep 100' 'kill -9 $$')",
    "trap 'echo bye >/dev/null' EXIT DEBUG ERR",
    "set -u; set -o pipefail",
    "IFS=0123456789",
    "exec >/dev/null 2>&1 </dev/null",
    'for name in printf read builtin command cd exit eval; do eval "$name() { return 7; }"; done',
    "alias echo='echo no' builtin=no eval=no printf=no '[['=no '{'=no '!'=no",
    "enable -n printf eval declare",
    "PATH=",
    "stty raw -echo",
    "set -o vi",
    "set -o vi; shopt -so emacs\ntrue",
    "printf '###PS1JSON###\\n{\"exit_code\": 3}\\n###PS1END###\\n'",
)
SLEEPER = "sh -c 'echo begun; exec sleep 100'"
"""Interrupted before its own process is the terminal's, it would go on, as it would for a person who is so quick."""
ENDS = (
    ("exit 3", "completed", 3),
    ("set -e; (exit 4)", "completed", 4),
    ("exec sh -c 'exit 5'", "completed", 5),
    ("kill -9 $$", "shell_lost", 137),
    ("kill -9 -- -$$", "shell_lost", 137),
)


@dataclass
class _Terminal:
    sandbox: SandboxConnection
    executor: TerminalExecutor = field(default_factory=lambda: TerminalExecutor(soft_timeout=0.5))

    async def do(self, action: TerminalAction) -> TerminalObservation:
        async with asyncio.timeout(60):
            return await self.executor.carry_out(action, DirectContext(self.sandbox), None)

    async def __call__(self, command: str, *, wait: float | None = 20.0, **given: Any) -> TerminalObservation:
        return await self.do(TerminalAction(command=command, timeout=wait, **given))

    async def says(self, command: str, output: str, code: int = 0, **given: Any) -> TerminalObservation:
        seen = await self(command, **given)
        shown = command[:100]
        assert (seen.status, seen.exit_code, seen.text) == ("completed", code, output), (shown, seen)
        return seen

    async def begins(self, command: str) -> None:
        """Have a command run on that says so when it can be typed at, or interrupted."""
        seen = await self(command, wait=0.2)
        while "begun" not in seen.text:
            assert seen.status == "hard_timeout", seen
            seen = await self("", wait=0.2)


class TerminalContract:
    """One shell that is kept, and what is asked of it."""

    async def test_a_command_does_what_a_person_at_a_prompt_would_see(self, kit: SandboxKit) -> None:
        terminal = _Terminal(kit.connect())
        for command, code, output in AT_A_PROMPT:
            seen = await terminal.says(command, output, code)
            assert seen.working_dir == terminal.sandbox.working_dir
        await terminal.says(
            "mkdir -p 'd ü\n'; cd 'd ü\n'; export A=1; f() { echo f; }; alias hey='echo hey'; umask 027", ""
        )
        seen = await terminal.says("echo $A; f; hey; umask", "1\nf\nhey\n0027\n")
        assert seen.working_dir == f"{terminal.sandbox.working_dir}/d ü\n"
        assert (await terminal("sleep 100 & echo now")).pid > 0
        await terminal.says("python -c 'import sys; print(sys.version_info >= (3, 8))'", "True\n")

    async def test_nothing_that_is_set_fakes_a_status_or_costs_the_shell(self, kit: SandboxKit) -> None:
        terminal = _Terminal(kit.connect())
        for setting in SETTINGS:
            await terminal("true", reset=True)
            await terminal.says("kept=1; me=$$", "")
            seen = await terminal(setting)
            assert (seen.status, seen.exit_code) == ("completed", 0), (setting, seen)
            seen = await terminal('test "$kept$me" = "1$$" && (exit 9)')
            assert (seen.status, seen.exit_code, seen.text) == ("completed", 9, ""), (setting, seen)
        for ending, status, code in ENDS:
            await terminal("cd /; export KEPT=1; f() { echo f; }", reset=True)
            seen = await terminal(ending)
            assert (seen.status, seen.exit_code, seen.is_error) == (status, code, True), (ending, seen)
            assert "The shell " in seen.notice
            await terminal.says("pwd; echo $KEPT; f", "/\n1\nf\n")
        await terminal("kept=1; cd /usr", reset=True)
        await terminal.says("ulimit -n 5", "")
        seen = await terminal.says("echo $kept; cd -", f"1\n{terminal.sandbox.working_dir}\n")
        assert "ulimit -n" in seen.notice
        await terminal.says("cd - 2>&1 || echo $?", "bash: cd: OLDPWD not set\n1\n", reset=True)
        await terminal("ulimit -u 1; test 1 -eq x", reset=True)
        await terminal.says("echo $?", "2\n")
        if (await terminal("echo $PPID")).text == "1\n":  # the runner is the first process: nobody inside ends it
            await terminal("kill -9 -1")
        else:
            with pytest.raises(SandboxLostError, match="ended while this ran in it"):
                await run(terminal.sandbox, "kill -9 -1", key="first:1")
        await terminal.says("echo again", "again\n")

    async def test_ending_every_python_there_is_costs_nothing(self, kit: SandboxKit) -> None:
        terminal = _Terminal(kit.connect())
        await terminal.says("kept=1; kill -TERM $PPID", "")  # the runner, which ``pkill python3`` means as well
        await terminal.says("echo $kept", "1\n")

    async def test_programs_are_talked_to_waited_for_and_interrupted(self, kit: SandboxKit) -> None:
        terminal = _Terminal(kit.connect())
        asked = await terminal(
            "python3 -c 'import getpass as g; p = g.getpass(); print(input(\"name? \"), len(p))'", wait=None
        )
        while "Password:" not in asked.text:
            asked = await terminal("", wait=None)
        assert (asked.status, asked.exit_code) == ("soft_timeout", -1)
        await terminal("s3cret", is_input=True, wait=None)
        seen = await terminal("Zoë 漢", is_input=True)
        assert (seen.status, seen.text.splitlines()[-1]) == ("completed", "Zoë 漢 6")
        assert "s3cret" not in seen.text
        for key, code in (("C-c", 130), ("CTRL+C", 130)):
            await terminal.begins(SLEEPER)
            refused = await terminal("echo no")
            assert (refused.status, refused.is_error) == ("not_executed", True)
            assert "NOT executed" in refused.notice
            seen = await terminal(key, is_input=True)
            assert (seen.status, seen.exit_code) == ("completed", code)
        await terminal.begins(SLEEPER)
        assert (await terminal("C-z", is_input=True)).exit_code == 148
        await terminal("kill %1; wait 2>/dev/null")
        assert (await terminal("cat > typed", wait=0.2)).status == "hard_timeout"
        await terminal("one\ntwo", is_input=True, wait=0.2)
        assert (await terminal("C-d", is_input=True)).exit_code == 0
        await terminal.says("cat typed", "one\ntwo\n")
        assert "no previous running command to retrieve" in (await terminal("")).notice
        assert "no previous running command to interact" in (await terminal("x", is_input=True)).notice
        assert (await terminal("sleep 100", wait=0.2)).status == "hard_timeout"
        assert (await terminal("echo new; echo ${kept-gone}", reset=True)).text == "new\ngone\n"

    async def test_a_user_types_at_a_command_while_somebody_waits_for_it(self, kit: SandboxKit) -> None:
        terminal = _Terminal(kit.connect())
        await terminal.says("true", "")
        user = DirectContext(terminal.sandbox)
        user.at_once = True

        async def types(command: str, *, is_input: bool) -> TerminalObservation:
            action = TerminalAction(command=command, is_input=is_input)
            async with asyncio.timeout(60):
                return await terminal.executor.carry_out(action, user, None)

        for command, code in (("sh -c 'sleep 4731; true'", 130), ("cat > typed", 0)):
            waiting = asyncio.create_task(terminal(command, wait=600.0))
            typed = await types("first", is_input=True)
            while typed.is_error:  # it has not begun yet
                typed = await types("first", is_input=True)
            assert (typed.status, typed.exit_code) == ("soft_timeout", -1)
            refused = await types("echo no", is_input=False)
            assert (refused.status, refused.is_error) == ("not_executed", True)
            looked = await types("", is_input=False)
            assert (looked.status, "another request is waiting" in looked.notice) == ("soft_timeout", True)
            assert not waiting.done()
            await types("C-d" if code == 0 else "C-c", is_input=True)
            ended = await waiting
            assert (ended.status, ended.exit_code) == ("completed", code)
        await terminal.says("! pgrep -f 'sleep 473[1]'; cat typed", "first\n")

    async def test_a_line_of_any_length_is_typed_whole_or_not_at_all(self, kit: SandboxKit) -> None:
        terminal = _Terminal(kit.connect())
        count = "python3 -c 'import sys; print(len(sys.stdin.readline()))'"
        for command, line, told in (
            ("echo begun; read -r line; echo ${#line}", "x" * 4096, "4096\n"),
            ("echo begun; read -r line; echo ${#line}", "漢é" * 20_000, "40000\n"),
            (
                "echo begun; read -r line; read -r more; echo ${#line} ${#more}",
                f"{'x' * 8000}\n{'y' * 4000}",
                "8000 4000\n",
            ),
            (f"echo begun; {count}", "é" * 40_000, "40001\n"),
            (f"stty -icanon; echo begun; {count}", "é" * 10_000, "10001\n"),
        ):
            await terminal.begins(command)
            await terminal.says(line, told, is_input=True)
        await terminal.begins("stty eof undef; echo begun; read -r line; echo ${#line}")
        assert "was not sent" in (await terminal("x" * 4096, is_input=True, wait=0.2)).notice
        await terminal.says("x" * 4095, "4095\n", is_input=True)

    async def test_terminals_are_kept_apart_and_one_command_may_have_a_shell_of_its_own(self, kit: SandboxKit) -> None:
        terminal = _Terminal(kit.connect())
        for name in ("a", "b"):
            seen = await terminal.do(NamedTerminalAction(command=f"kept={name}; cd /usr", terminal=name))
            assert seen.working_dir == "/usr"
        seen = await terminal.do(NamedTerminalAction(command="echo $kept", terminal="a"))
        assert (seen.text, seen.working_dir) == ("a\n", "/usr")
        await terminal.begins(SLEEPER)
        seen = await terminal.do(FreshTerminalAction(command="pwd; echo ${kept-none}; exit 6", cwd="/tmp"))
        assert (seen.text.splitlines()[:2], seen.exit_code) == (["/tmp", "none"], 6)
        seen = await terminal.do(FreshTerminalAction(command="sleep 100", timeout=0.2))
        assert (seen.status, "has ended" in seen.notice) == ("hard_timeout", True)
        assert (await terminal("C-c", is_input=True)).exit_code == 130
