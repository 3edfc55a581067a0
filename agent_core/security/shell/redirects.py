"""Where a command's input comes from and where its output goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Call, Machine, shown
from agent_core.security.shell.marks import NETWORK, SECRET, UNKNOWN
from agent_core.security.shell.state import Shell
from agent_core.security.shell.syntax import Redirect
from agent_core.security.shell.values import Values

_SOCKETS = ("/dev/tcp/", "/dev/udp/")
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

    def input(self, redirects: Sequence[Redirect], stdin: str) -> str:
        """What the command reads: `stdin` unless it is redirected.

        What comes through another descriptor is the text of that descriptor's file (`descriptor_file`).
        """
        files = self._call.machine.files
        for redirect in redirects:
            self._call.stdin = stdin
            if redirect.operator in _DOCUMENTS:
                texts = self._values.texts(redirect.target, self._shell, stdin)
                text = texts[0] if len(texts) == 1 else "\n".join(texts)
                text += "\n" if redirect.operator == "<<<" else ""
            elif redirect.operator == "<&":
                sources = [path.rstrip("-") for path in self._paths(redirect, stdin)]
                text = "\n".join(files.get(descriptor_file(source), UNKNOWN) for source in sources if source)
            elif redirect.operator in {"<", "<>"}:
                paths = list(self._paths(redirect, stdin))
                text = "\n".join(NETWORK if path.startswith(_SOCKETS) else self._call.read(path) for path in paths)
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
        printing = {"1"}  # the descriptors that lead to where the command printed at first
        for redirect in redirects:
            operator = redirect.operator
            if operator in _DOCUMENTS or operator in {"<", "<&"}:
                continue
            is_stdout = redirect.descriptor in _STDOUT or operator.startswith("&>")
            text = printed if is_stdout else UNKNOWN
            for path in self._paths(redirect, text):
                source = path.rstrip("-")
                if operator == ">&" and (source.isdigit() or path == "-"):
                    leads_there = source in printing or (source.isdigit() and source not in {"0", "2"})
                    (printing.add if leads_there else printing.discard)(redirect.descriptor or "1")
                    if is_stdout:
                        left = printed if leads_there else ""
                    continue
                if path.startswith(_SOCKETS):
                    self._send(path, text)
                else:
                    self._call.write(path, text, append=">>" in operator)
                if is_stdout and operator != "<>":
                    printing.discard("1")
                    left = printed if path in {"/dev/stdout", "/dev/fd/1"} else ""
        return left

    def _send(self, path: str, text: str) -> None:
        if UNKNOWN in text or SECRET in text or NETWORK in text:
            self._call.high("exfiltration", f"sends output to the network address {shown(path)}")
        else:
            self._call.note(SecurityRisk.MEDIUM, "network", f"connects to {shown(path)}")

    def _paths(self, redirect: Redirect, stdin: str) -> Iterator[str]:
        for fields in self._values.alternatives(redirect.target, self._shell, stdin):
            yield " ".join(fields)
