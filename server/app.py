"""The application: `create_app(settings)` builds everything; importing this module does nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from importlib import import_module
from shutil import disk_usage
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_core.destinations import Destinations, is_loopback
from agent_core.errors import DrydockError
from agent_core.events.masking import SecretMasker
from agent_core.llm.transport.client import aclose as close_model_clients
from agent_core.runtime.sandbox import SandboxProvider
from agent_core.runtime.selection import choose_provider
from agent_core.spans import watched_by
from agent_core.troubles import Trouble
from server.auth.doorkeeper import Doorkeeper
from server.auth.identity import Authenticator, OneTokenAuthenticator, OwnAuthenticator, PageSessions, resolve_token
from server.auth.origin import OriginPolicy, check_bind
from server.auth.preview_addresses import PreviewAddresses
from server.auth.shared_links import LinkAuthenticator
from server.conversation_manager.conversation_manager import ManagerParts
from server.conversation_manager.retention import Retention
from server.db.data_folder import last_backup
from server.db.database import OwnStores, open_database
from server.db.engine import DatabaseSettings
from server.db.leftovers import remove_leftovers
from server.db.repositories.drained_hosts import DrainedHosts
from server.db.repositories.leases import LeaseRepository
from server.dependencies import Services
from server.doors.mcp.http_door import PROVIDER_ROUTES, HttpDoor, provider_offer
from server.doors.preview.access import Passes, PreviewLinks
from server.doors.preview.other_servers import PortDoor
from server.doors.preview.preview import Preview
from server.doors.webhooks.dispatcher import OtherServers, Webhooks
from server.doors.webhooks.sender import Sender
from server.errors import install_error_replies
from server.git_providers.accounts import GitAccess
from server.git_providers.request_tools import RequestMaker
from server.http.base_path import BasePath
from server.http.error_pages import ERROR_ROUTES
from server.http.forwarding import Forwarding
from server.http.gate import Gate
from server.http.page import page_of
from server.http.revocable import Revocable
from server.http.sign_in import SignIn
from server.http.unfinished import Unfinished
from server.http.user_header import UserHeader
from server.metrics import ServerMetrics
from server.openapi import docs_endpoint, openapi_document
from server.parts import enter_part, make_part, part_class
from server.routes import audit as audit_routes
from server.routes import chat_completions, client_compatibility, docker_hosts, health, options
from server.routes.conversations import (
    archives,
    client_tools,
    conversations,
    event_log,
    feedback,
    imports,
    microagents,
    new_conversation,
    ports,
    programs,
    shares,
    workspace_page,
)
from server.routes.conversations import events as conversation_events
from server.routes.conversations import files as conversation_files
from server.routes.conversations import git as conversation_git
from server.routes.user import git_providers, llm_profiles, mcp_sign_ins, notes, secrets, skills, webhooks
from server.routes.user import plugins as plugin_routes
from server.routes.user import settings as settings_routes
from server.session.agents.agent_sessions import AgentSessions
from server.session.agents.mcp_sign_ins import McpSignIns
from server.session.agents.plugins import Plugins
from server.session.agents.web_search import SearchService
from server.session.capacity import Capacity
from server.session.host_watch import HostWatch
from server.session.listening import Listeners
from server.session.sandboxes import Sandboxes, SandboxSelection
from server.session.titles import Announcements, TitleWriter
from server.session.unfinished import remove_unfinished_forks
from server.session.warm_sandboxes import WarmSandboxes
from server.settings.docker_hosts import hosts_of
from server.settings.kubernetes import kubernetes_options
from server.settings.secret_values import server_secrets
from server.settings.settings import MEGABYTE, Settings
from server.sockets.connections import SocketLimits
from server.sockets.gateway import SocketGateway
from server.traces import Traces

if TYPE_CHECKING:  # loaded where users have accounts
    from server.accounts import Accounts
    from server.single_sign_on import ProviderSignIn

ChooseProvider = Callable[[], Awaitable[SandboxSelection]]


class Application:
    """The server as one ASGI application: previews, else the gate, then Socket.IO or the routes, then the page.

    `services` is valid within its lifespan.
    """

    services: Services
    failure: DrydockError | None = None
    """Why it could not start, where that is for the user to mend."""

    def __init__(
        self, settings: Settings, *, choose: ChooseProvider | None = None, log_masker: SecretMasker | None = None
    ) -> None:
        self.settings = settings
        self.log_masker = log_masker or SecretMasker()
        self.token = resolve_token(settings)
        made = make_part(settings, "authenticator_class", settings)
        own = None if made is None else OwnAuthenticator(made)
        self.accounts = _accounts_of(settings, self.token)
        if self.accounts is None and (own is None or not own.required):
            check_bind(settings, self.token)
        page = page_of(settings)
        sessions: PageSessions | None = None
        if self.token is not None and page.is_foreign and own is None and self.accounts is None:
            sessions = PageSessions(self.token, path=settings.base_path or "/")
        users: Authenticator = self.accounts or own or OneTokenAuthenticator(self.token, sessions=sessions)
        self._users = users
        self._authenticator = LinkAuthenticator(users, lambda tokens: self.services.database.shares.links(tokens))
        self._keeper = Doorkeeper(self._authenticator)
        self._page_scripts = page.scripts
        shown: ASGIApp = page
        self._sign_in: SignIn | None = None
        if sessions is not None:
            shown = self._sign_in = SignIn(page, keeper=self._keeper, sessions=sessions)
        self.api = _make_api(shown, self._lifespan, settings.base_path, ways_in=_ways_in(settings))
        provider: SandboxProvider | None = make_part(settings, "sandbox_provider_class", settings)
        self._choose = choose or (lambda: _choose(settings, provider))
        self._handler: ASGIApp = _not_started

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.api(scope, receive, self._without_traceback(send))
        else:
            await self._handler(scope, receive, send)

    @property
    def socket_limits(self) -> SocketLimits:
        return SocketLimits(
            max_message_bytes=self.settings.max_message_bytes, max_buffer_bytes=self.settings.max_feed_buffer_bytes
        )

    def user_of(self, conversation_id: str) -> str:
        """Whose a conversation is that is in memory; "" for others, and where there is but one user."""
        return self.services.manager.user_of(conversation_id) if hasattr(self, "services") else ""

    def crowded(self, limit: int) -> None:
        """Count a connection that was refused, since there were `limit` of them."""
        if hasattr(self, "services"):
            sentence = f"{limit} connections are open, as many as this server takes (max_connections): more are refused"
            self.services.metrics.trouble(Trouble.TOO_MANY_CONNECTIONS, sentence)

    def refused_unfinished(self) -> None:
        """Count a request or a message that was refused, since too much of them has no end yet."""
        if hasattr(self, "services"):
            most = Unfinished.most_bytes // MEGABYTE
            sentence = f"heads of requests and messages whose ends do not come are {most} MiB: more are refused"
            self.services.metrics.trouble(Trouble.UNFINISHED, sentence)

    def _without_traceback(self, send: Send) -> Send:
        async def send_plain(message: Message) -> None:
            await send({**message, "message": ""} if "message" in message and self.failure is not None else message)

        return send_plain

    @asynccontextmanager
    async def _lifespan(self, api: FastAPI) -> AsyncIterator[None]:
        authenticator = self._authenticator
        async with AsyncExitStack() as stack:
            stack.push_async_callback(close_model_clients)
            try:
                self.services, gateway = await self._enter_services(stack, authenticator)
            except DrydockError as error:
                self.failure = error
                raise
            api.state.services = self.services
            origins = OriginPolicy.from_settings(self.settings)
            inner = gateway.asgi_app(api)
            if self.accounts is not None:
                inner = Revocable(inner, self.accounts.watch)
            if (url_of := self.services.manager.url_of) is not None:
                inner = forwarding = Forwarding(inner, url_of)
                stack.push_async_callback(forwarding.aclose)
            gate = Gate(
                inner,
                settings=self.settings,
                authenticator=authenticator,
                origins=origins,
                keeper=self._keeper,
                shortage=self.services.sandboxes.memory.problem,
                scripts=self._page_scripts,
            )
            preview = Preview(
                _for_other_origins(gate, self.settings.allowed_origins),
                links=self.services.previews,
                manager=self.services.manager,
                authenticator=authenticator,
                origins=origins,
                keeper=self._keeper,
                is_active=None if self.accounts is None else self.accounts.is_active,
            )
            self._handler = preview
            if self.services.manager.url_of is not None:
                self._handler = PortDoor(preview, self.services.database.secrets, self.services.manager)
            if base := self.settings.base_path:
                addresses = self.services.previews.addresses
                self._handler = BasePath(self._handler, base, elsewhere=lambda host: addresses.parse(host) is not None)
            if self.settings.user_header is not None:
                self._handler = UserHeader(
                    self._handler,
                    names=[self.settings.user_header, *filter(None, [self.settings.user_groups_header])],
                    proxies=self.settings.user_header_from,
                    refused=partial(self.services.metrics.trouble, Trouble.USER_HEADER_REFUSED),
                )
            stack.callback(setattr, self, "_handler", _not_started)
            yield

    async def _enter_services(
        self, stack: AsyncExitStack, authenticator: Authenticator
    ) -> tuple[Services, SocketGateway]:
        settings = self.settings
        metrics = ServerMetrics()
        stack.enter_context(metrics.counting_lines())
        stack.enter_context(watched_by(metrics))
        if settings.otel:
            stack.enter_context(watched_by(await stack.enter_async_context(Traces(metrics, settings.otel_told_hosts))))
        manager_type = part_class(settings, "conversation_manager_class")
        own = OwnStores(
            await enter_part(stack, settings, "settings_store_class"),
            await enter_part(stack, settings, "secrets_store_class"),
            await enter_part(stack, settings, "blob_store_class"),
        )
        monitoring = make_part(settings, "monitoring_listener_class")
        experiments = make_part(settings, "experiment_manager_class")
        database = await stack.enter_async_context(
            open_database(
                settings.data_dir,
                DatabaseSettings(url=settings.database_url, synchronous=settings.database_synchronous),
                own,
            )
        )
        provider: ProviderSignIn | None = None
        if self.accounts is not None:
            elsewhere = import_module("server.single_sign_on")
            newcomers = elsewhere.Newcomers(settings, database.users, database.identities, database.audit)
            proxy = elsewhere.ProxySignIn(settings, newcomers, metrics.trouble) if settings.user_header else None
            await stack.enter_async_context(self.accounts.over(database, self._keeper, proxy=proxy))
            if settings.oidc_issuer is not None:
                provider = elsewhere.ProviderSignIn(
                    settings, newcomers, database.identities, database.secrets, metrics.trouble
                )
                stack.push_async_callback(provider.aclose)
        await database.audit.look()
        self._keeper.on_refused = database.audit.refused
        if self._sign_in is not None:
            self._sign_in.on_signed_in = lambda actor: database.audit.record("sign_in.begun", actor=actor)
        metrics.gauge("drydock_audit_broken", lambda: database.audit.is_broken)
        database.engines.reads.on_busy = partial(metrics.trouble, Trouble.DATABASE_BUSY)
        database.writer.metrics = metrics
        metrics.gauge("drydock_pending_changes", lambda: database.writer.pending)
        metrics.gauge("drydock_ready", lambda: not database.writer.health.problem)
        metrics.gauge("drydock_disk_free_bytes", lambda: disk_usage(settings.data_dir).free)
        await remove_unfinished_forks(database)
        await remove_leftovers(database)
        sandboxes = await stack.enter_async_context(
            Sandboxes(
                settings,
                instance_id=database.instance_id,
                choose=self._choose,
                known_ids=database.conversations.ids,
                are_others=LeaseRepository(database.engines, database.writer).are_there,
                drained=DrainedHosts(database.engines, database.writer),
                metrics=metrics,
            )
        )
        warm = await stack.enter_async_context(WarmSandboxes(sandboxes, Capacity.of(settings).warm, metrics))
        database.events.hold_back(sandboxes.memory.unreadable)
        announcements = Announcements()
        git = GitAccess(settings.git_hosts)
        stack.push_async_callback(git.aclose)
        search = SearchService(settings.search_url)
        stack.push_async_callback(search.aclose)
        requests = RequestMaker(database, git)
        stack.push_async_callback(requests.aclose)
        plugins = Plugins(
            database, settings, Destinations(hosts=settings.plugin_hosts, loopback=is_loopback(settings.host))
        )
        stack.push_async_callback(plugins.close)
        plugins.start()
        listeners = await stack.enter_async_context(Listeners(settings.event_listeners, monitoring))
        database.conversations.watch(listeners.created)
        own_secrets = [*server_secrets(settings), database.secrets.key_text, *([self.token] if self.token else [])]
        self.log_masker.add(own_secrets)
        sign_ins = McpSignIns(database, settings, hide=self.log_masker.add)
        manager = await stack.enter_async_context(
            manager_type(
                ManagerParts(
                    settings=settings,
                    database=database,
                    sandboxes=sandboxes,
                    agents=AgentSessions(
                        settings,
                        database,
                        sandboxes,
                        experiments,
                        requests=requests,
                        sign_ins=sign_ins,
                        search=search,
                        plugins=plugins,
                        hide=self.log_masker.add,
                        own_secrets=own_secrets,
                    ),
                    titles=TitleWriter(enabled=settings.generate_titles),
                    announcements=announcements,
                    listeners=listeners,
                    metrics=metrics,
                    warm=warm,
                )
            )
        )
        await stack.enter_async_context(Retention(settings, database, manager, metrics))
        await stack.enter_async_context(HostWatch(metrics))
        gateway = SocketGateway(
            manager,
            authenticator,
            keeper=self._keeper,
            limits=self.socket_limits,
            base_path=settings.base_path,
            watch=None if self.accounts is None else self.accounts.watch,
        )
        await stack.enter_async_context(gateway)
        _show_clients(metrics, gateway)
        metrics.gauge("drydock_last_backup_timestamp_seconds", partial(last_backup, settings.data_dir))
        metrics.gauge("drydock_certificate_ends_timestamp_seconds", lambda: 0)  # whoever serves by TLS shows it
        announcements.add(gateway)
        addresses = PreviewAddresses.from_setting(settings.preview_domain)
        previews = PreviewLinks(addresses, Passes(database.secrets, self.token), settings.base_path)
        offer = provider_offer(requests, self._users)
        door = await stack.enter_async_context(HttpDoor(offer, max_bytes=settings.max_request_bytes))
        destinations = Destinations(hosts=settings.webhook_hosts, loopback=is_loopback(settings.host))
        others = manager if isinstance(manager, OtherServers) else None
        hooks = await stack.enter_async_context(
            Webhooks(database, Sender(destinations), others=others, hide=self.log_masker.add)
        )
        services = Services(
            settings=settings,
            authenticator=authenticator,
            database=database,
            sandboxes=sandboxes,
            warm=warm,
            manager=manager,
            previews=previews,
            git=git,
            provider_door=door,
            webhooks=hooks,
            mcp_sign_ins=sign_ins,
            search=search,
            plugins=plugins,
            metrics=metrics,
            accounts=self.accounts,
            provider_sign_in=provider,
        )
        live_logs = services.live_logs
        metrics.gauge("drydock_live_logs", live_logs.total)
        return services, gateway


def _show_clients(metrics: ServerMetrics, gateway: SocketGateway) -> None:
    metrics.gauge("drydock_connections", lambda: gateway.connection_count)
    metrics.gauge("drydock_waiting_bytes", lambda: gateway.waiting_bytes)


def create_app(
    settings: Settings, *, choose: ChooseProvider | None = None, log_masker: SecretMasker | None = None
) -> Application:
    """The application for these settings, `ConfigurationError` where they cannot be used.

    `choose` finds the provider of sandboxes, by default that of the settings; `log_masker` hides users' secrets in the
    log.
    """
    return Application(settings, choose=choose, log_masker=log_masker)


def _accounts_of(settings: Settings, token: str | None) -> Accounts | None:
    if settings.users != "accounts":
        return None
    made: Accounts = import_module("server.accounts").Accounts(token, path=settings.base_path or "/")
    return made


def _make_api(
    page: ASGIApp, lifespan: Callable[[FastAPI], object], base_path: str, *, ways_in: Sequence[str] = ()
) -> FastAPI:
    api = FastAPI(
        lifespan=lifespan,  # type: ignore[arg-type]
        docs_url=None,
        redoc_url=None,
    )
    api.openapi = cache(partial(openapi_document, api, base_path))  # type: ignore[method-assign] # as FastAPI says to do it
    api.add_route("/docs", docs_endpoint(api.openapi), include_in_schema=False)
    install_error_replies(api, base_path)
    for module in (
        *(health, options, docker_hosts, audit_routes, settings_routes, secrets, skills, plugin_routes, git_providers),
        *(new_conversation, imports, archives, conversations),
        *(conversation_events, event_log, programs, client_tools, conversation_files, conversation_git),
        *(shares, workspace_page, ports, microagents),
        *(feedback, notes, client_compatibility, chat_completions, webhooks, llm_profiles, mcp_sign_ins),
    ):
        api.router.routes.extend(module.router.routes)
    for name in ways_in:
        api.router.routes.extend(import_module(f"server.routes.user.{name}").router.routes)
    api.router.routes.extend([*PROVIDER_ROUTES, *mcp_sign_ins.OPEN_ROUTES, *ERROR_ROUTES])
    api.mount("/", page)
    return api


def _ways_in(settings: Settings) -> Sequence[str]:
    """The modules with routes for users with accounts."""
    if settings.users != "accounts":
        return ()
    return ("accounts", "single_sign_on") if settings.oidc_issuer is not None else ("accounts",)


def _for_other_origins(app: ASGIApp, allowed: Sequence[str]) -> ASGIApp:
    theirs = CORSMiddleware(
        app,
        allow_origins=allowed,
        allow_credentials="*" not in allowed,
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["*"],  # clients in browsers have headers of their own: those of OpenAI and of MCP
        expose_headers=["etag", "link", "retry-after", "x-conversation-id", "x-event-id"],
    )

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] == "http" else None
        is_theirs = origin is not None and (origin in allowed or "*" in allowed)
        await (theirs if is_theirs else app)(scope, receive, send)

    return handle


async def _choose(settings: Settings, own: SandboxProvider | None) -> SandboxSelection:
    if own is not None:
        found = await own.check()
        reason = f"{own.name}: {found.reason} {found.fix}".strip()
        return SandboxSelection(own if found.ok else None, reason)
    chosen = await choose_provider(
        settings.sandbox,
        data_dir=str(settings.data_dir.absolute()),
        image=settings.sandbox_image,
        docker_hosts=hosts_of(settings.docker_hosts),
        start_seconds=settings.sandbox_start_seconds,
        kubernetes=kubernetes_options(settings),
    )
    return SandboxSelection(chosen.provider, chosen.reason)


async def _not_started(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await JSONResponse({"detail": "The server is starting or ending."}, 503)(scope, receive, send)
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1012})
