"""``drydock doctor``: looks at everything that a server needs here, and says what to do about what is missing."""

from __future__ import annotations

import asyncio
import json
import platform
import resource
import shutil
import ssl
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from http.client import HTTPException
from typing import NamedTuple, TextIO
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, build_opener, getproxies

from agent_core.destinations import is_loopback
from agent_core.errors import DrydockError, SandboxError
from agent_core.runtime.docker.docker_host import DockerHost
from agent_core.runtime.docker.hosts import DockerHosts
from agent_core.runtime.docker.images import is_listed, is_own
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.kubernetes.provider import KubernetesProvider
from agent_core.runtime.local.provider import LocalProvider
from agent_core.runtime.sandbox import HostView, SandboxLimits, SandboxSpec
from agent_core.version import VERSION
from server.auth.certificate import certificate_of
from server.auth.identity import resolve_token
from server.auth.origin import check_bind
from server.cli.listener import PortTakenError, bind
from server.conversation_manager.retention import RetentionLimits, find_doomed
from server.db.data_folder import LAST_BACKUP, instance_id, prepare_data_dir
from server.db.database import DATABASE_FILE, examine, examine_file, name_of_servers
from server.db.engine import DatabaseSettings, create_engines, sqlite_url
from server.db.redis_notices import examine_redis
from server.db.repositories.conversations import damaged_records
from server.db.storage_probe import damage_in, probe_storage
from server.http.page import page_folder
from server.parts import PARTS, part_class
from server.session.capacity import Capacity
from server.session.memory_ceiling import MemoryCeiling, machine_memory
from server.session.sandbox_hosts import most_on
from server.session.sandboxes import ENGINE_FOLDER, DiskReserve
from server.settings.docker_hosts import hosts_of
from server.settings.extensions import registered
from server.settings.kubernetes import kubernetes_options
from server.settings.settings import MEGABYTE, Settings
from server.settings.text_fields import shown_address

CHECK_SECONDS = 20.0
ASK_SECONDS = 3.0
MIN_PYTHON = (3, 11)
ENOUGH_DESCRIPTORS = 4096
SHOWN_OTHERS = 5
REMOVAL = (
    "F=label=drydock.instance=NAME; docker ps -aqf $F | xargs -r docker rm -fv; docker volume ls -qf $F | xargs -r"
    " docker volume rm; docker network ls -qf $F | xargs -r docker network rm"
)


class DoctorFinding(NamedTuple):
    """One thing that was looked at. `needed`: without it the server does not run as configured."""

    name: str
    ok: bool
    text: str
    needed: bool = True


def doctor(settings: Settings, out: TextIO) -> int:
    """Print what was found; returns 0 when the server can run as configured, 1 when not."""
    findings = asyncio.run(_examine(settings))
    out.write(f"Drydock {VERSION}\n")
    for finding in findings:
        mark = "ok  " if finding.ok else ("MISS" if finding.needed else "--  ")
        out.write(f"  {mark} {finding.name:<11} {finding.text}\n")
    broken = [finding for finding in findings if finding.needed and not finding.ok]
    out.write("Everything that is needed is there.\n" if not broken else f"{len(broken)} to mend: see MISS above.\n")
    return 1 if broken else 0


