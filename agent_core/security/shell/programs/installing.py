"""Programs that install packages, and publish them."""

from __future__ import annotations

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Call, Program, Programs
from agent_core.security.shell.marks import NETWORK, derived

INSTALLING = Programs()

_INSTALLERS = """
pip pip3 pipx uv uvx npm npx pnpm yarn apt apt-get aptitude dnf yum apk brew gem cargo go composer conda mamba poetry
snap flatpak pacman zypper dotnet nuget mvn gradle bundle
"""
_PUBLISHING = frozenset({"publish", "unpublish", "upload", "deploy", "yank"})


def _install(call: Call) -> str:
    operands = call.operands()
    verb = operands[0] if operands else ""
    if verb in _PUBLISHING or (call.name == "npm" and verb == "owner"):
        call.high("publish", f"{call.name} {verb} makes something public")
    if call.name in {"npx", "uvx"} and any(NETWORK in word for word in call.arguments):
        call.high("remote-code", "runs what comes from the network as a program")
    if call.name in {"apt", "apt-get", "dnf", "yum", "apk"} and verb in {
        "purge",
        "remove",
        "autoremove",
        "erase",
        "del",
    }:
        call.note(SecurityRisk.MEDIUM, "uninstall", "removes installed packages")
    if call.name in {"uv", "poetry", "bundle", "conda", "mamba"} and verb in {"run", "exec"}:
        call.run([word for word in call.arguments[call.arguments.index(verb) + 1 :] if word != "--"])
    return derived("")


for _name in _INSTALLERS.split():
    INSTALLING[_name] = Program(SecurityRisk.MEDIUM, _install)
INSTALLING["twine"] = Program(SecurityRisk.MEDIUM, _install)
