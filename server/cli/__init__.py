"""The command line: ``drydock serve`` and the other commands; options alone mean ``serve``."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, cast

from agent_core.errors import DrydockError
from agent_core.version import VERSION

UNUSED_MODULES = ("aiohttp", "requests", "tornado", "pydantic.v1")
"""What python-socketio loads for its clients only (0.2 s, 20 MB), and FastAPI to refuse models of pydantic 1."""

YOUNG_OBJECTS = 5000
"""Objects made before the collector looks for cycles (Python: 700): a page of events has more, and no cycles."""

LOOKS_BEFORE_ALL = 1
"""Looks through the middle generation before one through all (Python: 10). A session that has ended is a cycle, with
all of its log. Python itself looks through all only where there is a quarter more of it than after the last time."""


@contextmanager
def quick_imports() -> Iterator[None]:
    """For the server's process: within this, modules load without garbage collection and without `UNUSED_MODULES`.

    Models of pydantic that are defined meanwhile, FastAPI's own too, get their validator when they are first used: of
    four hundred a start needs a few (0.15 s, 3 MB). FastAPI silences pydantic about the names of its bodies only while
    it defines them; so it is silenced for good.
    """
    from pydantic import BaseModel  # here: `drydock version` and `--help` do without it
    from pydantic.warnings import UnsupportedFieldAttributeWarning

    warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)

    hidden = [name for name in UNUSED_MODULES if name not in sys.modules]
    modules = cast(dict[str, ModuleType | None], sys.modules)
    modules.update(dict.fromkeys(hidden))
    was_collecting = gc.isenabled()
    gc.disable()
    inherited, BaseModel.model_config = BaseModel.model_config, {**BaseModel.model_config, "defer_build": True}
    try:
        yield
    finally:
        BaseModel.model_config = inherited
        for name in hidden:
            modules.pop(name, None)
        spare_collector()
        if was_collecting:
            gc.enable()


def spare_collector() -> None:
    """Exempt what is loaded by now, and stays, from garbage collection."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, gc.get_threshold()[1], LOOKS_BEFORE_ALL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. Errors that a user can mend are one clear line, no traceback."""
    parser, words = _parser(), _with_command(sys.argv[1:] if arguments is None else arguments)
    if not words:
        parser.error("say what to do: `drydock serve` runs the server, `drydock --help` tells the rest")
    options = parser.parse_args(words)
    if options.command == "version":
        sys.stdout.write(f"drydock {VERSION}\n")
        return 0
    try:
        return _run(options)
    except DrydockError as error:
        sys.stderr.write(f"drydock: {error}\n")
        return 2


def _with_command(arguments: Sequence[str]) -> list[str]:
    """What was typed, with the command that its options are meant for: ``drydock --port 8080`` runs the server."""
    words = list(arguments)
    if words and words[0] == "--version":
        return ["version", *words[1:]]
    if words and words[0].startswith("-") and words[0] not in ("-h", "--help"):
        return ["serve", *words]
    return words


def _run(options: argparse.Namespace) -> int:
    if options.command in _DOORS:
        with quick_imports():
            door: Callable[..., int] = getattr(import_module(_DOORS[options.command]), options.command)
        return door(options.url, options.key_file, os.environ)
    if options.command in ("import", "export"):
        return _run_recording(options)
    if options.command == "plugins":
        with quick_imports():
            run: Callable[..., int] = import_module("server.cli.plugins").plugins
        server = (options.url, options.key_file, os.environ)
        return run(*server, action=options.action, options=vars(options), out=sys.stdout)
    # Loaded when they are asked for: `version` and `--help` answer at once, and the server is loaded faster than usual.
    with quick_imports():
        load_settings = import_module("server.settings.loading").load_settings
    flags = {name: getattr(options, name, None) for name in ("host", "port", "data_dir", "sandbox", "page")}
    settings = load_settings(flags, os.environ, options.config)
    with quick_imports():
        name = options.command.replace("-", "_")
        command: Callable[..., int] = getattr(import_module(f"server.cli.{name}"), name)
    own = {name: getattr(options, name) for name in _OWN_OPTIONS.get(options.command, ())}
    return command(settings, sys.stdout, **own)


def _run_recording(options: argparse.Namespace) -> int:
    with quick_imports():
        recordings = import_module("server.cli.recordings")
    server = (options.url, options.key_file, os.environ)
    if options.command == "import":
        took: int = recordings.import_recording(
            *server, file=options.file, title=options.title, replay=options.replay, out=sys.stdout
        )
        return took
    if options.file is not None:
        wrote: int = recordings.export_whole(*server, conversation_id=options.conversation, file=options.file)
        return wrote
    gave: int = recordings.export_recording(
        *server, conversation_id=options.conversation, file=options.output, out=sys.stdout
    )
    return gave


_OWN_OPTIONS: Final = {
    "backup": ("file", "replace", "with_key", "with_workspaces", "keep", "quiet"),
    "restore": ("file", "replace", "take_over"),
}
"""Options of commands that are no settings."""

_DOORS: Final = {"acp": "server.doors.acp.agent", "mcp": "server.doors.mcp.command"}
"""Commands that other programs start, to work with a running server: the module of each."""