async def _examine(settings: Settings) -> list[DoctorFinding]:
    views: list[HostView] = []
    engine, image, *hosts = await _bounded("docker", lambda: _docker(settings, views))
    (local,) = await _bounded("bubblewrap", lambda: _local(settings))
    wish = settings.sandbox
    works = engine.ok and image.ok
    ours = settings.sandbox_provider_class is None
    docker_needed = ours and (wish == "docker" or (wish == "auto" and not local.ok))
    local_needed = ours and (wish == "local" or (wish == "auto" and not works))
    by_cluster = ours and wish == "kubernetes"
    by_docker = engine.ok and (wish == "docker" or (wish == "auto" and works))
    return [
        _python(),
        *(DoctorFinding("config", ok=False, text=remark, needed=False) for remark in settings.remarks),
        *_modules(settings),
        *_parts(settings),
        _git(settings),
        _data_dir(settings),
        _storage(settings),
        *_database(settings),
        *await _bounded("database", lambda: _postgresql(settings)),
        *await _bounded("records", lambda: _records(settings)),
        _backup(settings),
        *await _bounded("retention", lambda: _retention(settings)),
        *await _bounded("disk", lambda: _disk(settings, docker=by_docker)),
        _memory(settings),
        _capacity(settings, views),
        _access(settings),
        *await _bounded("port", lambda: _port(settings)),
        *_cluster(settings),
        *await _bounded("redis", lambda: _redis(settings)),
        *_descriptors(),
        *_certificate(settings),
        engine._replace(needed=docker_needed),
        image._replace(needed=docker_needed and engine.ok),
        *hosts,
        local._replace(needed=local_needed),
        *(await _bounded("kubernetes", lambda: _kubernetes(settings)) if by_cluster else ()),
        *(await _bounded("others", lambda: _others(settings)) if by_docker else ()),
        *(
            ()
            if by_cluster
            else await _bounded(
                "network", lambda: _network(settings, docker=wish == "docker" or (wish == "auto" and works))
            )
        ),
        _page(settings),
        *await _bounded("model", lambda: _model(settings)),
        *_proxy(),
    ]


def _git(settings: Settings) -> DoctorFinding:
    if shutil.which("git") is not None:
        return DoctorFinding("git", ok=True, text="plugins can be fetched")
    return DoctorFinding(
        "git", ok=False, text="is not installed: plugins cannot be fetched", needed=bool(settings.plugins)
    )


async def _bounded(name: str, check: Callable[[], Awaitable[tuple[DoctorFinding, ...]]]) -> tuple[DoctorFinding, ...]:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await check()
    except (DrydockError, TimeoutError) as error:
        finding = DoctorFinding(name, ok=False, text=str(error) or "did not answer in time")
        return (finding, finding._replace(name="image")) if name == "docker" else (finding,)


def _python() -> DoctorFinding:
    ok = sys.version_info[:2] >= MIN_PYTHON
    return DoctorFinding("python", ok, platform.python_version() + ("" if ok else ": install Python 3.11 or newer"))


def _modules(settings: Settings) -> Iterator[DoctorFinding]:
    for module in settings.modules:
        kinds = "; ".join(f"{kind} {', '.join(names)}" for kind, names in registered().get(module, {}).items())
        yield DoctorFinding("modules", ok=True, text=f"{module}: {kinds or 'registers nothing'}")


def _parts(settings: Settings) -> Iterator[DoctorFinding]:
    for setting in PARTS:
        path = getattr(settings, setting)
        if path == Settings.model_fields[setting].default:
            continue
        try:
            part_class(settings, setting)
        except DrydockError as error:
            yield DoctorFinding("part", ok=False, text=str(error))
        else:
            yield DoctorFinding("part", ok=True, text=f"{setting}: {path}")


def _data_dir(settings: Settings) -> DoctorFinding:
    try:
        folder = prepare_data_dir(settings.data_dir)
    except DrydockError as error:
        return DoctorFinding("data folder", ok=False, text=str(error))
    return DoctorFinding("data folder", ok=True, text=f"{folder} can be written")


def _storage(settings: Settings) -> DoctorFinding:
    """What the data folder's storage is like; a server starts on any that can be written."""
    try:
        probe = probe_storage(settings.data_dir.absolute())
    except OSError as error:
        return DoctorFinding("storage", ok=False, text=f"not tried: {error.strerror or error}", needed=False)
    kind = f"on {probe.kind}, " if probe.kind else ""
    text = f"the data folder is {kind}to write and sync a page takes {probe.sync_milliseconds:.1f} ms"
    danger = probe.danger
    return DoctorFinding("storage", ok=not danger, text=f"{text}; {danger}" if danger else text, needed=False)


