"""``drydock run``: has an agent do one task, shows what it does, and says by the exit status what became of it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from agent_core.errors import DrydockError
from drydock_client import RESTING, AgentState, ClientError, DrydockClient, KeyRefusedError, RefusedError, State
from server.cli.printing import Printer, is_terminal, read_text
from server.cli.run_outcome import ExitStatus, RunOutcome, outcome_of
from server.cli.run_progress import RunProgress
from server.cli.run_work import ServerWork, Task, Work, kept_run
from server.settings.running_server import URL_VARIABLE, client_of, error_of

STOP_SECONDS: Final = 20.0
"""How long an agent that is to stop may take until this process leaves it."""
PROBE_SECONDS: Final = 2.0
SIGNALS: Final = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
OPTIONS: Final = {
    "initial_user_msg": "the task",
    "repository": "--repo",
    "selected_branch": "--branch",
    "sandbox.image": "--image",
    "llm_profile": "--model",
    "max_budget_per_task": "--budget",
    "max_iterations": "--max-steps",
}
"""The options behind fields that a server may refuse."""
REFUSED: Final = "The user refuses this. Do it another way, or finish and say why it cannot be done."
QUESTION: Final = "Allow? [y]es, [n]o, [a]lways, or what to do instead: "


def run(options: Mapping[str, Any], environment: Mapping[str, str]) -> int:
    """Have the task done; returns the exit status (`ExitStatus`, or 128 and a signal's number).

    Raises `DrydockError` where the task cannot begin, and `BrokenPipeError` where nobody reads standard output.
    """
    task, output = _task(options), _output(options["output"])
    printer = Printer()
    progress = RunProgress(printer, as_json=options["json"], quiet=options["quiet"], full=options["full"])
    logging.basicConfig(level=logging.ERROR, format="drydock: %(message)s", stream=sys.stderr)
    return asyncio.run(_run(task, output, options, environment, progress))


async def _run(
    task: Task,
    output: Path | None,
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    progress: RunProgress,
) -> int:
    work: Work | None = None
    try:
        work = await _work(task, options, environment)
        may_ask = not (options["json"] or options["quiet"]) and is_terminal(sys.stderr)
        session = RunSession(work, progress, may_ask=may_ask, limit_seconds=options["timeout"])
        outcome = await session.run()
        if output is not None:
            outcome = await _saved(work, output, outcome, progress)
        if options["rm"] and outcome.status == ExitStatus.FINISHED:
            await work.remove()
            progress.end(outcome, work.conversation_id, "The conversation is deleted.")
        else:
            is_asking = outcome.state == AgentState.AWAITING_USER_CONFIRMATION
            words = work.how_to_go_on(is_at_work=session.is_left, is_asking=is_asking)
            progress.end(outcome, work.conversation_id, words)
    except (ClientError, DrydockError) as error:
        problem = _problem(error) if isinstance(error, ClientError) else error
        if options["json"]:
            status = getattr(problem, "exit_status", ExitStatus.USAGE)
            progress.end(
                RunOutcome(status, reason=str(problem)), work.conversation_id if work is not None else None, ""
            )
        raise problem from error
    finally:
        await progress.close()
        if work is not None:
            await work.close()
    return int(outcome.status)


def _problem(error: ClientError) -> DrydockError:
    """What is wrong, by the name of the option that it is about."""
    option = OPTIONS.get(error.field) if isinstance(error, RefusedError) else None
    if option is None or not isinstance(error, RefusedError):
        return error_of(error)
    return DrydockError(f"{option}: {error.message.removeprefix(f'{error.field}: ').removeprefix('Value error, ')}")


async def _saved(work: Work, output: Path, outcome: RunOutcome, progress: RunProgress) -> RunOutcome:
    try:
        await work.save_files(output)
    except (ClientError, DrydockError, OSError) as error:
        problem = f"{output} was not written: {error}"
        progress.complain(problem)
        return RunOutcome(outcome.status or ExitStatus.FAILED, outcome.state, problem)
    progress.tell(f"The files of its workspace are in {output}")
    return outcome


async def _work(task: Task, options: Mapping[str, Any], environment: Mapping[str, str]) -> Work:
    """Where the task is done: here, if anything says so or there is no server, else at the server that is meant."""
    url, key_file = options["url"], options["key_file"]
    here = {name: options[name] for name in ("workspace", "sandbox", "config") if options[name] is not None}
    is_named = url is not None or key_file is not None or bool(environment.get(URL_VARIABLE))
    if url is not None and (here or options["local"]):
        what = next((f"--{name}" for name in here), "--local")
        raise DrydockError(f"{what} is for tasks without a server; leave it or --url out")
    is_here = task.continued is not None and url is None and kept_run(task.continued) is not None
    if not (here or options["local"] or is_here):
        client = client_of(url, key_file, environment)
        if is_named or await _answers(client):
            return ServerWork(client, task)
    # Loaded where it is needed: it takes a second, and the whole of the library.
    make: Callable[..., Work] = import_module("server.cli.run_here").LocalWork
    return make(
        task,
        folder=options["workspace"],
        sandbox=options["sandbox"],
        config=options["config"],
        environment=environment,
    )


async def _answers(client: DrydockClient) -> bool:
    """Whether a server is there, under the address that nobody has named."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            place = urlsplit(client.base_url)
            _, writer = await asyncio.open_connection(place.hostname, place.port)
            writer.close()
            async with client:
                await client.conversation_page(limit=1)
    except KeyRefusedError:
        return True  # whoever has no key is told so
    except (OSError, TimeoutError, ClientError):
        return False
    return True


def _task(options: Mapping[str, Any]) -> Task:
    text, file, continued = options["task"], options["file"], options["continued"]
    if text is not None and file is not None:
        raise DrydockError("a task and --file are two tasks; leave one of them out")
    if file is not None:
        try:
            text = read_text("-") if str(file) == "-" else file.read_text("utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise DrydockError(f"--file: {file} cannot be read: {reason}") from error
    if text is None and continued is None:
        raise DrydockError('say what is to be done: drydock run "task"; - reads it from standard input')
    if continued is not None:
        names = {"repo": "--repo", "branch": "--branch", "image": "--image", "workspace": "--workspace"}
        if chosen := [flag for name, flag in names.items() if options[name] is not None]:
            raise DrydockError(f"{chosen[0]} is chosen when a conversation begins; leave it out with --continue")
    if options["workspace"] is not None and not options["workspace"].expanduser().is_dir():
        raise DrydockError(f"--workspace: {options['workspace']} is no folder; make it first, if it is meant")
    if options["branch"] is not None and options["repo"] is None:
        raise DrydockError("--branch: say of which repository, with --repo")
    return Task(
        text="" if text is None else read_text(text, "the task"),
        repository=options["repo"],
        branch=options["branch"],
        image=options["image"],
        model=options["model"],
        budget=options["budget"],
        max_steps=options["max_steps"],
        confirm=options["confirm"],
        continued=continued,
    )


def _output(file: Path | None) -> Path | None:
    if file is not None and os.path.lexists(file):
        raise DrydockError(f"--output: {file} exists; name another file")
    if file is not None and not file.absolute().parent.is_dir():
        raise DrydockError(f"--output: there is no folder {file.absolute().parent}")
    return None if file is None else file.absolute()


class RunSession:
    """Follows a task to its end: shows it, asks what has to be asked, and ends it where somebody or a limit says so."""

    def __init__(self, work: Work, progress: RunProgress, *, may_ask: bool, limit_seconds: float | None) -> None:
        self._work = work
        self._progress = progress
        self._may_ask = may_ask
        self._limit = limit_seconds
        self._ending: int | None = None
        """The exit status of what has ended it from outside; None while nothing has."""
        self._begun, self._left = asyncio.Event(), asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._answer: asyncio.Future[str] | None = None

    @property
    def is_left(self) -> bool:
        """Whether the agent may work on, since this has not waited for it to stop."""
        return self._left.is_set()

    async def run(self) -> RunOutcome:
        """Begin it and wait for its end. Raises what keeps it from beginning, and `BrokenPipeError`."""
        loop = asyncio.get_running_loop()
        heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # as under nohup
        for number in heard:
            loop.add_signal_handler(number, self._signalled, number)
        if self._limit is not None:
            words = f"The time limit of {self._limit:g} s is over: stopping the agent."
            loop.call_later(self._limit, self._end, ExitStatus.TIME_OVER, words)
        following = asyncio.create_task(self._follow(), name="follow")
        leaving = asyncio.create_task(self._left.wait(), name="leave")
        try:
            await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                return RunOutcome(self._ending or ExitStatus.STOPPED, "", "it was left while its agent worked")
            outcome = following.result()
        except (BrokenPipeError, DrydockError):  # nobody can read it any more: nobody would pay for it either
            if self._begun.is_set():
                await self._stop()
            raise
        finally:
            for task in (following, leaving, self._stopping):
                if task is not None:
                    task.cancel()
            for number in heard:
                loop.remove_signal_handler(number)
        if self._ending is not None and outcome.status != ExitStatus.FINISHED:
            return RunOutcome(self._ending, outcome.state, outcome.reason)
        return outcome

    async def _follow(self) -> RunOutcome:
        words = await self._work.begin()
        self._begun.set()
        self._progress.begin(self._work.facts, words)
        try:
            async for item in self._work.items():
                self._progress.show(item)
                if not isinstance(item, State) or item.state not in RESTING or not await self._work.counts(item):
                    continue
                if item.state == AgentState.AWAITING_USER_CONFIRMATION and self._ending is None:
                    self._progress.ask_about(await self._work.pending())
                    if self._may_ask and await self._decided():
                        continue
                return outcome_of(item)
        except ClientError as error:
            problem = error_of(error)
            self._progress.complain(str(problem))
            self._left.set()
            return RunOutcome(getattr(problem, "exit_status", ExitStatus.FAILED), "", str(problem))
        return RunOutcome(ExitStatus.FAILED, "", "it has ended without a word")

    async def _decided(self) -> bool:
        """Ask on the terminal, and pass the answer on; False where there is none."""
        self._progress.rest()
        answer = await self._asked()
        match answer.casefold():
            case "":
                return False
            case "y" | "yes":
                await self._work.decide(accept=True)
            case "a" | "always":
                await self._work.decide(accept=True, remember=True)
            case "n" | "no":
                await self._work.decide(accept=False, feedback=REFUSED)
            case _:
                await self._work.decide(accept=False, feedback=answer)
        return True

    async def _asked(self) -> str:
        """A line from the terminal, empty where nobody can be asked or it was ended (Ctrl-D, Ctrl-C)."""
        try:
            terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            return ""
        loop = asyncio.get_running_loop()
        try:
            if os.tcgetpgrp(terminal) != os.getpgrp():  # in the background: to read would stop this process
                return ""
            while self._ending is None:
                os.write(terminal, QUESTION.encode())
                self._answer = loop.create_future()
                loop.add_reader(terminal, self._read_line, terminal)
                try:
                    line = await self._answer
                finally:
                    loop.remove_reader(terminal)
                if line.strip() or not line:
                    return line.strip()
            return ""
        finally:
            self._answer = None
            os.close(terminal)

    def _read_line(self, terminal: int) -> None:
        try:
            line = os.read(terminal, 65_536).decode("utf-8", "replace")
        except OSError:
            line = ""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(line)

    def _signalled(self, number: signal.Signals) -> None:
        again = "; once more leaves at once" if number == signal.SIGINT else ""
        self._end(128 + number, f"{SIGNALS[number]}: stopping the agent{again}.")

    def _end(self, status: int, words: str) -> None:
        """Stop the agent in order; the second time, or where it takes too long, leave it."""
        if self._ending is not None:
            if status != ExitStatus.TIME_OVER:
                self._left.set()
            return
        self._ending = int(status)
        self._progress.complain(words)
        if self._answer is not None and not self._answer.done():
            self._answer.set_result("")
            return
        self._stopping = asyncio.create_task(self._stop(), name="stop")
        asyncio.get_running_loop().call_later(STOP_SECONDS, self._left.set)

    async def _stop(self) -> None:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._begun.wait()  # what is being begun at a server would go on there
                await self._work.stop()
        except (ClientError, DrydockError, TimeoutError) as error:
            self._progress.complain(f"The agent could not be told to stop: {error}")
            self._left.set()
