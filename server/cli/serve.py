"""``drydock serve``: runs the application with uvicorn: a bound port first, a few clear lines, a bounded end."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import resource
import signal
import socket
import sys
import textwrap
import time
from functools import partial
from typing import TextIO
from urllib.parse import quote

import uvicorn
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from agent_core.troubles import Trouble
from agent_core.version import VERSION
from server.app import Application, create_app
from server.auth.certificate import ServerCertificate, certificate_of
from server.cli import TO_DOCTOR
from server.cli.event_loop import ServerLoop
from server.cli.listener import bind
from server.cli.process_log import configure_logging
from server.db.database import Database
from server.errors import broke_off
from server.http.turnstile import Turnstile
from server.http.unfinished import Unfinished
from server.http.user_header import KnownPeer
from server.http.uvicorn_protocols import BoundedHttpProtocol, BoundedWebSocketProtocol
from server.session.memory_ceiling import give_back_freed
from server.settings.secret_values import server_secrets
from server.settings.settings import DEMO_MODEL, Settings
from server.settings.text_fields import shown_address

logger = logging.getLogger(__name__)
MAX_DESCRIPTORS = 65_536
DESCRIPTORS_FOR_CLIENTS = 0.75
"""The share of the process's descriptors; the others are for sandboxes, models, files and the database."""
SANDBOX_SECONDS = 3.0
RENEW_SECONDS = 5.0
TELL_SECONDS = 12 * 3600.0
"""A certificate that ends soon is spoken of so often."""
CONNECTION_GRACE_SECONDS = 2
LINE_WIDTH = 110