def _database(settings: Settings) -> Iterator[DoctorFinding]:
    file = settings.data_dir.absolute() / DATABASE_FILE
    if settings.database_url is not None or not file.exists():
        return
    match damage_in(file, CHECK_SECONDS):
        case None:
            text = f"whether it is whole was not seen within {CHECK_SECONDS:g} s"
            yield DoctorFinding("database", ok=False, text=text, needed=False)
        case "":
            text = f"all pages are whole ({file.stat().st_size // MEGABYTE} MiB)"
            try:
                change = examine_file(file)
            except DrydockError as error:
                yield DoctorFinding("database", ok=False, text=str(error))
            else:
                yield DoctorFinding("database", ok=True, text=f"{text}; {change}" if change else text)
        case damage:
            text = f"{file} is damaged ({damage}): stop the server, keep a copy, and restore a backup (drydock restore)"
            yield DoctorFinding("database", ok=False, text=text)


async def _postgresql(settings: Settings) -> tuple[DoctorFinding, ...]:
    told = None if settings.database_url is None else await examine(settings.database_url)
    return () if told is None else (DoctorFinding("database", ok=True, text=told),)


async def _records(settings: Settings) -> tuple[DoctorFinding, ...]:
    """Conversations that are damaged, though the database's pages are whole."""
    file = settings.data_dir.absolute() / DATABASE_FILE
    if settings.database_url is None and not file.exists():
        return ()
    engines = create_engines(settings.database_url or sqlite_url(file), DatabaseSettings())
    try:
        damaged = await damaged_records(engines)
    except DrydockError as error:
        return (DoctorFinding("records", ok=False, text=f"not looked at: {error}", needed=False),)
    finally:
        await engines.dispose()
    if not damaged:
        return ()
    named = "; ".join(f"{one} ({', '.join(fields)})" for one, fields in list(damaged.items())[:SHOWN_OTHERS])
    text = (
        f"the records of {len(damaged)} conversations are damaged, which cannot be opened: {named}; delete them on the"
        " page, or restore a backup"
    )
    return (DoctorFinding("records", ok=False, text=text, needed=False),)


def _backup(settings: Settings) -> DoctorFinding:
    path = settings.data_dir.absolute() / LAST_BACKUP
    try:
        note = json.loads(path.read_text("utf-8"))
        text = f"the last one was made at {note['made_at'][:16]} UTC, {note['file']} ({note['bytes'] // MEGABYTE} MiB)"
    except (OSError, ValueError, LookupError, TypeError):
        return DoctorFinding("backup", ok=False, text="none yet: `drydock backup FILE` makes one", needed=False)
    return DoctorFinding("backup", ok=True, text=text)


async def _retention(settings: Settings) -> tuple[DoctorFinding]:
    """The limits, and how many conversations they would delete now, those that somebody is connected to among them."""
    limits = RetentionLimits.of(settings)
    if not any(limits):
        return (DoctorFinding("retention", ok=True, text="conversations are kept until somebody deletes them"),)
    file = settings.data_dir.absolute() / DATABASE_FILE
    text = f"conversations go that are {limits}"
    if settings.database_url is None and not file.exists():
        return (DoctorFinding("retention", ok=True, text=f"{text}; there are none yet"),)
    try:
        engines = create_engines(settings.database_url or sqlite_url(file), DatabaseSettings())
        try:
            found, presence = await find_doomed(engines, limits, settings.data_dir.absolute())
        finally:
            await engines.dispose()
    except DrydockError as error:
        return (DoctorFinding("retention", ok=False, text=f"{text}; how many is not known: {error}", needed=False),)
    text += f"; of those that are unused now it would be {len(found)}"
    if presence.began_anew:
        text += f" (the server was away: none counts as unused since before {presence.since:%Y-%m-%d %H:%M} UTC)"
    return (DoctorFinding("retention", ok=True, text=text),)


def _memory(settings: Settings) -> DoctorFinding:
    most, machine = settings.max_memory_mb, machine_memory()
    ceiling = MemoryCeiling(most if most is None else most * MEGABYTE)
    if problem := ceiling.problem():
        return DoctorFinding("memory", ok=False, text=problem, needed=False)
    bound = f"at most {ceiling.limit // MEGABYTE} MiB (max_memory_mb)" if ceiling.limit else "any amount"
    left = f"{machine.free // MEGABYTE} of {machine.total // MEGABYTE} MiB are free"
    kept = f"; below {ceiling.reserve // MEGABYTE} nothing more begins" if ceiling.reserve else ""
    return DoctorFinding("memory", ok=True, text=f"{left}{kept}; the server itself may have {bound}")


