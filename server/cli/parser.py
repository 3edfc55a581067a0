"""The words of the command line: what each command takes, and the help that it gives."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

FIRST_STEPS: Final = """\
usage: drydock COMMAND ...

What one wants to do first:

  drydock doctor                 say what works here, and what to do about the rest
  drydock serve                  `drydock serve` runs the server: open the address that it prints
  drydock run "task"             have an agent do something, at that server or without one
  drydock conversations list     see what agents do and did on a running server
  drydock export ID FILE         keep a whole conversation, or take it elsewhere
  drydock --help                 see every command; `drydock COMMAND --help` has examples

"""

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
_USERS = """
Say who uses a server with accounts (the setting `users`): add and invite users, let them in no more, print links for
new passwords, make tokens. It works on the database of the server, which may run; run it as the server's user.
"""
_ROTATE = """
Make a new key, and encrypt every secret that is stored with it in place of the old key. End the server first; a command
that is broken off has changed nothing, or is finished by the next start.
"""
_MIGRATE_DATABASE = """
Move everything that the database of a server keeps from SQLite into an empty PostgreSQL, compared row by row. End the
server first. A command that is broken off has moved nothing; the SQLite file and the data folder stay as they are.
"""
_BACKUP = """
Write everything that a server keeps (conversations with their logs, settings, secrets, plugins, notes) into one file,
as it is at one moment; the server may run meanwhile. Run it as the server's user, with the server's settings.
"""
_CONVERSATIONS = """
Look at the conversations of a running server, talk to them, take them out and in. Where an ID is asked for, its
beginning will do, as long as no other conversation begins so.
"""
CONVERSATION_EXAMPLES = """
examples:
  drydock conversations list --state waiting        those that wait for somebody
  drydock conversations tail -f 3f2a                what the agent does, as it does it
  drydock conversations send 3f2a "Use tabs."       say something; - reads it from standard input
  drydock conversations export 3f2a -o kept.tar --workspace
  drydock conversations list -q --state stopped | xargs drydock conversations delete --yes

exit status: 0 done, 1 some could not be deleted or stopped, 2 not possible as it was asked for, 3 no server was reached
"""
_COMPLETION = """
Print what a shell needs to complete commands, options, their values and ids of conversations:

  source <(drydock completion bash)                                       in ~/.bashrc
  source <(drydock completion zsh)                                        in ~/.zshrc, behind compinit
  drydock completion fish > ~/.config/fish/completions/drydock.fish       once
"""
_RUN = """
Have an agent do one task, and show what it does. At a running server it works in a conversation of that server; without
one it works in this process, with its commands in a sandbox of this computer. Either way the conversation is kept.
"""
RUN_EXAMPLES = """
examples:
  drydock run --workspace . "Make the failing test pass."        in this folder, without a server
  drydock run --repo https://github.com/ann/boats "Update the dependencies, and open a pull request."
  drydock run --local --model demo/tour "Show me around."        a trial without any key
  cat task.md | drydock run - --budget 2 --timeout 1800 --json   in a script: one JSON object a line
  drydock run --continue 3f2a "And now the documentation."       another task in the same conversation

where:
  the server of --url or DRYDOCK_URL; else the one at http://127.0.0.1:3000, if one answers there; else here, with the
  model and the other settings that `drydock serve` would have (LLM_MODEL, LLM_API_KEY, --config FILE)

output:
  what the agent does goes to standard error, its last word to standard output; docs/command-line.md has the lines of
  --json, and how to go on from each end

exit status:
  0 finished                            6 the agent gave up
  1 the agent failed                    7 the budget or the number of steps is used up
  2 not possible as it was asked for    8 somebody else has stopped it
  3 no server, sandbox or model         124 the time limit is over
  4 the agent waits for an answer       130 Ctrl-C (the first stops the agent, the second leaves at once)
  5 it waits for confirmation           141 nobody reads standard output any more
"""
EXAMPLES: Final = {
    "": """
examples:
  drydock doctor                                      what works here, and what to do about the rest
  drydock serve --port 8080                           the server; options alone mean it, too
  drydock run --workspace . "Make the test pass."     a task, here or at a server
  drydock conversations tail -f 3f2a                  what an agent does
  drydock COMMAND --help                              options and examples of a command

