"""Notices to the model beside a command's output."""

from __future__ import annotations

RESET = "The terminal was reset: a new shell starts, its variables, functions and background jobs are gone."
RESET_MEANWHILE = "The terminal was reset while this command was running; the command was killed."
NOT_BEGUN = "The command was cancelled before it began."
FRESH_ENDED = "The shell of its own that it ran in has ended, and everything that it had started."
STILL_RUNNING = (
    "The command was NOT executed: the previous command is still running in this terminal. Wait for it with an empty "
    "command, give it input with is_input (text, or a key such as C-c, C-z, C-d), or reset the terminal."
)
LITERAL = (
    "The command was NOT executed: it looks like a Python or JSON value and not like a shell command. Write data to a "
    "file, or hand it to a program through a heredoc."
)
CONTINUED = "[Below is the output of the previous command.]\n"
_OPTIONS = (
    "It is still running in this terminal: send an empty command to wait for more output, input with is_input, or a "
    "key with is_input (C-c to interrupt it, C-z to suspend it, C-d to end its input), or give the next command that "
    "needs long a timeout."
)
NOTHING_TO_WAIT_FOR = "There is no previous running command to retrieve logs from."
NOTHING_TO_INTERACT_WITH = "There is no previous running command to interact with: the input was not sent."
FROM_BACKGROUND = "The output shown was printed by background jobs since the last command."
INPUT_SENT = "The input was sent to the running command, for which another request is waiting."
INPUT_TAKEN = "The input was sent to the running command, which goes on."
ALREADY_WAITED_FOR = "The command is still running, and another request is waiting for its output and its end."
INPUT_NOT_SENT = "The input was not sent."
INPUT_NOT_READ = (
    "The input was not sent: the command has not read what it was sent before, or its terminal is set to take no line "
    "that is so long."
)
REPLACED = "The shell was replaced by a program (exec); when that ends, the next command gets a new shell."
SOFT_LIMIT = "The command has no new output after {:g} seconds. " + _OPTIONS
HARD_LIMIT = "The command timed out after {:g} seconds. " + _OPTIONS
BACKGROUND_OUTPUT = "Since the last command, background jobs have printed:\n"
SHELL_LOST = (
    "The shell {}. The next command gets a new one, in {}, with the old one's variables and functions where they could "
    "be kept; background jobs are no longer under its control."
)


def ended_meanwhile(status: int, output: str) -> str:
    """How the previous command ended, whose result nobody had asked for."""
    text = f"The previous command has ended meanwhile, with exit code {status}."
    return f"{text} Its last output:\n{output}" if output.strip() else text