def _capacity(settings: Settings, views: Sequence[HostView]) -> DoctorFinding:
    capacity = Capacity.of(settings)
    text = f"{capacity.working} conversations at work at a time, {capacity.per_user} of each user; the rest wait"
    most = most_on(views) if views and settings.max_sandboxes is None else capacity.sandboxes
    sandboxes = f"{most} sandboxes, {capacity.warm} of them ready for conversations to come at most"
    return DoctorFinding("capacity", ok=True, text=f"{text}. {sandboxes} ({capacity.origin})")


async def _disk(settings: Settings, *, docker: bool) -> tuple[DoctorFinding]:
    folders = [str(settings.data_dir.absolute()), *(await _engine_folders(settings) if docker else ())]
    reserve = DiskReserve(folders, settings.disk_reserve_mb * MEGABYTE)
    if problem := reserve.problem():
        return (DoctorFinding("disk", ok=False, text=problem),)
    size = f"{settings.sandbox_disk_mb} MiB" if settings.sandbox_disk_mb else "any amount"
    count = f"{settings.sandbox_inodes} files" if settings.sandbox_inodes else "any number of files"
    margin = f"{settings.disk_reserve_mb} MiB are kept in reserve" if settings.disk_reserve_mb else "no reserve is kept"
    enforced = await _enforcement(settings) if docker and settings.sandbox_disk_mb else "watched (no quota)"
    text = f"{reserve.free_mb} MiB free, {margin}; a sandbox may have {size} and {count}, which is {enforced}"
    return (DoctorFinding("disk", ok=True, text=text),)


async def _instance(settings: Settings) -> str:
    """The name that its sandboxes carry: that of its folder, or of all servers of its database."""
    own = instance_id(prepare_data_dir(settings.data_dir))
    return own if settings.database_url is None else await name_of_servers(settings.database_url) or own


def _engines(settings: Settings) -> list[tuple[str, DockerProvider]]:
    """The engines that sandboxes are made on, with their names where there are several."""
    hosts = [(host.name, DockerProvider.of_host(host)) for host in hosts_of(settings.docker_hosts)]
    return hosts or [("", DockerProvider())]


async def _engine_folders(settings: Settings) -> Sequence[str]:
    found: list[str] = []
    for name, provider in _engines(settings):
        try:
            found += await provider.folders()
        except DrydockError:
            found += [] if name else [ENGINE_FOLDER]
        finally:
            await provider.close()
    return found


async def _enforcement(settings: Settings) -> str:
    """How the limit on a sandbox's disk is kept by the engine, tried with a volume."""
    bound = SandboxLimits(disk=settings.sandbox_disk_mb * MEGABYTE).disk_bound // MEGABYTE
    (_, provider), *_ = _engines(settings)
    try:
        quota = await provider.quota(await _instance(settings))
    except DrydockError as error:
        return f"watched (whether there are quotas could not be found out: {error})"
    finally:
        await provider.close()
    if not quota.volumes:
        return "watched (the engine's disk has no quotas for volumes)"
    root = ", the root" if quota.root and not settings.sandbox_read_only else ""
    unheld = " (the root has no quota)" if not quota.root and not settings.sandbox_read_only else ""
    return f"watched and held by quotas of {bound} MiB each for a new workspace{root} and the home{unheld}"


def _access(settings: Settings) -> DoctorFinding:
    try:
        token = resolve_token(settings)
        if settings.authenticator_class is None and settings.users == "one":
            check_bind(settings, token)
    except DrydockError as error:
        return DoctorFinding("access", ok=False, text=str(error))
    kind = "a token is asked for" if token else "no token: this machine only"
    if settings.authenticator_class is not None:
        kind = "authenticator_class says who may"
    if settings.users == "accounts":
        kind = "users have accounts"
    text = f"listens on {settings.host} port {settings.port}, {kind}"
    if settings.listens_on_all and not settings.allowed_hosts:
        text += "; who asks for it by a name, as through a proxy, is refused: names belong into allowed_hosts"
    return DoctorFinding("access", ok=True, text=text)