exit status: 0 done, 1 it went wrong, 2 not possible as it was asked for; others where a command's help names them
""",
    "run": RUN_EXAMPLES,
    "conversations": CONVERSATION_EXAMPLES,
    "serve": """
examples:
  drydock serve                                       at http://127.0.0.1:3000, with everything in ./data
  drydock serve --data-dir /srv/drydock --config /etc/drydock.toml
  drydock serve --sandbox docker --host 0.0.0.0       for others, too: set DRYDOCK_TOKEN, or token = "auto"
""",
    "doctor": """
examples:
  drydock doctor                                      as `drydock serve` would be started here
  drydock doctor --config /etc/drydock.toml

exit status: 0 everything that is needed is there, 1 something is to be mended
""",
    "backup": """
examples:
  drydock backup monday.drydock --data-dir /srv/drydock
  drydock backup /backups --keep 7 --quiet            nightly: the newest seven stay
""",
    "users": """
examples:
  drydock users link                                  the link by which the first administrator signs up
  drydock users add ann --role administrator          prints a link, by which she chooses a password
  drydock users token ann --scopes read --days 30     for a program; it is shown once
  drydock users disable bob                           nothing lets him in any more, within a second or two
""",
    "restore": """
examples:
  drydock restore monday.drydock --data-dir /srv/drydock
  drydock restore monday.drydock --data-dir /srv/drydock --take-over
""",
    "export": """
examples:
  drydock export 3f2a5d6e7c8b4a1f9e0d2c3b4a5f6e7d kept.tar
  drydock export 3f2a5d6e7c8b4a1f9e0d2c3b4a5f6e7d -o log.json
""",
    "import": """
examples:
  drydock import kept.tar                             prints the id of the new conversation
  drydock import log.json --replay
""",
    "plugins": """
examples:
  drydock plugins install https://github.com/ann/tools.git --ref v2
  drydock plugins list
  drydock plugins update tools
""",
    "audit": """
examples:
  drydock audit list --since 2026-11-01 --action secret
  drydock audit verify                                whole? the first place where it is not, and why
  drydock audit verify monday.drydock                 of a backup; also of what `export` wrote
  drydock audit export -o audit.jsonl                 a line of JSON for each, and the signed end

