"""Programs that talk to other machines: what comes in is not to be run unseen, what goes out may be secret."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from agent_core.security.shell.call import Call, Programs, shown
from agent_core.security.shell.marks import NETWORK, SECRET, UNKNOWN

NETWORKING = Programs()

_CURL_VALUES = [
    "-o",
    "-d",
    "-F",
    "-T",
    "-H",
    "-X",
    "-u",
    "-A",
    "-b",
    "-c",
    "-e",
    "-m",
    "-w",
    "-x",
    "-K",
    "-E",
    "-r",
    "-y",
    "-Y",
    "-z",
    "-C",
    "--output",
    "--data",
    "--data-raw",
    "--data-binary",
    "--data-urlencode",
    "--data-ascii",
    "--json",
    "--form",
    "--form-string",
    "--upload-file",
    "--header",
    "--request",
    "--user",
    "--user-agent",
    "--cookie",
    "--cookie-jar",
    "--referer",
    "--max-time",
    "--connect-timeout",
    "--write-out",
    "--proxy",
    "--config",
    "--cert",
    "--key",
    "--cacert",
    "--retry",
    "--retry-delay",
    "--retry-max-time",
    "--resolve",
    "--range",
    "--output-dir",
    "--limit-rate",
    "--url",
    "--interface",
    "--unix-socket",
]
_CURL_DATA = [
    "-d",
    "--data",
    "--data-raw",
    "--data-binary",
    "--data-urlencode",
    "--data-ascii",
    "--json",
    "-F",
    "--form",
    "--form-string",
]
_WGET_VALUES = [
    "-O",
    "-o",
    "-P",
    "-t",
    "-T",
    "-U",
    "-i",
    "-a",
    "-e",
    "-w",
    "-Q",
    "-A",
    "-R",
    "-D",
    "--output-document",
    "--output-file",
    "--directory-prefix",
    "--tries",
    "--timeout",
    "--user-agent",
    "--header",
    "--post-data",
    "--post-file",
    "--body-data",
    "--body-file",
    "--method",
    "--user",
    "--password",
    "--input-file",
]
_LOCAL = re.compile(
    r"(?:[a-z]+://)?(?:[^/@]*@)?(?:localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0)(?=[:/?#]|\Z)", re.IGNORECASE
)
_CLUSTER = re.compile(r"-[A-Za-z#]*([oOdFTHXuK])(.*)\Z", re.DOTALL)
_REMOTE_PATH = re.compile(r"(?:[\w.-]+@)?[\w.\[\]-]+:(?!//)|(?:rsync|s3|gs|az|sftp|scp|ftp|https?)://")
_RUNS_PROGRAM = re.compile(r"(?i)\b(?:exec|system|shell)\b:?")


def _is_local(urls: Sequence[str]) -> bool:
    return bool(urls) and all(_LOCAL.match(url) for url in urls)


def _send(call: Call, text: str, urls: Sequence[str], *, is_file: bool) -> None:
    """Judge that `text` goes to these addresses."""
    if _is_local(urls):
        return
    if SECRET in text:
        call.high("exfiltration", "sends a secret over the network")
    elif is_file:
        call.high("exfiltration", "sends the content of a file over the network")
    elif UNKNOWN in text:
        call.unknown("exfiltration", "sends something that is not known over the network")


@NETWORKING.rule("curl")
def curl(call: Call) -> str:
    """Asks or tells a server."""
    arguments = _unclustered(call.arguments)
    plain = Call(call.name, arguments, call.stdin, call.shell, call.machine)
    urls = [*plain.operands(*_CURL_VALUES), *plain.option_values("--url")]
    for value in plain.option_values(*_CURL_DATA):
        _send_value(call, value, urls, is_form=False)
    for path in plain.option_values("-T", "--upload-file"):
        _send(call, call.stdin if path == "-" else call.read(path), urls, is_file=True)
    if any(UNKNOWN in url[:8] or SECRET in url for url in urls):
        _send(call, "".join(urls), urls, is_file=False)
    for path in plain.option_values("-K", "--config"):
        call.unknown("unknown-request", f"takes what to do from the file {shown(path)}")
    outputs = plain.option_values("-o", "--output")
    if "-O" in arguments or "--remote-name" in arguments or "--remote-name-all" in arguments:
        outputs += [_file_name(url) for url in urls]
    for path in outputs:
        if path != "-":
            call.write(path, NETWORK)
    return "" if outputs and "-" not in outputs else NETWORK


def _unclustered(arguments: Sequence[str]) -> list[str]:
    """Short options one by one: ``-fsSLo x`` becomes ``-fsSL -o x``."""
    out: list[str] = []
    for argument in arguments:
        found = _CLUSTER.match(argument) if not argument.startswith("--") else None
        if found is None:
            out.append(argument)
            continue
        head = argument[: found.start(1)]
        out.extend([head] if len(head) > 1 else [])
        out.append("-" + found[1])
        if found[2]:
            out.append("-" + found[2] if found[1] == "O" else found[2])
    return out


def _send_value(call: Call, value: str, urls: Sequence[str], *, is_form: bool) -> None:
    at = re.match(r"(?:[^=@<]*=)?[@<]([^;]*)", value)
    if at is None:
        _send(call, value, urls, is_file=False)
    elif at[1] == "-":
        _send(call, call.stdin, urls, is_file=UNKNOWN in call.stdin or not call.stdin)
    else:
        known = call.machine.files.get(at[1])
        _send(call, call.read(at[1]), urls, is_file=known is None or UNKNOWN in known)


def _file_name(url: str) -> str:
    return posixpath.basename(re.split(r"[?#]", url)[0].rstrip("/")) or "index.html"


@NETWORKING.rule("wget", "aria2c", "axel", "http", "https", "xh", "lynx", "w3m", "links")
def wget(call: Call) -> str:
    """Fetches files."""
    urls = call.operands(*_WGET_VALUES)
    for text in call.option_values("--post-data", "--body-data"):
        _send(call, text, urls, is_file=False)
    for path in call.option_values("--post-file", "--body-file"):
        _send(call, call.read(path), urls, is_file=True)
    if any(SECRET in url for url in urls):
        _send(call, "".join(urls), urls, is_file=False)
    outputs = call.option_values("--output-document")
    for position, argument in enumerate(call.arguments):
        if re.fullmatch(r"-[a-zA-Z]*O", argument):
            outputs.extend(call.arguments[position + 1 : position + 2])
        elif re.match(r"-[qcNSrv]*O.", argument):
            outputs.append(argument.partition("O")[2])
    if call.name not in {"wget", "aria2c", "axel"} or "-" in outputs:
        return NETWORK
    folder = "".join(call.option_values("-P", "--directory-prefix")[:1])
    for path in outputs or [_file_name(url) for url in urls]:
        call.write(posixpath.join(folder, path), NETWORK)
    return ""


@NETWORKING.rule(
    "nc", "ncat", "netcat", "socat", "telnet", "ftp", "tftp", "lftp", "mail", "mailx", "mutt", "sendmail", "msmtp"
)
def connect(call: Call) -> str:
    """Opens a connection."""
    if call.name in {"nc", "ncat", "netcat"} and call.has("-e", "-c", "--exec", "--sh-exec"):
        call.high("reverse-shell", "hands a program over to whoever is at the other end")
    if call.name == "socat" and any(_RUNS_PROGRAM.match(word) for word in call.arguments):
        call.high("reverse-shell", "hands a program over to whoever is at the other end")
    files = [word.partition(":")[2] for word in call.arguments if word.upper().startswith(("OPEN:", "FILE:"))]
    files += call.option_values("-a", "-A") if call.name in {"mail", "mailx", "mutt"} else []
    text = call.stdin + "".join(call.read(path) for path in files)
    hosts = [word for word in call.operands("-w", "-p", "-s", "-q", "-i") if not word.isdigit()]
    if text:
        _send(call, text, hosts, is_file=UNKNOWN in text)
    return NETWORK


@NETWORKING.rule("ssh", "mosh", "autossh", "sshpass")
def remote_shell(call: Call) -> str:
    """Runs a command on another machine."""
    operands = call.operands(
        *["-p", "-l", "-i", "-o", "-F", "-J", "-L", "-R", "-D", "-W", "-b", "-c", "-e", "-m", "-S", "-w"]
    )
    for option in call.option_values("-o"):
        key, _, command = option.partition("=")
        if key.lower() in {"proxycommand", "localcommand", "knownhostscommand"}:
            call.run_code(command)
    if call.stdin:
        _send(call, call.stdin, operands[:1], is_file=UNKNOWN in call.stdin)
    if len(operands) > 1:
        call.run_code(" ".join(operands[1:]), "")
    return NETWORK


@NETWORKING.rule("scp", "rsync", "sftp", "rclone", "s3cmd", "gsutil", "azcopy", "aws", "gcloud", "az", "mc")
def copy_files(call: Call) -> str:
    """Copies files from or to another machine."""
    for option in call.option_values("-e", "--rsh"):
        call.run_code(option)
    operands = call.operands(
        "-P", "-i", "-o", "-F", "-e", "-l", "--rsh", "--exclude", "--include", "--profile", "--region"
    )
    is_clouds = call.name not in {"scp", "rsync", "sftp"}
    if call.name == "rsync" and call.has("--delete", "--delete-after", "--delete-excluded", "--remove-source-files"):
        for path in operands[-1:]:
            if call.scope(path).name in {"SYSTEM", "HOME", "DEVICE"}:
                call.high("catastrophic-delete", f"deletes what is in {shown(path)} and not in the source")
    if is_clouds and {"rm", "rb", "delete", "purge", "deletefile", "terminate-instances", "delete-bucket"} & set(
        operands
    ):
        call.high("remote-delete", "deletes things in the cloud")
    if len(operands) > 1 and _REMOTE_PATH.match(operands[-1]) and not _is_local(operands[-1:]):
        call.high("exfiltration", f"copies files to {shown(operands[-1])}")
    elif any(_REMOTE_PATH.match(path) for path in operands[:-1]):
        call.write(operands[-1], NETWORK)
    return NETWORK


@NETWORKING.rule("dig", "nslookup", "host", "ping", "ping6", "traceroute", "whois", "nmap", "resolvectl")
def look_up(call: Call) -> str:
    """Asks about a name, which is a way of telling somebody something."""
    _send(call, "".join(call.arguments), [], is_file=False)
    return NETWORK