def serve(settings: Settings, out: TextIO) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit status. A `DrydockError` says why it cannot start."""
    os.umask(0o077)  # whatever is written from here on is this user's alone
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # memory holds every key
    secrets = server_secrets(settings)
    log_masker = configure_logging(settings, secrets=secrets, user_of=lambda conversation: app.user_of(conversation))
    for remark in settings.remarks:
        logger.warning(remark)
    app = create_app(settings, log_masker=log_masker)
    log_masker.add([app.token] if app.token else [])
    certificate = certificate_of(settings)
    listener = bind(settings)
    if settings.cluster_url is None:
        app.settings = settings.model_copy(update={"cluster_url": _address(settings, listener)})
    limit = settings.max_connections or int(_descriptors() * DESCRIPTORS_FOR_CLIENTS)
    unfinished = Unfinished(app.refused_unfinished)
    protocol = partial(
        BoundedHttpProtocol,
        max_connections=limit,
        on_crowded=partial(app.crowded, limit),
        upgrades=Turnstile(),
        unfinished=unfinished,
    )
    asked: ASGIApp = app
    if settings.trusted_proxies:
        # Left to itself uvicorn does this outside of everything, and nothing knows any more who is connected.
        asked = KnownPeer(ProxyHeadersMiddleware(asked, trusted_hosts=list(settings.trusted_proxies)))  # type: ignore[arg-type]
    config = uvicorn.Config(
        asked,
        loop=f"{ServerLoop.__module__}:{ServerLoop.__name__}",
        http=protocol,  # type: ignore[arg-type] # uvicorn only calls it
        ws=partial(BoundedWebSocketProtocol, unfinished=unfinished),  # type: ignore[arg-type]
        ws_max_size=app.socket_limits.max_transport_bytes,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=settings.log_level == "debug",
        server_header=False,
        # It would believe whoever connects over loopback, or what the environment says.
        proxy_headers=False,
        timeout_graceful_shutdown=CONNECTION_GRACE_SECONDS,
        ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = AnnouncingServer(config, app, listener, out, certificate)
    # uvicorn reports what it breaks off itself too, when it is told to end a second time, as if that were a fault; and
    # an answer of a preview that the sandbox breaks off; a client's message that is no UTF-8, with a traceback; and,
    # with one for each, what it did not wait for at its end, beside the line that says how many those were.
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: (
            app.failure is None
            and not server.force_exit
            and not broke_off.get()
            and not (record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError | asyncio.CancelledError))
        )
    )
    # uvicorn raises the signal that ended it once more when it is done; to have ended as told is no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # its terminal is closed; under nohup that is ignored
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        server.run(sockets=[listener])
    except SystemExit:
        # So uvicorn ends when the application does not start; its log line says no more than that.
        if app.failure is None:
            sys.stderr.write(TO_DOCTOR)
            raise
        raise app.failure from None
    finally:
        listener.close()
    return 0


class AnnouncingServer(uvicorn.Server):
    """Says in a few lines what runs, once it can be asked."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: Application,
        listener: socket.socket,
        out: TextIO,
        certificate: ServerCertificate | None = None,
    ) -> None:
        super().__init__(config)
        self._certificate = certificate
        self._renewing: asyncio.Task[None] | None = None
        self._app = app
        self._address = _address(app.settings, listener)
        self._out = out
        self._announcing: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        accounts = self._app.accounts
        self._say(f"Drydock {VERSION} is at {self._address}{_fragment(self._app.token if accounts is None else None)}")
        if accounts is not None and (link := await accounts.first_link()) is not None:
            self._say(f"  users     the first administrator signs up at {self._address}{link}")
            self._say("            (it counts once, and for a day; `drydock users link` prints another one)")
        self._announcing = asyncio.create_task(self._announce(), name="announce")
        if self._certificate is not None:
            self._renewing = asyncio.create_task(self._renew(self._certificate), name="renew the certificate")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        tasks = [task for task in (self._announcing, self._renewing) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._app.services.ending.set()
        await super().shutdown(sockets)

    async def _announce(self) -> None:
        app = self._app
        reason: str | None = None
        try:
            async with asyncio.timeout(SANDBOX_SECONDS):
                reason = (await app.services.sandboxes.chosen()).reason
        except TimeoutError:
            self._say_sandbox("still being looked for")
        else:
            self._say_sandbox(reason)
        self._say(f"  model     {_model(app.settings)}")
        self._say(f"  database  {_database(app.services.database)}")
        await app.services.database.make_room()
        if reason is None:
            self._say_sandbox((await app.services.sandboxes.chosen()).reason)
        give_back_freed()  # by what was loaded

    async def _renew(self, certificate: ServerCertificate) -> None:
        """Take a new certificate when there is one, and say it where it cannot be used, or ends soon."""
        metrics = self._app.services.metrics
        metrics.gauge("drydock_certificate_ends_timestamp_seconds", lambda: certificate.facts.ends.timestamp())
        told_at = -math.inf
        while True:
            if (now := time.monotonic()) - told_at > TELL_SECONDS and (problem := certificate.facts.problem()):
                told_at = now
                metrics.trouble(Trouble.CERTIFICATE, f"the server's certificate: {problem}")
            await asyncio.sleep(RENEW_SECONDS)
            found = await asyncio.to_thread(certificate.renew)
            if isinstance(found, str):
                sentence = f"the new certificate cannot be used, the former one stays: {found}"
                metrics.trouble(Trouble.CERTIFICATE, sentence)
            elif found:
                told_at = -math.inf
                logger.info("a new certificate is in use, until %s", f"{certificate.facts.ends:%Y-%m-%d %H:%M} UTC")

    def _say_sandbox(self, reason: str) -> None:
        # Why it is not another one may take several sentences.
        self._say(textwrap.fill(reason, LINE_WIDTH, initial_indent="  sandbox   ", subsequent_indent=" " * 12))

    def _say(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()


def _descriptors() -> int:
    """How many descriptors this process may have; of what it may ask for it has asked, up to `MAX_DESCRIPTORS`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def _address(settings: Settings, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    host = "127.0.0.1" if settings.listens_on_all else settings.host
    scheme = "http" if settings.tls_certificate is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{settings.base_path}"


def _fragment(token: str | None) -> str:
    """The page takes the token from here; a fragment is sent to no server and written to no log."""
    return f"/#token={quote(token, safe='')}" if token else ""


def _model(settings: Settings) -> str:
    if settings.llm_profile is not None:
        return f"{settings.llm_profiles[settings.llm_profile].shown} (profile {settings.llm_profile})"
    if settings.llm_model is None:
        return f"{DEMO_MODEL} (built in; set your own on the settings page, or LLM_MODEL and LLM_API_KEY)"
    where = f" at {shown_address(settings.llm_base_url)}" if settings.llm_base_url else ""
    return f"{settings.llm_model}{where}"


def _database(database: Database) -> str:
    url = database.engines.write.url
    if url.get_backend_name() == "sqlite":
        return f"SQLite, {url.database}"
    return url.render_as_string(hide_password=True)
