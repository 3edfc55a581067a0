"""The command line: ``drydock serve`` and the other commands; options alone mean ``serve``."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from agent_core.errors import DrydockError
from agent_core.version import VERSION
from server.cli.parser import FIRST_STEPS, parser

if TYPE_CHECKING:
    import argparse

TO_DOCTOR: Final = (
    "drydock: `drydock doctor`, with the same options, looks at all that a server needs here, and says what to do\n"
)
"""What a start that fails ends with."""

UNUSED_MODULES = ("aiohttp", "requests", "tornado", "pydantic.v1")
"""What python-socketio loads for its clients only (0.2 s, 20 MB), and FastAPI to refuse models of pydantic 1."""

YOUNG_OBJECTS = 5000
"""Objects made before the collector looks for cycles (Python: 700): a page of events has more, and no cycles."""

LOOKS_BEFORE_ALL = 1
"""Looks through the middle generation before one through all (Python: 10). A session that has ended is a cycle, with
all of its log. Python itself looks through all only where there is a quarter more of it than after the last time."""

COMPLETE = "__complete"
"""What shells ask by, see `server.cli.completion`."""

INTERRUPTED, UNREAD = 130, 141
"""Exit statuses: Ctrl-C; nobody reads what is printed any more."""


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
    """Run a command; returns the exit status. Errors that a user can mend are one clear line, no traceback.

    Behind that of a server that does not start is the way to the doctor.
    """
    _open_standard_streams()
    words = _with_command(sys.argv[1:] if arguments is None else arguments)
    if not words:
        sys.stderr.write(FIRST_STEPS)
        return 2
    if words[0] == COMPLETE:
        done: int = import_module("server.cli.completion").complete(words[1:], os.environ, sys.stdout)
        return done
    if strange := next((word for word in words if not _is_text(word)), None):
        sys.stderr.write(f"drydock: {strange!r} is no UTF-8; give it as a file, or as it is written in UTF-8\n")
        return 2
    options = parser().parse_args(words)
    if options.command == "completion":
        printed: int = import_module("server.cli.completion").print_script(options.shell, sys.stdout)
        return printed
    if options.command == "version":
        sys.stdout.write(f"drydock {VERSION}\n")
        return 0
    try:
        status = _run(options)
        sys.stdout.flush()
    except DrydockError as error:
        sys.stderr.write(f"drydock: {error}\n{TO_DOCTOR if options.command == 'serve' else ''}")
        return getattr(error, "exit_status", 2)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # as for any command whose reader has gone, such as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return UNREAD
    return status


def _open_standard_streams() -> None:
    """Have something stand for streams that were closed: the next file or socket would take their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - as long as the process


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _with_command(arguments: Sequence[str]) -> list[str]:
    """What was typed, with the command that its options are meant for: ``drydock --port 8080`` runs the server."""
    words = list(arguments)
    if words and words[0] == "--version":
        return ["version", *words[1:]]
    if words and words[0].startswith("-") and words[0] not in ("-h", "--help"):
        return ["serve", *words]
    return words


def _run(options: argparse.Namespace) -> int:
    if options.command == "docs":
        shown: int = import_module("server.cli.docs").docs(sys.stdout, page=options.page)
        return shown
    if options.command == "image":
        building, host = import_module("server.cli.image"), None
        if options.docker_host is not None:
            settings = import_module("server.settings.loading").load_settings({}, os.environ, options.config)
            host = building.host_named(options.docker_host, settings)
        built: int = building.image(sys.stdout, kind=options.kind, force=options.force, host=host)
        return built
    if options.command == "bundle":
        bundled: int = import_module("server.cli.bundle").bundle(
            sys.stdout, file=options.file, images=options.images or options.usual, replace=options.replace
        )
        return bundled
    if options.command in _DOORS:
        with quick_imports():
            door: Callable[..., int] = getattr(import_module(_DOORS[options.command]), options.command)
        return door(options.url, options.key_file, os.environ)
    if options.command in ("import", "export"):
        return _run_recording(options)
    if options.command == "run":
        with quick_imports():
            run_task: Callable[..., int] = import_module("server.cli.run").run
        return run_task(vars(options), os.environ)
    if options.command == "conversations":
        return _run_conversations(options)
    if options.command == "plugins":
        with quick_imports():
            run: Callable[..., int] = import_module("server.cli.plugins").plugins
        server = (options.url, options.key_file, os.environ)
        return run(*server, action=options.action, options=vars(options), out=sys.stdout)
    # Loaded when they are asked for: `version` and `--help` answer at once, and the server is loaded faster than usual.
    with quick_imports():
        load_settings = import_module("server.settings.loading").load_settings
    flags = {name: getattr(options, name, None) for name in ("host", "port", "data_dir", "sandbox", "page", "otel")}
    settings = load_settings(flags, os.environ, options.config)
    with quick_imports():
        import_module("server.cli.partly_loaded").load_partly()
        name = options.command.replace("-", "_")
        command: Callable[..., int] = getattr(import_module(f"server.cli.{name}"), name)
    own = {name: getattr(options, name) for name in _OWN_OPTIONS.get(options.command, ())}
    if options.command == "users":
        own["options"] = vars(options)
    if options.command == "audit":
        own = {name: value for name, value in vars(options).items() if name not in ("command", "data_dir", "config")}
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


def _run_conversations(options: argparse.Namespace) -> int:
    server = (options.url, options.key_file, os.environ)
    with quick_imports():
        conversations = import_module("server.cli.conversations")
    run: Callable[..., int] = conversations.conversations
    return run(*server, action=options.action, options=vars(options))


_OWN_OPTIONS: Final = {
    "backup": ("file", "replace", "with_key", "with_workspaces", "keep", "quiet"),
    "restore": ("file", "replace", "take_over"),
    "migrate-database": ("to",),
    "users": ("action",),
}
"""Options of commands that are no settings."""

_DOORS: Final = {"acp": "server.doors.acp.agent", "mcp": "server.doors.mcp.command"}
"""Commands that other programs start, to work with a running server: the module of each."""