async def _port(settings: Settings) -> tuple[DoctorFinding, ...]:
    """Whether it can be listened on; a server of ours that runs has it rightly."""
    try:
        bind(settings).close()
    except PortTakenError as error:
        if not await asyncio.to_thread(_is_drydock, settings):
            return (DoctorFinding("port", ok=False, text=str(error)),)
        return (DoctorFinding("port", ok=True, text=f"a Drydock server runs at port {settings.port}"),)
    except DrydockError as error:
        return (DoctorFinding("port", ok=False, text=str(error)),)
    return (DoctorFinding("port", ok=True, text="it is free"),) if settings.port else ()


def _is_drydock(settings: Settings) -> bool:
    host = "127.0.0.1" if settings.listens_on_all else settings.host
    scheme = "http" if settings.tls_certificate is None else "https"
    address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}/server_info"
    # Who this is, is all that is asked: its certificate is for a name, and no secret is shown.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=ssl._create_unverified_context()))  # noqa: S323
    try:
        with opener.open(address, timeout=ASK_SECONDS) as answer:
            facts = json.load(answer)
    except (OSError, ValueError, HTTPException):
        return False
    return isinstance(facts, dict) and (facts.get("server") == "Drydock" or "uptime" in facts)


def _cluster(settings: Settings) -> Iterator[DoctorFinding]:
    """Of several servers: whether the others can find this one."""
    if not settings.conversation_manager_class.endswith(".ClusteredConversationManager"):
        return
    if settings.cluster_url is not None:
        yield DoctorFinding("cluster", ok=True, text=f"the other servers ask this one at {settings.cluster_url}")
    elif settings.listens_on_all or is_loopback(settings.host):
        text = "servers of other machines cannot ask this one: name its address in cluster_url (http://10.0.0.7:3000)"
        yield DoctorFinding("cluster", ok=False, text=text, needed=False)


async def _redis(settings: Settings) -> tuple[DoctorFinding, ...]:
    if settings.redis_url is None:
        return ()
    try:
        return (DoctorFinding("redis", ok=True, text=await examine_redis(settings.redis_url.get_secret_value())),)
    except DrydockError as error:
        text = f"live output goes over PostgreSQL: {error}; see that redis_url names a Redis that runs, or leave it out"
        return (DoctorFinding("redis", ok=False, text=text, needed=False),)


def _descriptors() -> Iterator[DoctorFinding]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < ENOUGH_DESCRIPTORS:
        text = f"a process may have {most}, for clients, sandboxes and files: raise LimitNOFILE, or ulimit -n"
        yield DoctorFinding("descriptors", ok=False, text=text, needed=False)


def _certificate(settings: Settings) -> Iterator[DoctorFinding]:
    try:
        certificate = certificate_of(settings)
    except DrydockError as error:
        yield DoctorFinding("certificate", ok=False, text=str(error))
        return
    if certificate is None:
        return
    facts = certificate.facts
    names = f"for {', '.join(facts.names) or 'no name'}, until {facts.ends:%Y-%m-%d %H:%M} UTC"
    problem = facts.problem()
    yield DoctorFinding("certificate", ok=not problem, text=f"{names}; {problem}" if problem else names, needed=False)


async def _docker(settings: Settings, views: list[HostView]) -> tuple[DoctorFinding, ...]:
    """The engine and the image; of several hosts, which are added to `views`, each."""
    if hosts := hosts_of(settings.docker_hosts):
        return await _hosts(settings, hosts, views)
    provider = DockerProvider()
    try:
        engine = await provider.check()
        found = DoctorFinding("docker", engine.ok, f"{engine.reason} {engine.fix}".strip())
        if not engine.ok:
            return found, DoctorFinding(
                "image", ok=False, text=f"{settings.sandbox_image}: not looked for without an engine"
            )
        image = await provider.check_image(settings.sandbox_image)
        return found, DoctorFinding("image", image.ok, f"{settings.sandbox_image}: {image.reason} {image.fix}".strip())
    finally:
        await provider.close()


