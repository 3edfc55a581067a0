"""A real git server over HTTP (git's own http-backend), which plays a provider with private repositories."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TOKEN = "tok-3f9a1c77d2e84b60"


class GitServer:
    """Serves the bare repositories in a folder; those of `ann/private` want the token, and `ann/slow` never answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.passwords: list[str] = []
        self.requests: Counter[str] = Counter()
        self.released = threading.Event()
        self.asked = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def do_POST(self) -> None:
                server.answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                return

        self._http = ThreadingHTTPServer(("0.0.0.0", 0), Handler)  # noqa: S104 - sandboxes are on other networks
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{own_address()}:{self._http.server_address[1]}"

    def close(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def publish(self, name: str, files: Mapping[str, str]) -> str:
        """A repository with these files; returns the hash of its commit."""
        work = self.folder / f"{name.replace('/', '-')}-work"
        git("init", "-q", "-b", "main", str(work))
        commit = self.commit(name, files)
        git("clone", "-q", "--bare", str(work), str(self.folder / f"{name}.git"))
        return commit

    def make(self, name: str, files: Mapping[str, str] | None = None, /, **scripts: str) -> None:
        """A repository with the branches main and other, instructions, a large file, and `scripts` in `.openhands`.

        `files` are further ones by their paths.
        """
        work = self.folder / f"{name.replace('/', '-')}-work"
        bare = self.folder / f"{name}.git"
        git("init", "-q", "-b", "main", str(work))
        (work / "AGENTS.md").write_text("Say ahoy in this repository.")
        (work / ".openhands").mkdir()
        for script, text in scripts.items():
            (work / ".openhands" / f"{script.replace('_', '-')}.sh").write_text(text)
        (work / "file").write_text("main\n")
        (work / "noise").write_bytes(os.urandom(300_000))
        for path, content in (files or {}).items():
            (work / path).parent.mkdir(exist_ok=True)
            (work / path).write_text(content)
        git("-C", str(work), "add", ".")
        git("-C", str(work), "commit", "-qm", "first")
        git("-C", str(work), "checkout", "-qb", "other")
        (work / "file").write_text("other\n")
        git("-C", str(work), "commit", "-qam", "second")
        git("-C", str(work), "checkout", "-q", "main")
        git("clone", "-q", "--bare", str(work), str(bare))
        git("-C", str(bare), "config", "http.receivepack", "true")

    def commit(self, name: str, files: Mapping[str, str]) -> str:
        """Commit these files, and publish them if the repository is there; returns the commit's hash."""
        work = self.folder / f"{name.replace('/', '-')}-work"
        for path, text in files.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text)
        git("-C", str(work), "add", ".")
        git("-C", str(work), "commit", "-qm", "files")
        if (self.folder / f"{name}.git").exists():
            git("-C", str(work), "push", "-q", str(self.folder / f"{name}.git"), "HEAD:main")
        return git("-C", str(work), "rev-parse", "HEAD").strip()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path, _, query = request.path.partition("?")
        self.requests[path] += 1
        password = _password(request.headers.get("authorization", ""))
        if path == "/api/v3/user":
            _reply(request, 200 if password == TOKEN else 401)
            return
        if path.startswith("/api/v3/repos/"):
            _reply(request, 500)  # this one does not say what it has
            return
        if path.startswith("/ann/slow"):
            self.asked.set()
            self.released.wait(60)
        if path.startswith("/ann/private") and password != TOKEN:
            _reply(request, 401, ("WWW-Authenticate", 'Basic realm="git"'))
            return
        if password:
            self.passwords.append(password)
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            env={
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(self.folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": request.command,
                "CONTENT_TYPE": request.headers.get("content-type", ""),
                "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
                "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
                "REMOTE_USER": "ann",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
            },
            capture_output=True,
            check=False,
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [tuple(line.decode().split(": ", 1)) for line in head.split(b"\r\n") if b": " in line]
        status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
        _reply(request, status, *((name, value) for name, value in headers if name != "Status"), body=content)


def git(*arguments: str) -> str:
    names = {f"GIT_{who}_{what}": "ann@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *arguments], check=True, env={**os.environ, **names}, capture_output=True, text=True)
    return done.stdout


def own_address() -> str:
    """An address of this host that sandboxes reach, too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        return str(probe.getsockname()[0])


def _reply(request: BaseHTTPRequestHandler, status: int, *headers: tuple[str, ...], body: bytes = b"") -> None:
    try:
        request.send_response(status)
        for name, value in headers:
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
    except ConnectionError:
        return  # whoever asked was stopped


def _password(header: str) -> str:
    kind, _, value = header.partition(" ")
    if kind.lower() == "bearer":
        return value
    return base64.b64decode(value).decode().partition(":")[2] if kind.lower() == "basic" else ""
