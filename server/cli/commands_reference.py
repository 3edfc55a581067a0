"""Writes the end of `docs/command-line.md` from the parser: ``python -m server.cli.commands_reference``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from server.cli.parser import parser


def render() -> str:
    """The last part of the page."""
    return "\n".join(["## All commands\n", *_commands("drydock", parser())])


def _commands(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        for one in action._choices_actions:
            words = f"{name} {one.dest}"
            found = action.choices[one.dest]
            yield f"### {words}\n"
            yield f"{(one.help or '')[:1].upper()}{(one.help or '')[1:]}.\n"
            if rows := list(_rows(found)):
                yield "| Argument | Means |\n|---|---|"
                yield from rows
                yield ""
            yield from _commands(words, found)


def _rows(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        value = ", ".join(map(str, action.choices)) if action.choices is not None else value
        names = ", ".join(action.option_strings) or value
        shown = f"{names} {value}" if action.option_strings and action.nargs != 0 else names
        optional = "" if action.option_strings or action.required else " (optional)"
        yield f"| `{shown}`{optional} | {(action.help or '').replace('|', '/')} |"


if __name__ == "__main__":
    sys.stdout.write(render())