_MCP = """
Talk the Model Context Protocol over standard input and output: a client starts this, and has tools to start, continue,
read, wait for, stop and list conversations of a running server (`drydock serve`). docs/doors.md says how to set it up.
"""
_IMPORT = """
Make a conversation of an exported one in a running server, and print its id: of a whole one with its workspace (as
`drydock export ID FILE` writes it), or of a recorded one (a trajectory, as `drydock export ID` and first-generation
servers write them). It is shown as it was, and can go on from there; with --replay what the user and the agent did in a
recorded one is done again instead.
"""
_PLUGINS = """
Install, list, update, switch and remove the plugins of a user of a running server: skills, hooks, MCP servers and
sub-agents from git addresses, each at the commit that was fetched.
"""
_EXPORT = """
Write a conversation of a running server into a file. With FILE it is the whole conversation: its log, those of its
sub-agents, and its workspace. Otherwise it is a trajectory, as first-generation servers export it.
"""
_ROTATE = """
Make a new key, and encrypt every secret that is stored with it in place of the old key. End the server first; a command
that is broken off has changed nothing, or is finished by the next start.
"""
_BACKUP = """
Write everything that a server keeps (conversations with their logs, settings, secrets, plugins, notes) into one file,
as it is at one moment; the server may run meanwhile. Run it as the server's user, with the server's settings.
"""
_RESTORE = """
Make a data folder of a backup, which is checked first. Without --take-over the restored server is one of its own,
beside which the first one may go on.
"""
_ACP = """
Talk the Agent Client Protocol over standard input and output: an editor starts this. Behind it are conversations of a
running server (`drydock serve`). docs/doors.md says how to set it up.
"""


def _add_recordings(importing: argparse.ArgumentParser, exporting: argparse.ArgumentParser) -> None:
    importing.add_argument("file", type=Path, help="the JSON file; - for standard input")
    importing.add_argument("--title", help="title of the conversation (default: from its first message)")
    importing.add_argument("--replay", action="store_true", help="do again what was recorded")
    exporting.add_argument("conversation", help="id of the conversation")
    exporting.add_argument("file", nargs="?", type=Path, help="write all of it here, with its workspace; - for output")
    exporting.add_argument(
        "-o", "--output", type=Path, default=Path("-"), help="write a trajectory here (default: standard output)"
    )
    for command in (importing, exporting):
        _add_server(command)


def _add_plugins(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True)
    listing = actions.add_parser("list", help="say which are installed, from where, and at which commit")
    installing = actions.add_parser("install", help="fetch one by git and install it as it is now")
    installing.add_argument("source", help="the https address of a git repository")
    installing.add_argument("--path", help="the plugin's folder in the repository (default: the whole of it)")
    updating = actions.add_parser("update", help="fetch one anew, and say from which commit to which")
    for one in (installing, updating):
        one.add_argument("--ref", help="a branch, a tag or a commit (default: the repository's choice; as before)")
    named = [actions.add_parser(name, help=f"{name} one") for name in ("enable", "disable", "remove")]
    for one in (updating, *named):
        one.add_argument("name", help="the plugin's name")
    for one in (listing, installing, updating, *named):
        _add_server(one)


def _add_server(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", help="the server (default: DRYDOCK_URL, or else http://127.0.0.1:3000)")
    command.add_argument(
        "--key-file", type=Path, help="file with the server's access token (default: the value of DRYDOCK_API_KEY)"
    )


def _add_data(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data-dir", type=Path, help="folder of everything that is kept (default: ./data)")
    command.add_argument("--config", type=Path, help="TOML file with settings; docs/configuration.md lists them all")


def _add_backup(making: argparse.ArgumentParser, restoring: argparse.ArgumentParser) -> None:
    making.add_argument("file", type=Path, help="the backup to be made; - for standard output")
    making.add_argument("--force", action="store_true", dest="replace", help="replace the file if it exists")
    making.add_argument(
        "--without-key", action="store_false", dest="with_key", help="leave out the key to the stored secrets"
    )
    making.add_argument(
        "--workspaces",
        action="store_true",
        dest="with_workspaces",
        help="the files in the sandboxes, too, each as it is when it is read",
    )
    making.add_argument(
        "--keep",
        type=int,
        metavar="N",
        help="name a folder as file: it gets one named by the time, and the newest N of this server's stay in it",
    )
    making.add_argument("--quiet", action="store_true", help="say only what went wrong")
    restoring.add_argument("file", type=Path, help="the backup; - for standard input")
    restoring.add_argument(
        "--force", action="store_true", dest="replace", help="move what is in the data folder into a folder in it"
    )
    restoring.add_argument(
        "--take-over",
        action="store_true",
        help="be the server that the backup is of, which runs no more: find its sandboxes, go on with its work",
    )
    for command in (making, restoring):
        _add_data(command)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="drydock", description="A self-hosted agent server.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("serve", "run the server"), ("doctor", "say what works here, and what to do about the rest")):
        command = commands.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.")
        _add_data(command)
        command.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
        command.add_argument("--port", type=int, help="port to listen on, 0 for any free one (default: 3000)")
        command.add_argument(
            "--sandbox",
            choices=["auto", "docker", "local", "unconfined"],
            help="where commands run (default: auto: Docker where an engine answers, else local)",
        )
        command.add_argument("--page", type=Path, help="folder of a built page to serve in place of our own")
    _add_data(commands.add_parser("rotate-key", help="encrypt all secrets with a new key", description=_ROTATE))
    _add_backup(
        commands.add_parser("backup", help="write everything that a server keeps into a file", description=_BACKUP),
        commands.add_parser("restore", help="make a data folder of a backup", description=_RESTORE),
    )
    _add_server(commands.add_parser("acp", help="talk to an editor over standard input and output", description=_ACP))
    _add_server(commands.add_parser("mcp", help="give an MCP client tools for conversations", description=_MCP))
    _add_recordings(
        commands.add_parser("import", help="make a conversation of a recorded one", description=_IMPORT),
        commands.add_parser("export", help="write a conversation into a file", description=_EXPORT),
    )
    _add_plugins(commands.add_parser("plugins", help="install, list, update and remove plugins", description=_PLUGINS))
    commands.add_parser("version", help="print the version")
    return parser