async def _hosts(settings: Settings, hosts: Sequence[DockerHost], views: list[HostView]) -> tuple[DoctorFinding, ...]:
    """The Docker hosts together, the image on them, then each: one that cannot be reached is no reason not to start."""
    provider = DockerHosts(hosts)
    try:
        found = await provider.check()
        image = await provider.check_image(settings.sandbox_image)
        views += provider.hosts()
    finally:
        await provider.close()
    return (
        DoctorFinding("docker", found.ok, f"{found.reason} {found.fix}".strip()),
        DoctorFinding("image", image.ok, f"{settings.sandbox_image}: {image.reason} {image.fix}".strip()),
        *(_host(view, settings.sandbox_image) for view in views),
    )


def _host(view: HostView, image: str) -> DoctorFinding:
    if view.status == "lost":
        fix = f"Look whether its engine runs and lets this machine in: docker -H {view.url} version."
        return DoctorFinding("host", ok=False, text=f"{view.reason} {fix}", needed=False)
    room = f"{view.memory_free // MEGABYTE} of {view.memory // MEGABYTE} MiB free for sandboxes"
    count = f"{view.sandboxes} of at most {view.max_sandboxes} run"
    text = f"{view.name} ({view.url}, version {view.version}): {room}, {count}"
    if view.status == "draining":
        text += "; it is drained, and takes no new ones"
    has_image = is_listed(image, view.images)
    if not has_image:
        text += f"; it does not have {image}"
        text += f": build it with drydock image --docker-host {view.name}" if is_own(image) else ", and pulls it"
    return DoctorFinding("host", ok=has_image or not is_own(image), text=text, needed=False)


async def _others(settings: Settings) -> tuple[DoctorFinding]:
    """What other servers have in the engine: whether one of them is gone for good is its operator's to say."""
    found = Counter[str]()
    for name, provider in _engines(settings):
        try:
            found.update(await provider.others(await _instance(settings)))
        except SandboxError:
            if not name:  # of one that cannot be reached its own line tells
                raise
        finally:
            await provider.close()
    if not found:
        return (DoctorFinding("others", ok=True, text="the engine shows sandboxes of this server alone"),)
    shown = ", ".join(f"{number} of {name}" for name, number in found.most_common(SHOWN_OTHERS))
    more = f" and of {len(found) - SHOWN_OTHERS} more" if len(found) > SHOWN_OTHERS else ""
    text = f"containers and volumes of other servers: {shown}{more}. What is of one that never comes back: {REMOVAL}"
    return (DoctorFinding("others", ok=False, text=text, needed=False),)


async def _local(settings: Settings) -> tuple[DoctorFinding]:
    provider = LocalProvider(str(settings.data_dir.absolute()), start_seconds=settings.sandbox_start_seconds)
    try:
        found = await provider.check()
    finally:
        await provider.close()
    return (DoctorFinding("bubblewrap", found.ok, f"{found.reason} {found.fix}".strip()),)


async def _kubernetes(settings: Settings) -> tuple[DoctorFinding, ...]:
    """The cluster, what this server may do there, and, tried with a pod, whether its policies hold."""
    provider = KubernetesProvider(kubernetes_options(settings))
    try:
        cluster = await provider.check()
        found = DoctorFinding("kubernetes", cluster.ok, f"{cluster.reason} {cluster.fix}".strip())
        if not cluster.ok:
            return (found,)
        image = await provider.check_image(settings.sandbox_image)
        known = DoctorFinding("image", ok=True, text=f"{image.reason}. {image.fix}".strip(), needed=False)
        name = instance_id(prepare_data_dir(settings.data_dir))
        limits = SandboxLimits(start_seconds=CHECK_SECONDS * 0.6)
        spec = SandboxSpec("", name, settings.sandbox_image, str(settings.data_dir.absolute()), limits=limits)
        try:
            tried = await provider.try_network(spec)
        except DrydockError as error:
            return found, known, DoctorFinding("sandbox", ok=False, text=str(error))
        text = f"{tried.reason} {tried.fix}".strip()
        return found, known, DoctorFinding("network", tried.ok, text, needed=False)
    finally:
        await provider.close()


