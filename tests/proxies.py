"""nginx, HAProxy and Caddy before a server, with the configurations of `deploy/` but for addresses and files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.certificates import Authority

ROOT = Path(__file__).parents[1]
START_SECONDS = 30.0
NAME = "localhost"

_NGINX = """\
{user}
daemon off;
worker_processes 1;
error_log stderr;
pid {folder}/pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {configuration}
}}
"""


class Proxy(NamedTuple):
    """A proxy that runs: its address, with the path below which the server stands, and who vouches for it."""

    url: str
    authority: Path
    port: int
    plain_port: int


@contextlib.asynccontextmanager
async def nginx(
    folder: Path, upstream: int, ports: tuple[int, int], *, path: str = "", off: bool = False
) -> AsyncIterator[Proxy]:
    """Before the server at the port `upstream`: on `ports` for HTTPS and HTTP, below `path`, perhaps taken `off`."""
    authority = Authority(folder)
    certificate, key = authority.vouch("nginx", NAME)
    text = (ROOT / "deploy" / "nginx" / ("drydock-below-a-path.conf" if path else "drydock.conf")).read_text("utf-8")
    site, files = ("tools", "/etc/ssl/tools") if path else ("drydock", "/etc/ssl/drydock")
    changes = {
        "server 127.0.0.1:3000;": f"server 127.0.0.1:{upstream};",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{ports[0]} ssl http2;",
        f"server_name {site}.example.com;": f"server_name {NAME};",
        f"{files}/fullchain.pem": str(certificate),
        f"{files}/privkey.pem": str(key),
    }
    if not path:
        changes["listen 80;"] = f"listen 127.0.0.1:{ports[1]};"
    if off:
        changes["proxy_pass http://drydock;"] = "proxy_pass http://drydock/;"
    user = "user root;" if os.geteuid() == 0 else ""
    file = folder / "nginx.conf"
    file.write_text(_NGINX.format(user=user, folder=folder, configuration=_changed(text, changes)))
    async with _running("nginx", "-p", str(folder), "-c", str(file), log=folder / "nginx.log", port=ports[0]):
        yield Proxy(f"https://{NAME}:{ports[0]}{path}", authority.file, *ports)


@contextlib.asynccontextmanager
async def haproxy(folder: Path, upstream: int, ports: tuple[int, int], *, path: str = "") -> AsyncIterator[Proxy]:
    """As `nginx`; it passes the path on."""
    authority = Authority(folder)
    certificate, key = authority.vouch("haproxy", NAME)
    both = folder / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    changes = {
        "bind :80": f"bind 127.0.0.1:{ports[1]}",
        "bind :443": f"bind 127.0.0.1:{ports[0]}",
        "/etc/ssl/drydock/drydock.pem": str(both),
        "server drydock 127.0.0.1:3000": f"server drydock 127.0.0.1:{upstream}",
    }
    if path:
        changes |= {"    default_backend drydock\n": "", "# use_backend drydock": "use_backend drydock"}
        changes |= {"path /drydock ": f"path {path} ", "path_beg /drydock/": f"path_beg {path}/"}
    file = folder / "haproxy.cfg"
    file.write_text(_changed((ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text("utf-8"), changes))
    async with _running("haproxy", "-db", "-f", str(file), log=folder / "haproxy.log", port=ports[0]):
        yield Proxy(f"https://{NAME}:{ports[0]}{path}", authority.file, *ports)


@contextlib.asynccontextmanager
async def caddy(folder: Path, upstream: int, ports: tuple[int, int]) -> AsyncIterator[Proxy]:
    """As `nginx`, with a certificate that is given to it: there is none here who would."""
    authority = Authority(folder)
    certificate, key = authority.vouch("caddy", NAME)
    listens = f"https_port {ports[0]}\n\thttp_port {ports[1]}"
    options = f"{{\n\tadmin off\n\tgrace_period 1s\n\t{listens}\n\tskip_install_trust\n}}\n"
    changes = {
        "drydock.example.com {": f"{options}{NAME} {{\n\tbind 127.0.0.1\n\ttls {certificate} {key}",
        "reverse_proxy 127.0.0.1:3000 {": f"reverse_proxy 127.0.0.1:{upstream} {{",
    }
    file = folder / "Caddyfile"
    file.write_text(_changed((ROOT / "deploy" / "caddy" / "Caddyfile").read_text("utf-8"), changes))
    words = ("run", "--config", str(file), "--adapter", "caddyfile")
    said = {"PATH": os.defpath, "HOME": str(folder)}
    async with _running("caddy", *words, log=folder / "caddy.log", port=ports[0], environment=said):
        yield Proxy(f"https://{NAME}:{ports[0]}", authority.file, *ports)


@contextlib.asynccontextmanager
async def haproxy_before_several(folder: Path, servers: Sequence[str], port: int) -> AsyncIterator[str]:
    """Before these three servers (``address:port``), at a port of this machine, without TLS; its address."""
    said = {f"SERVER_{number}": server for number, server in enumerate(servers, 1)}
    said |= {"PORT": str(port), "TLS": "off", "ALIVE": f"unix@{folder}/alive", "PATH": os.defpath}
    file = ROOT / "deploy" / "haproxy" / "cluster.cfg"
    words = ("-db", "-f", str(file))
    async with _running("haproxy", *words, log=folder / "haproxy.log", port=port, environment=said):
        yield f"http://127.0.0.1:{port}"


def _changed(text: str, changes: dict[str, str]) -> str:
    for before, after in changes.items():
        assert before in text, f"the configuration has no {before!r}"
        text = text.replace(before, after)
    return text


@contextlib.asynccontextmanager
async def _running(
    program: str, *words: str, log: Path, port: int, environment: dict[str, str] | None = None
) -> AsyncIterator[None]:
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    assert found is not None, f"{program} is missing: scripts/real-parts {program}"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(found, *words, stdout=output, stderr=output, env=environment)
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await _listens(port):
                assert process.returncode is None, _said(log)
                await asyncio.sleep(0.02)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _said(log: Path) -> str:
    return log.read_text("utf-8")


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
