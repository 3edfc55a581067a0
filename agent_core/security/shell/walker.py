"""Goes through a script as a shell would, without running anything, and collects what was noticed on the way.

It is a rough shell: every branch is taken, loops are taken until nothing new comes, and what is not known is carried
along as marks (`marks`). Where it cannot tell what would run it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.assignments import DECLARERS, LOCALS, declared_letters
from agent_core.security.shell.call import Finding, Programs
from agent_core.security.shell.machine import ShellMachine
from agent_core.security.shell.marks import DECODED, NETWORK, UNKNOWN, bounded, derived, is_known, marks_of, one_of
from agent_core.security.shell.parser import parse
from agent_core.security.shell.redirects import Redirections
from agent_core.security.shell.state import Shell
from agent_core.security.shell.syntax import (
    Assignment,
    Budget,
    Command,
    Compound,
    Pipeline,
    Script,
    Simple,
    Text,
)
from agent_core.security.shell.variables import MAX_VALUES, merge, merged_ways, store

MAX_DEFERRED = 20
_EVALUATING_TESTS = frozenset({"-v", "-R", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_LEAVE_LOOPS = frozenset({"break", "continue"})


class Walker(ShellMachine):
    """Walks one command; `findings` and `files` grow on the way."""

    def __init__(self, programs: Programs, budget: Budget) -> None:
        super().__init__(programs, budget)
        self._defined: list[tuple[str, Script]] = []
        self._background: list[tuple[Pipeline, Shell, str, dict[str, str]]] = []
        self._deferred: list[tuple[str, Shell]] = []

    def walk(self, text: str) -> None:
        """Go through a whole command.

        Raises:
            TooComplexError: it takes too long; what was found until then is kept.
        """
        shell = Shell()
        # Reading has a budget of its own, so that what comes before the part that is too much is still judged.
        self._run_text(text, shell, "", Budget())
        for pipeline, state, stdin, files in self._background:
            if files != self.files:
                # It may have run only after what has been written since.
                self._pipeline(replace(pipeline, background=False), state, stdin)
        for text, state in self._deferred[:MAX_DEFERRED]:
            self.run_code(text, state.copy(), UNKNOWN)
        for name, body in self._defined:  # grows while functions that define functions are looked at
            if not self._launcher.has_called(body):
                # Another command may call it later.
                self._launcher.function(name, body, None, shell.copy(), UNKNOWN)

    def run_code(self, text: str, shell: Shell, stdin: str) -> str:
        """Run a text that was put together, or found, as a script."""
        if NETWORK in text:
            self._high("remote-code", "runs what comes from the network as a program")
        if DECODED in text:
            self._high("hidden-code", "runs a program that was encoded, so that nobody sees what it does")
        if not is_known(text):
            self._unknown("unknown-code", "runs a text that is not known as a program")
        if not text.strip("".join(marks_of(text)) + " \t\n;"):
            return derived(text)
        with self._budget:
            return self._run_text(text, shell, stdin, self._budget)

    def _run_text(self, text: str, shell: Shell, stdin: str, budget: Budget) -> str:
        script, problem = parse(text, budget)
        if problem:
            self._unknown("syntax", f"could not be read as a shell script: {problem}")
        return self.run_script(script, shell, stdin)

    def run_script(self, script: Script, shell: Shell, stdin: str) -> str:
        """Run pipelines one after another; returns all that they print."""
        before, ways_out = shell.input, len(shell.left)
        printed: list[str] = []
        for pipeline in script.pipelines:
            may_be_left = len(shell.left) > ways_out
            with self._perhaps(may_be_left):
                text = self._pipeline(pipeline, shell, shell.input_since(before, stdin))
            printed.append(one_of(("", text)) if may_be_left else text)
        return bounded("".join(printed))

    def _pipeline(self, pipeline: Pipeline, shell: Shell, stdin: str) -> str:
        with self._perhaps(pipeline.conditional):
            if len(pipeline.commands) > 1 or pipeline.background:
                printed = self._in_subshells(pipeline, shell, stdin)
            elif pipeline.conditional:
                before = shell.branch()
                printed = self._command(pipeline.commands[0], shell, stdin)
                shell.variables = merge([before, shell])
                shell.arguments = shell.arguments if shell.arguments == before.arguments else None
            else:
                printed = self._command(pipeline.commands[0], shell, stdin)
        return one_of(("", printed)) if pipeline.conditional else printed

    def _in_subshells(self, pipeline: Pipeline, shell: Shell, stdin: str) -> str:
        self._look_for_bomb(pipeline)
        if pipeline.background and len(self._background) < MAX_DEFERRED:
            self._background.append((pipeline, shell.copy(), stdin, dict(self.files)))
        for command in pipeline.commands:
            stdin = self._command(command, shell.copy(), stdin)
        return stdin

    def _look_for_bomb(self, pipeline: Pipeline) -> None:
        calls = [command for command in pipeline.commands if isinstance(command, Simple) and command.words]
        names = [self._values.plain(call.words[0]) for call in calls]
        if any(name in self._launcher.active for name in names) and (pipeline.background or len(pipeline.commands) > 1):
            self._high("fork-bomb", "a function starts itself again and again in the background")

    def _command(self, command: Command, shell: Shell, stdin: str) -> str:
        with self._budget:
            redirections = Redirections(self, self._values, shell)
            stdin = redirections.input(command.redirects, stdin)
            if isinstance(command, Simple):
                if self._is_exec(command):
                    shell.input = stdin
                    redirections.output(command.redirects, UNKNOWN)
                    redirections.keep(command.redirects)
                    return ""
                printed = self._simple(command, shell, stdin)
            else:
                printed = self._compound(command, shell, stdin)
            return redirections.output(command.redirects, printed)

    def _is_exec(self, command: Simple) -> bool:
        """Whether it only redirects what comes after it."""
        return len(command.words) == 1 and self._values.plain(command.words[0]) == "exec"

    def _compound(self, command: Compound, shell: Shell, stdin: str) -> str:
        if command.kind != "for":
            for word in command.words:
                self._values.alternatives(word, shell, stdin)
        match command.kind:
            case "function":
                shell.functions[command.name] = command.scripts[0]
                self._defined.append((command.name, command.scripts[0]))
                return ""
            case "group":
                return self.run_script(command.scripts[0], shell, stdin)
            case "subshell" | "coproc":
                return self.run_script(command.scripts[0], shell.copy(), stdin)
            case "branch":
                return self._branch(command.scripts, shell, stdin)
            case "case":
                return self._either(command.scripts, shell, stdin, can_skip=True)
            case "for":
                choices = self._choices(command, shell, stdin)
                if "n" in shell.attributes.get(command.name, ""):
                    store(shell, command.name, choices)
                elif command.name:
                    self.assign(shell, command.name, choices, stdin)
                return self._loop(command.scripts, shell, stdin)
            case "loop":
                return self._loop(command.scripts, shell, stdin)
            case "test" | "arithmetic":
                if any(self._values.plain(word) in _EVALUATING_TESTS for word in command.words):
                    for word in command.words:
                        self._values.numbers(word, shell, stdin)
                self.note(Finding(SecurityRisk.LOW, "test", "looks at something"))
                return ""

    def _choices(self, command: Compound, shell: Shell, stdin: str) -> tuple[str, ...]:
        found: list[str] = []
        for word in command.words:
            for fields in self._values.alternatives(word, shell, stdin):
                found.extend(fields)
        unique = tuple(dict.fromkeys(found)) or (UNKNOWN,)
        return unique if len(unique) <= MAX_VALUES else (derived("".join(unique)), *unique[:MAX_VALUES])

    def _branch(self, scripts: Sequence[Script], shell: Shell, stdin: str) -> str:
        conditions = scripts[: len(scripts) - len(scripts) % 2 : 2]
        bodies = [*scripts[1::2], *(scripts[-1:] if len(scripts) % 2 else ())]
        before = shell.input
        printed = "".join(self.run_script(condition, shell, stdin) for condition in conditions)
        stdin = shell.input_since(before, stdin)
        return printed + self._either(bodies, shell, stdin, can_skip=len(scripts) % 2 == 0)

    def _either(self, scripts: Iterable[Script], shell: Shell, stdin: str, *, can_skip: bool) -> str:
        outcomes = [shell.branch()] if can_skip else []
        printed = [""] if can_skip else []
        for script in scripts:
            outcome = shell.branch()
            with self._perhaps():
                printed.append(self.run_script(script, outcome, stdin))
            outcomes.append(outcome)
        if outcomes:
            shell.become_one_of(outcomes, merge(outcomes))
        return one_of(printed)

    def _loop(self, scripts: Sequence[Script], shell: Shell, stdin: str) -> str:
        ways_out = len(shell.left)
        printed = ""
        for _ in range(3):
            before = shell.branch()
            with self._perhaps():
                printed = "".join([self.run_script(script, shell, stdin) for script in scripts])
            shell.variables = merged_ways(before, shell, shell.left[ways_out:], self._budget)
            shell.arguments = shell.arguments if shell.arguments == before.arguments else None
            if shell.variables == before.variables and shell.folder == before.folder:
                break
        shell.left[ways_out:] = [way for way in shell.left[ways_out:] if way[0] not in _LEAVE_LOOPS]
        return one_of(("", printed))

    def _simple(self, command: Simple, shell: Shell, stdin: str) -> str:
        name = self._values.plain(command.words[0]) if command.words else ""
        choices = [self._values.alternatives(word, shell, stdin) for word in command.words]
        if name in DECLARERS:
            self._declare(name, choices, command.assignments, shell)
        was = shell.branch() if name == "local" and not self._launcher.active else None
        is_temporary = bool(command.words) and name not in DECLARERS
        before = {assignment.name: shell.variables.get(assignment.name) for assignment in command.assignments}
        for assignment in command.assignments:
            if is_temporary:
                self.declare(shell, assignment.name, "x", is_local=False)
            self._assignments.perform(assignment, shell, stdin, only_for_a_command=is_temporary)
        count = 1
        for position, alternatives in enumerate(choices):
            count *= len(alternatives)
            if count > MAX_VALUES * 4:
                choices[position] = [[derived("".join("".join(fields) for fields in alternatives))]]
                count //= len(alternatives)
        takes_alias = bool(command.words) and all(isinstance(p, Text) and not p.quoted for p in command.words[0])
        printed = self._run_each([*product(*choices)], shell, stdin, takes_alias=takes_alias)
        if not command.words and not command.assignments:
            printed = stdin if any(redirect.operator == "<" for redirect in command.redirects) else ""
        if is_temporary:
            shell.restore(before)
        if was is not None:
            shell.variables = merge([was, shell])  # outside of a function it does nothing
        return printed

    def _run_each(
        self, combinations: Sequence[Sequence[list[str]]], shell: Shell, stdin: str, *, takes_alias: bool
    ) -> str:
        """Run a command in each of the ways that its words may be, of which one is the real one."""
        ways = [words for chosen in combinations if (words := [field for fields in chosen for field in fields])]
        if len(ways) == 1 and len(combinations) == 1:
            return self._launcher.command(ways[0], shell, stdin, takes_alias=takes_alias)
        outcomes: list[Shell] = []
        printed: list[str] = []
        for words in ways:
            outcomes.append(shell.branch())
            with self._perhaps():
                printed.append(self._launcher.command(words, outcomes[-1], stdin, takes_alias=takes_alias))
        if outcomes:
            shell.become_one_of(outcomes, merge(outcomes))
        return one_of(printed)

    def _declare(
        self, name: str, choices: list[list[list[str]]], assignments: Sequence[Assignment], shell: Shell
    ) -> None:
        options = [field for word in choices[1:] for fields in word for field in fields]
        letters = declared_letters(name, options)
        for assignment in assignments:
            self.declare(shell, assignment.name, letters, is_local=self._is_local(name, letters))

    def _is_local(self, name: str, letters: str) -> bool:
        return name in LOCALS and bool(self._launcher.active) and "g" not in letters

    def defer(self, text: str, shell: Shell, *, at_once: bool = True) -> None:
        """Run a text when this shell ends, in the state that it is in then; and `at_once` also now."""
        if at_once:
            state = shell.copy()
            self.run_code(text, state, UNKNOWN)
            if state.variables != shell.variables:
                self._unknown("unknown-variable", "changes variables at a time that nobody knows")
        self._deferred.append((text, shell))

    def end(self, shell: Shell) -> None:
        """Run what was deferred, as a shell in this state does that ends."""
        for text, _ in self._deferred[:MAX_DEFERRED]:
            if f"deferred {text}" not in self._launcher.active:
                self._launcher.guarded(f"deferred {text}", text, shell.copy(), UNKNOWN)

    def run_program(self, words: Sequence[str], shell: Shell, stdin: str) -> str:
        """Start a program, or a command of the shell itself, by its name."""
        return self._launcher.program(words, shell, stdin)
