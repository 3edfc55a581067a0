"""A compose project of the repository's own file, under a name of its own.

``python -m tests.integration.compose.compose_project`` builds its images ahead of the tests.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
BUILD_SECONDS = 1200
COMMAND_SECONDS = 180
READY_SECONDS = 120
TAG = "test"
LOCK = ROOT / "build" / "compose-build.lock"


def compose_command() -> list[str]:
    """Compose v2 where it is installed, otherwise the older program."""
    has_plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    if has_plugin:
        return ["docker", "compose"]
    program = shutil.which("docker-compose")
    assert program is not None, "Docker Compose is missing; get it with: scripts/real-parts compose"
    return [program]


def free_port() -> int:
    """A port of loopback that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ComposeProject:
    """Runs compose commands and asks the server over HTTP; `cluster`: three of them, through their proxy.

    `tls`, for those: the files of the proxy's certificate and key, and of who vouches for it.
    """

    def __init__(self, *, cluster: bool = False, tls: tuple[Path, Path, Path] | None = None) -> None:
        self.tls = tls
        self._profile = ("--profile", "cluster") if cluster else ()
        self._wanted: tuple[str, ...] = ("proxy",) if cluster else ()
        self._first = "server-1" if cluster else "server"
        self.name = f"drydocktest{secrets.token_hex(4)}"
        self.port = free_port()
        self.token = ""
        self._command = compose_command()

    def run(self, *arguments: str, limit: float = COMMAND_SECONDS) -> str:
        """Run a compose command; its output, which also is the message when it fails."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRYDOCK_", "LLM_"))}
        done = subprocess.run(
            [*self._command, "-p", self.name, "-f", str(ROOT / "docker-compose.yml"), *self._profile, *arguments],
            cwd=ROOT,
            env={**kept, "PORT": str(self.port), "TAG": TAG, **self._tls_variables()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
        assert done.returncode == 0, (
            f"compose {' '.join(arguments)} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
        return done.stdout

    def _tls_variables(self) -> dict[str, str]:
        return {} if self.tls is None else {"TLS_CERTIFICATE": str(self.tls[0]), "TLS_KEY": str(self.tls[1])}

    def container(self, service: str) -> str:
        """Id of a service's container."""
        ours = {"project": self.name, "service": service, "oneoff": "False"}
        filters = [
            word for name, value in ours.items() for word in ("--filter", f"label=com.docker.compose.{name}={value}")
        ]
        return self._docker("ps", "--all", "--quiet", "--no-trunc", *filters)

    def execute(self, service: str, *command: str) -> str:
        """Run a command in a service's container; what it printed."""
        return self._docker("exec", self.container(service), *command)

    def _docker(self, *words: str) -> str:
        # Ten times as fast as Compose, which reads all of its file for each word.
        done = subprocess.run(["docker", *words], check=True, capture_output=True, text=True, timeout=COMMAND_SECONDS)
        return done.stdout.strip()

    def build(self) -> None:
        """Build all images; where somebody else is at it already, after them, with what they made at hand."""
        LOCK.parent.mkdir(exist_ok=True)
        with LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run(
                [ROOT / "scripts" / "base-image", "debian:bookworm-slim", "node:20-bookworm-slim"],
                check=True,
                capture_output=True,
                timeout=BUILD_SECONDS,
            )
            self.run("build", limit=BUILD_SECONDS)

    def start(self) -> None:
        """Start everything, and wait until the server answers and has said its address."""
        self.run("up", "-d", "--no-build", *self._wanted)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait for the server's answer and for the address with its token in the log."""
        end = time.monotonic() + READY_SECONDS
        reason = ""
        while time.monotonic() < end:
            try:
                self.ask("GET", "/health")
            except OSError as error:
                reason = str(error)
            else:
                found = re.findall(rf"http://127\.0\.0\.1:{self.port}/#token=(\S+)", self.log())
                if found:
                    self.token = found[-1]
                    return
                reason = "its address is not in the log"
            time.sleep(0.2)
        raise AssertionError(f"the server is not ready ({reason}):\n{self.log()[-4000:]}")

    def log(self) -> str:
        """What the server has written, or the first of several."""
        return self.run("logs", "--no-color", self._first)

    def events(self, conversation_id: str) -> list[dict[str, Any]]:
        """The whole log of a conversation."""
        events: list[dict[str, Any]] = []
        while True:
            path = f"/api/conversations/{conversation_id}/events?limit=100&start_id={len(events)}"
            page = self.ask("GET", path, token=self.token)
            events += page["events"]
            if not page["has_more"]:
                return events

    def ask(self, method: str, path: str, body: object = None, *, token: str | None = None) -> Any:
        """An HTTP request to the server; the JSON of its answer."""
        headers = {"Content-Type": "application/json"}
        if token:
            headers["X-Session-API-Key"] = token
        request = urllib.request.Request(
            f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}{path}",
            method=method,
            headers=headers,
            data=None if body is None else json.dumps(body).encode(),
        )
        trusted = None if self.tls is None else ssl.create_default_context(cafile=self.tls[2])
        with urllib.request.urlopen(request, timeout=90, context=trusted) as answer:
            content = answer.read()
        try:
            return json.loads(content)
        except ValueError:
            return content.decode()

    def status_of(self, path: str, *, token: str | None = None) -> int:
        """The status of a GET."""
        try:
            self.ask("GET", path, token=token)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        return 200

    def remove(self) -> None:
        """Take the project down with its volumes."""
        self.run("down", "--volumes", "--remove-orphans", "--timeout", "10")


if __name__ == "__main__":
    ComposeProject(cluster=True).build()