exit status: 0 done, or whole; 1 it is not what was written; 2 not possible as it was asked for
""",
    "completion": "",
}
"""What stands below the options of a command, and ("") of all."""

_AUDIT = """
What was done by whom at a server, which may run meanwhile: sign-ins, settings, secrets, approvals, deletions, exports
and what operators do. Run it on the server's machine, as its user, with its settings.
"""
_RESTORE = """
Make a data folder of a backup, which is checked first. Without --take-over the restored server is one of its own,
beside which the first one may go on.
"""
_IMAGE = """
Build a sandbox image in the Docker engine, unless it is there and up to date: `base` is the default one, `browser` the
same with a browser. Sandboxes made from now on are made from it.
"""
_BUNDLE = """
Write one file with this installation of Drydock, its libraries and page, and sandbox images of the Docker engine: for a
machine without a network, where `python3 FILE FOLDER` installs it. That has to have the same Python and processor.
"""
_DOCS = """
Print a page of the documentation, or the list of them: the pages that messages and help point to, such as
docs/configuration.md. The code of an error, such as disk_full, is a name, too: what it means, and what to do.
"""
_ACP = """
Talk the Agent Client Protocol over standard input and output: an editor starts this. Behind it are conversations of a
running server (`drydock serve`). docs/doors.md says how to set it up.
"""


def _add_recordings(importing: argparse.ArgumentParser, exporting: argparse.ArgumentParser) -> None:
    _add_import(importing)
    exporting.add_argument("conversation", metavar="ID", help="id of the conversation")
    exporting.add_argument("file", nargs="?", type=Path, help="write all of it here, with its workspace; - for output")
    exporting.add_argument(
        "-o", "--output", type=Path, default=Path("-"), help="write a trajectory here (default: standard output)"
    )
    for command in (importing, exporting):
        _add_server(command)


def _add_import(importing: argparse.ArgumentParser) -> None:
    importing.add_argument("file", type=Path, help="the file; - for standard input")
    importing.add_argument("--title", help="title of the conversation (default: from its first message)")
    importing.add_argument("--replay", action="store_true", help="do again what was recorded")


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


def _add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument("task", nargs="?", help="what is to be done; - reads it from standard input")
    command.add_argument("-f", "--file", type=Path, help="read the task from a file")
    command.add_argument(
        "--continue", dest="continued", metavar="ID", help="go on with a conversation (the beginning of its id will do)"
    )
    about = command.add_argument_group("what it works with")
    about.add_argument("--repo", metavar="URL", help="clone this repository first: https://… or owner/name")
    about.add_argument("--branch", help="this branch of it (default: the repository's own)")
    about.add_argument("--image", help="the image of its container (default: the server's; drydock/sandbox:base here)")
    about.add_argument("--workspace", type=Path, metavar="DIR", help="work in this folder, without a server")
    about.add_argument("--model", help="its model (default: the settings'); at a server one of its named models")
    limits = command.add_argument_group("how far it goes")
    limits.add_argument("--budget", type=_positive, metavar="USD", help="what it may cost (default: the settings')")
    limits.add_argument("--max-steps", type=_count, metavar="N", help="answers of its model (default: the settings')")
    limits.add_argument("--timeout", type=_positive, metavar="SECONDS", help="stop it after that (default: never)")
    limits.add_argument(
        "--confirm", action="store_true", help="ask before actions (default: as the settings say); see exit status 5"
    )
    shown = command.add_argument_group("what is shown and kept")
    shown.add_argument("--json", action="store_true", help="one JSON object a line on standard output")
    shown.add_argument("-q", "--quiet", action="store_true", help="print the agent's last word only")
    shown.add_argument("--full", action="store_true", help="results whole (default: the ends of long ones)")
    shown.add_argument("-o", "--output", type=Path, metavar="FILE", help="write its files into a ZIP file in the end")
    shown.add_argument("--rm", action="store_true", help="delete conversation and files when it has finished")
    where = command.add_argument_group("where")
    _add_server(where)
    where.add_argument("--local", action="store_true", help="without a server, also where one runs")
    where.add_argument(
        "--sandbox", choices=["auto", "docker", "local", "unconfined"], help="without a server: where commands run"
    )
    where.add_argument("--config", type=Path, help="without a server: TOML file with settings")


STATES: Final = ("running", "waiting", "finished", "failed", "stopped")
"""What `conversations list --state` tells apart."""


def _add_conversations(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    made: dict[str, argparse.ArgumentParser] = {}
    for name, text in (
        ("list", "list them, newest first"),
        ("show", "show one, with what was said and done in it"),
        ("tail", "show the end of one, and what comes"),
        ("send", "say something to the agent of one"),
        ("stop", "end the work and the sandbox of some; their logs and files stay"),
        ("export", "write one into a file: what was said and done, or everything"),
        ("import", "make one of an exported one"),
        ("delete", "delete some, with their files"),
    ):
        made[name] = actions.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.")
    for name in ("show", "tail", "send", "export"):
        made[name].add_argument("conversation", metavar="ID", help="the conversation, or the beginning of its id")
    for name in ("stop", "delete"):
        made[name].add_argument("conversation", metavar="ID", nargs="+", help="the conversations")
    listing = made["list"]
    listing.add_argument("search", nargs="?", metavar="TEXT", help="only those with this in title, repository or id")
    listing.add_argument("--state", choices=STATES, help="only those whose agent works, waits for somebody, …")
    listing.add_argument("--limit", type=_count, default=20, metavar="N", help="at most so many (default: 20)")
    listing.add_argument("-q", "--quiet", action="store_true", help="print ids only")
    for name in ("list", "show", "tail"):
        made[name].add_argument("--json", action="store_true", help="one JSON object a line")
    for name in ("show", "tail"):
        made[name].add_argument("--full", action="store_true", help="results whole (default: the ends of long ones)")
    made["show"].add_argument("-n", "--lines", type=_count, metavar="N", help="the last N events (default: all)")
    made["tail"].add_argument(
        "-n", "--lines", type=_count, default=20, metavar="N", help="begin with the last N events (default: 20)"
    )
    made["tail"].add_argument("--since", type=int, metavar="EVENT", help="begin behind the event of this id instead")
    made["tail"].add_argument("-f", "--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    made["send"].add_argument("text", help="what to say; - reads it from standard input")
    made["export"].add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write it here (default: standard output)"
    )
    made["export"].add_argument(
        "--workspace",
        action="store_true",
        help="everything, with the files of its workspace (default: the log as JSON)",
    )
    _add_import(made["import"])
    made["delete"].add_argument("-y", "--yes", action="store_true", help="do not ask (needed without a terminal)")
    for one in made.values():
        _add_server(one)


def _add_audit(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    made: dict[str, argparse.ArgumentParser] = {}
    for name, text in (
        ("list", "list records, the newest last"),
        ("verify", "see whether the log, or one in a file, is what was written"),
        ("export", "write records as lines of JSON, with the signed end of the log"),
        ("prune", "remove old records; from there on the log is verified as before"),
        ("key", "print the public key that the server signs with"),
    ):
        made[name] = actions.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.")
    for name in ("list", "export"):
        made[name].add_argument("--actor", metavar="USER", help='only what the user of this id did ("": the only one)')
        made[name].add_argument(
            "--action", dest="action_of", metavar="ACTION", help="only this: secret.created, or secret for all of it"
        )
        made[name].add_argument("--since", type=_moment, metavar="TIME", help="only from then on: 2026-11-01T10:00")
        made[name].add_argument("--until", type=_moment, metavar="TIME", help="only before then")
    made["list"].add_argument(
        "-n", "--limit", type=_count, default=50, metavar="N", help="the last N of them (default: 50)"
    )
    made["export"].add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write them here (default: standard output)"
    )
    made["verify"].add_argument(
        "file", nargs="?", type=Path, help="an exported log, a backup or a database (default: the server's own log)"
    )
    made["verify"].add_argument(
        "--head", metavar="NUMBER:HASH", help="an end of the log that was noted elsewhere, and must be in it"
    )
    made["verify"].add_argument(
        "--key", type=Path, metavar="PEM", help="the public key of the server that a file is of (default: this one's)"
    )
    made["prune"].add_argument(
        "--before", type=_moment, required=True, metavar="TIME", help="remove what is older: 2026-01-01"
    )
    made["prune"].add_argument("-y", "--yes", action="store_true", help="do not ask (needed without a terminal)")
    for one in made.values():
        _add_data(one)


def _moment(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-11-01 or 2026-11-01T10:00Z") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _count(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def _add_server(command: argparse._ActionsContainer) -> None:
    command.add_argument("--url", help="the server (default: DRYDOCK_URL, or else http://127.0.0.1:3000)")
    command.add_argument(
        "--key-file", type=Path, help="file with the server's access token (default: the value of DRYDOCK_API_KEY)"
    )


def _add_data(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data-dir", type=Path, help="folder of everything that is kept (default: ./data)")
    command.add_argument("--config", type=Path, help="TOML file with settings; `drydock docs configuration` lists them")


ROLES: Final = ("administrator", "user", "viewer")
"""What a user can be."""
SCOPES: Final = ("read", "write", "admin")
"""What a token can be good for."""


def _add_users(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    made: dict[str, argparse.ArgumentParser] = {}
    for name, text in (
        ("list", "list them"),
        ("add", "add one, and print the link by which they choose a password"),
        ("invite", "print a link by which somebody becomes a user"),
        ("link", "print a link by which somebody becomes the first administrator"),
        ("reset", "print a link by which a user chooses another password"),
        ("disable", "let one in no more; what they have stays"),
        ("enable", "let one in again"),
        ("role", "make one administrator, user or viewer"),
        ("token", "make an access token of one, and print it"),
        ("revoke", "have a token of one count no more"),
    ):
        made[name] = actions.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.")
        if name not in ("list", "invite", "link"):
            made[name].add_argument("name", metavar="NAME", help="the user's name, or address")
    made["add"].add_argument("--email", help="the user's address")
    made["add"].add_argument(
        "--password", action="store_true", help="ask for the password, or read it as a line of input"
    )
    for name in ("add", "invite"):
        made[name].add_argument("--role", choices=ROLES, default="user", help="what the user is (default: user)")
    made["role"].add_argument("role", choices=ROLES, help="what the user is from now on")
    made["token"].add_argument(
        "--scopes", choices=SCOPES, nargs="+", default=["read", "write"], help="(default: read write)"
    )
    made["token"].add_argument(
        "--days", type=_count, metavar="N", help="for how long it counts (default: until it is revoked)"
    )
    for name in ("token", "revoke"):
        made[name].add_argument(
            "--label", default="command line", metavar="TEXT", help="its name (default: command line)"
        )
    for one in made.values():
        _add_data(one)


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


def parser() -> argparse.ArgumentParser:
    """The parser of ``drydock``."""
    parser = argparse.ArgumentParser(prog="drydock", description="A self-hosted agent server.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (("serve", "run the server"), ("doctor", "say what works here, and what to do about the rest")):
        command = commands.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.")
        _add_data(command)
        command.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
        command.add_argument("--port", type=int, help="port to listen on, 0 for any free one (default: 3000)")
        command.add_argument(
            "--sandbox",
            choices=["auto", "docker", "local", "kubernetes", "unconfined"],
            help="where commands run (default: auto: Docker where an engine answers, else local)",
        )
        command.add_argument("--page", type=Path, help="folder of a built page to serve in place of our own")
        command.add_argument(
            "--otel",
            action="store_true",
            default=None,
            help="send traces by OTLP over HTTP, as OpenTelemetry's variables OTEL_… say",
        )
    _add_data(commands.add_parser("rotate-key", help="encrypt all secrets with a new key", description=_ROTATE))
    _add_users(commands.add_parser("users", help="say who uses a server with accounts", description=_USERS))
    moving = commands.add_parser(
        "migrate-database", help="move everything from SQLite to PostgreSQL", description=_MIGRATE_DATABASE
    )
    moving.add_argument(
        "--to",
        metavar="URL",
        help="the PostgreSQL to move to, postgresql://user:password@host/name (default: database_url, where a password"
        " is not seen by others of this machine)",
    )
    _add_data(moving)
    _add_backup(
        commands.add_parser("backup", help="write everything that a server keeps into a file", description=_BACKUP),
        commands.add_parser("restore", help="make a data folder of a backup", description=_RESTORE),
    )
    _add_audit(commands.add_parser("audit", help="see, check and keep what was done by whom", description=_AUDIT))
    _add_server(commands.add_parser("acp", help="talk to an editor over standard input and output", description=_ACP))
    _add_server(commands.add_parser("mcp", help="give an MCP client tools for conversations", description=_MCP))
    _add_recordings(
        commands.add_parser("import", help="make a conversation of a recorded one", description=_IMPORT),
        commands.add_parser("export", help="write a conversation into a file", description=_EXPORT),
    )
    _add_run(
        commands.add_parser(
            "run",
            help="have an agent do one task, at a server or without one",
            description=_RUN,
        )
    )
    _add_conversations(
        commands.add_parser(
            "conversations",
            help="list, show, follow, talk to and delete conversations",
            description=_CONVERSATIONS,
        )
    )
    _add_plugins(commands.add_parser("plugins", help="install, list, update and remove plugins", description=_PLUGINS))
    image = commands.add_parser("image", help="build the image that sandboxes are made from", description=_IMAGE)
    image.add_argument("kind", nargs="?", choices=["base", "browser"], default="base", help="(default: base)")
    image.add_argument("--force", action="store_true", help="build it anew also where it is up to date")
    image.add_argument("--docker-host", metavar="NAME", help="on this one of docker_hosts (default: DOCKER_HOST)")
    image.add_argument("--config", type=Path, help="TOML file with docker_hosts, where --docker-host names one")
    bundle = commands.add_parser("bundle", help="write one file for machines without a network", description=_BUNDLE)
    bundle.add_argument("file", type=Path, help="the file to be made, such as drydock.pyz")
    image_help = "an image to put in (default: drydock/sandbox:base); may be repeated"
    bundle.add_argument("--image", action="append", dest="images", metavar="IMAGE", help=image_help)
    usual = ("drydock/sandbox:base",)
    bundle.add_argument("--no-images", action="store_const", const=(), default=usual, dest="usual", help="put none in")
    bundle.add_argument("--force", action="store_true", dest="replace", help="replace the file if it exists")
    docs = commands.add_parser("docs", help="print a page of the documentation", description=_DOCS)
    docs.add_argument("page", nargs="?", help="such as configuration, docs/configuration.md, or disk_full")
    completing = commands.add_parser(
        "completion",
        help="print what a shell needs to complete commands",
        description=_COMPLETION,
    )
    completing.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")
    commands.add_parser("version", help="print the version")
    for name, examples in EXAMPLES.items():
        command = parser if not name else commands.choices[name]
        command.epilog, command.formatter_class = examples, argparse.RawDescriptionHelpFormatter
    return parser
