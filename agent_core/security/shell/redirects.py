"""Where a command's input comes from and where its output goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Call, Machine, shown
from agent_core.security.shell.marks import NETWORK, SECRET, UNKNOWN, bounded, one_of
from agent_core.security.shell.paths import resolve
from agent_core.security.shell.state import Shell
from agent_core.security.shell.syntax import Redirect
from agent_core.security.shell.values import Values

_SOCKETS = ("/dev/tcp/", "/dev/udp/")
ERRORS = "/dev/fd/2"
_DOCUMENTS = frozenset({"<<", "<<-", "<<<"})
_STDIN = frozenset({"", "0"})
_STDOUT = frozenset({"", "1"})


def descriptor_file(descriptor: str) -> str:
    """The file that an open descriptor can be read from."""
    return f"/dev/fd/{descriptor}"


class Redirections:
    """The redirections of one command in one shell."""

    def __init__(self, machine: Machine, values: Values, shell: Shell) -> None:
        self._call = Call("redirection", [], "", shell, machine)
        self._values = values
        self._shell = shell
        self._errors_before = len(machine.files.get(ERRORS, ""))

    def input(self, redirects: Sequence[Redirect], stdin: str) -> str:
        """What the command reads: `stdin` unless it is redirected.

        What comes through another descriptor is the text of that descriptor's file (`descriptor_file`).
        """
        files = self._call.machine.files
        for redirect in redirects:
            self._call.stdin = stdin
            if redirect.operator in _DOCUMENTS:
                texts = self._values.texts(redirect.target, self._shell, stdin)
                text = one_of(texts)
                text += "\n" if redirect.operator == "<<<" else ""
            elif redirect.operator == "<&":
                sources = [path.rstrip("-") for path in self._paths(redirect, stdin)]
                text = one_of(files.get(descriptor_file(source), UNKNOWN) for source in sources if source)
            elif redirect.operator in {"<", "<>"}:
                paths = list(self._paths(redirect, stdin))
                text = one_of(NETWORK if path.startswith(_SOCKETS) else self._call.read(path) for path in paths)
            else:
                continue
            if redirect.descriptor in _STDIN:
                stdin = text
            else:
                files[descriptor_file(redirect.descriptor)] = text
        return stdin

    def output(self, redirects: Sequence[Redirect], printed: str) -> str:
        """What of `printed` is still printed; the rest is written to files."""
        left = printed
        has_errors = False
        printing = {"1"}  # the descriptors that lead to where the command printed at first
        for redirect in redirects:
            operator = redirect.operator
            if operator in _DOCUMENTS or operator in {"<", "<&"}:
                continue
            is_stdout = redirect.descriptor in _STDOUT or operator.startswith("&>")
            text = printed if is_stdout else UNKNOWN
            paths = list(self._paths(redirect, text))
            for path in paths:
                source = path.rstrip("-")
                if operator == ">&" and (source.isdigit() or path == "-"):
                    leads_there = self._leads_to_output(source, printing)
                    (printing.add if leads_there else printing.discard)(redirect.descriptor or "1")
                    if is_stdout:
                        left = printed if leads_there else self._to_errors(printed, source)
                    elif redirect.descriptor == "2":
                        has_errors = leads_there
                    continue
                if path.startswith(_SOCKETS):
                    self._send(path, text)
                else:
                    self._call.write(path, text, append=">>" in operator, is_certain=len(paths) == 1)
                if is_stdout and operator != "<>":
                    printing.discard("1")
                    resolved = resolve(path, self._shell.folder)
                    left = printed if resolved == "/dev/fd/1" else self._to_errors(printed, resolved[-1:])
                    if resolved == ERRORS and self._shell.prints_errors:
                        left = printed
        return self._with_errors(left) if has_errors else left

    def keep(self, redirects: Sequence[Redirect]) -> None:
        """What `exec` redirects stays so for the shell."""
        for redirect in redirects:
            if redirect.descriptor == "2" and redirect.operator == ">&":
                self._shell.prints_errors = "1" in self._paths(redirect, "")

    def _leads_to_output(self, descriptor: str, printing: set[str]) -> bool:
        if descriptor == "2" and self._shell.prints_errors:
            return True
        return descriptor in printing or (descriptor.isdigit() and descriptor not in {"0", "2"})

    def _to_errors(self, text: str, descriptor: str) -> str:
        if descriptor == "2" and text:
            files = self._call.machine.files
            files[ERRORS] = bounded(files.get(ERRORS, "") + text)
        return ""

    def _with_errors(self, left: str) -> str:
        """What is printed when the errors of the command are printed too, nobody knows in which order."""
        errors = self._call.machine.files.get(ERRORS, "")[self._errors_before :]
        return one_of([text for text in (left, errors) if text])

    def _send(self, path: str, text: str) -> None:
        if UNKNOWN in text or SECRET in text or NETWORK in text:
            self._call.high("exfiltration", f"sends output to the network address {shown(path)}")
        else:
            self._call.note(SecurityRisk.MEDIUM, "network", f"connects to {shown(path)}")

    def _paths(self, redirect: Redirect, stdin: str) -> Iterator[str]:
        for fields in self._values.alternatives(redirect.target, self._shell, stdin):
            yield " ".join(fields)