async def _network(settings: Settings, *, docker: bool) -> tuple[DoctorFinding, ...]:
    """The network that sandboxes are to have, tried with one: a server runs without it, and says so."""
    folder = str(settings.data_dir.absolute())
    # The server's own name: an engine proxy serves one instance, the first that it hears of.
    try:
        name = await _instance(settings)
    except DrydockError:
        text = f"{settings.sandbox_network}: not tried without a data folder"
        return (DoctorFinding("network", ok=False, text=text, needed=False),)
    spec = SandboxSpec("", name, settings.sandbox_image, folder, network=settings.sandbox_network)
    if docker:
        return tuple([await _tried(spec, host, provider) for host, provider in _engines(settings)])
    confined, seconds = settings.sandbox != "unconfined", settings.sandbox_start_seconds
    return (await _tried(spec, "", LocalProvider(folder, confined=confined, start_seconds=seconds)),)


async def _tried(spec: SandboxSpec, host: str, provider: DockerProvider | LocalProvider) -> DoctorFinding:
    where = f"{spec.network} on {host}" if host else spec.network
    try:
        found = await provider.try_network(spec)
    except SandboxError as error:
        if not host:
            raise
        return DoctorFinding("network", ok=False, text=f"{where}: not tried: {error}", needed=False)
    finally:
        await provider.close()
    return DoctorFinding("network", found.ok, f"{where}: {found.reason} {found.fix}".strip(), needed=False)


def _page(settings: Settings) -> DoctorFinding:
    folder = page_folder(settings).absolute()
    if (folder / "index.html").is_file():
        return DoctorFinding("page", ok=True, text=f"built, in {folder}")
    if settings.page is not None:
        return DoctorFinding("page", ok=False, text=f"no index.html in {folder}: name a folder with a built page")
    text = f"not built in {folder}: run `make setup` in the checkout, or install what `make wheel` makes there"
    return DoctorFinding("page", ok=False, text=text, needed=False)


def _proxy() -> Iterator[DoctorFinding]:
    """What of this server's requests goes through proxies that its environment names, and what does not."""
    proxies = {scheme: address for scheme, address in getproxies().items() if scheme in ("http", "https", "all")}
    if not proxies:
        return
    named = ", ".join(f"{shown_address(address)} ({scheme})" for scheme, address in sorted(proxies.items()))
    beside = getproxies().get("no", "")
    text = f"models, git hosts, MCP servers and web search are asked through {named}"
    text += f", but for {beside} (NO_PROXY)" if beside else ""
    yield DoctorFinding("proxy", ok=True, text=f"{text}; models of this machine, webhooks, images and plugins never")


async def _model(settings: Settings) -> tuple[DoctorFinding]:
    if (name := settings.llm_profile) is not None:
        profile = settings.llm_profiles[name]
        what, url = f"{profile.shown} (profile {name})", profile.base_url
        key = "with a key" if profile.api_key else "without a key of its own"
    elif settings.llm_model is None:
        text = "none configured: the built-in demo runs until one is set on the settings page, or with LLM_MODEL"
        return (DoctorFinding("model", ok=False, text=text, needed=False),)
    else:
        where = f" at {shown_address(settings.llm_base_url)}" if settings.llm_base_url else ""
        what, url = f"{settings.llm_model}{where}", settings.llm_base_url
        key = "with a key" if settings.llm_api_key else "without a key"
    problem = await _unreachable(url) if url else ""
    return (DoctorFinding("model", ok=not problem, text=f"{what}, {key}{problem}", needed=False),)


async def _unreachable(url: str) -> str:
    """Why nothing can be asked at the address of a model's server, or ""; through a proxy that is not known."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
        if getproxies() and not is_loopback(host):
            return ""
        async with asyncio.timeout(ASK_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
    except (OSError, ValueError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or str(error) or f"no answer within {ASK_SECONDS:g} s"
        return f"; nothing answers there ({reason}): start that server, or correct the base URL"
    return ""
