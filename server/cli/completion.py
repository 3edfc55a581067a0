"""``drydock completion``: what a shell needs to complete commands, options, their values and ids of conversations.

The scripts ask the program itself (``drydock __complete WORD…``), which reads its own parser: there is no list to keep.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from server.cli.parser import parser

SCRIPTS: Final[Mapping[str, str]] = {
    "bash": """\
_drydock() {
    local IFS=$'\\n'
    COMPREPLY=($(drydock __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _drydock drydock
""",
    "zsh": """\
#compdef drydock
_drydock() {
    local -a found
    local line
    for line in "${(@f)$(drydock __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done
    if (( $#found )); then _describe -t drydock drydock found; else _files; fi
}
compdef _drydock drydock
""",
    "fish": """\
function __drydock
    set -l found (drydock __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c drydock -f -a '(__drydock)'
""",
}
"""What each shell reads. Where there is nothing to say, all of them complete names of files."""


class Candidate(NamedTuple):
    """A word that may stand there, and what it means."""

    word: str
    meaning: str = ""


def print_script(shell: str, out: TextIO) -> int:
    """Print the script for a shell; returns the exit status."""
    out.write(SCRIPTS[shell])
    return 0


def complete(words: Sequence[str], environment: Mapping[str, str], out: TextIO) -> int:
    """Print what the last of these words may become, a line for each, with its meaning behind a tab."""
    out.write("".join(f"{one.word}\t{one.meaning}\n" for one in candidates(words, environment)))
    return 0


def candidates(words: Sequence[str], environment: Mapping[str, str]) -> list[Candidate]:
    """What the last of the words behind ``drydock`` may become."""
    *before, last = words or [""]
    here = _Place(parser())
    for word in before:
        here.pass_by(word)
    found = list(here.options() if last.startswith("-") else here.values())
    if here.wants_id and not last.startswith("-"):
        found = _ids(before, environment)
    return [one for one in found if one.word.startswith(last)]


class _Place:
    """Where in the command line it is: which command's, behind which option, at which argument."""

    def __init__(self, command: argparse.ArgumentParser) -> None:
        self._command = command
        self._given: set[str] = set()
        self._awaited: argparse.Action | None = None
        self._arguments = self._positionals()

    def pass_by(self, word: str) -> None:
        if word == "=":  # bash splits there
            return
        if self._awaited is not None:
            self._awaited = None
        elif word.startswith("-") and word != "-":
            name, is_whole, _ = word.partition("=")
            self._given.add(name)
            option = self._command._option_string_actions.get(name)
            self._awaited = option if option is not None and option.nargs != 0 and not is_whole else None
        elif (commands := self._commands()) is not None:
            if word in commands:
                self._command = commands[word]
                self._arguments = self._positionals()
        elif self._arguments and self._arguments[0].nargs not in ("+", "*"):
            self._arguments.pop(0)

    @property
    def wants_id(self) -> bool:
        wanted = self._wanted
        return wanted is not None and wanted.metavar == "ID"

    @property
    def _wanted(self) -> argparse.Action | None:
        return self._awaited or (self._arguments[0] if self._arguments else None)

    def options(self) -> Iterator[Candidate]:
        if self._awaited is not None:
            return
        for action in self._command._actions:
            if not self._given & {*action.option_strings}:
                yield from (Candidate(name, action.help or "") for name in action.option_strings if name[:2] == "--")

    def values(self) -> Iterator[Candidate]:
        wanted = self._wanted
        if isinstance(wanted, argparse._SubParsersAction):
            yield from (Candidate(one.dest, one.help or "") for one in wanted._choices_actions)
        elif wanted is not None and wanted.choices is not None:
            yield from (Candidate(str(one)) for one in wanted.choices)

    def _positionals(self) -> list[argparse.Action]:
        return [action for action in self._command._actions if not action.option_strings]

    def _commands(self) -> dict[str, argparse.ArgumentParser] | None:
        found = (action for action in self._command._actions if isinstance(action, argparse._SubParsersAction))
        subparsers = next(found, None)
        return None if subparsers is None else dict(subparsers.choices)


def _ids(words: Sequence[str], environment: Mapping[str, str]) -> list[Candidate]:
    """The newest conversations of the server that is meant, if it answers at once."""
    given = dict(pairwise(words))
    key_file = Path(given["--key-file"]) if "--key-file" in given else None
    newest = import_module("server.cli.conversations").newest  # with the client the slow part, needed here alone
    return [Candidate(*one) for one in newest(given.get("--url"), key_file, environment)]
