"""One conversation's pod and its volume: started, attached to, paused, stopped and removed."""

from __future__ import annotations

import asyncio
import logging
import secrets
import tarfile
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from agent_core.errors import SandboxError, SandboxLostError
from agent_core.events.transient import WAITING_FOR_ENGINE
from agent_core.runtime.channel import runner_stream
from agent_core.runtime.channel.runner_stream import RunnerEndedError, RunnerStream
from agent_core.runtime.disk import LOOK_SECONDS, DiskLook, order_for, read_usage
from agent_core.runtime.docker.images import PULL_SECONDS, no_python_error
from agent_core.runtime.docker.objects import made_from
from agent_core.runtime.injection import runner_files
from agent_core.runtime.kubernetes import manifests
from agent_core.runtime.kubernetes.cluster import (
    Cluster,
    ClusterRefusedError,
    ClusterUnavailableError,
    ExecRefusedError,
)
from agent_core.runtime.kubernetes.manifests import ARCHIVE, ATTACH, CONTAINER, COPY, FROZEN, SIGNAL, VOLUME
from agent_core.runtime.kubernetes.options import KubernetesOptions
from agent_core.runtime.kubernetes.pod_state import Phase, PodState, state_of
from agent_core.runtime.sandbox import (
    LABEL_CREATION,
    LABEL_MADE_FROM,
    RUNNER_ROOT,
    WORKSPACE,
    Attachment,
    DiskUsage,
    Progress,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
)
from agent_core.runtime.workspace_archive import WorkspaceArchive, WritableFile

logger = logging.getLogger(__name__)

ARCHIVE_SECONDS = 3600.0
"""How long reading one workspace may take."""
GONE_SECONDS = 30.0
"""How long the removal of an object is waited for, beyond what its processes get to end."""
_SIGNAL_SECONDS = 10.0
_WATCH_SECONDS = 5.0
"""After so long it is looked whether an image is being pulled, of which the pod itself says nothing."""
_FIRST_LOOK, _LONGEST_LOOK = 0.05, 1.0
_RETRY_SECONDS = 0.05
_API_RETRY_SECONDS = 1.0
_CREATE_ATTEMPTS = 10
_TOLD_CHARS = 300
_PART = 1024**2
_PYTHON = ("python3", "-I", "-S", "-c")
_FIXES = {
    "start_timeout": "Are the nodes overloaded? A longer limit can be set (sandbox_start_seconds).",
    "unschedulable": "Give the cluster more room, or ask for less; kubectl describe pod tells which node refuses why.",
    "disk_full": "Free some space on the node's disk.",
}


class KubernetesSandbox:
    """A `Sandbox` in a pod, whose files are on a volume of its own. `known`: it existed."""

    provider = "kubernetes"
    working_dir = WORKSPACE

    def __init__(
        self, cluster: Cluster, options: KubernetesOptions, spec: SandboxSpec, name: str, *, known: bool
    ) -> None:
        self.spec = spec
        self.state: SandboxState = {"provider": self.provider, "pod": name}
        self.survived = False
        self.ended = ""
        self._cluster = cluster
        self._options = options
        self._name = name
        self._claim = f"{name}-data"
        self._known = known
        self._fresh: RunnerStream | None = None
        self._look = DiskLook(spec.limits)
        self._creation = ""
        self._last_words = ""

    async def start(self, progress: Progress) -> None:
        """Start it; an API server that has answered before is waited for as long as a start may take."""
        loop = asyncio.get_running_loop()
        last, is_away = loop.time() + self.spec.limits.start_seconds, False
        while True:
            try:
                if is_away:  # so it is told until it answers, and not with each attempt anew
                    await self._pod()
                return await self._start(progress)
            except ClusterUnavailableError as error:
                if not self._cluster.has_answered or loop.time() > last:
                    raise
                is_away = True
                progress(WAITING_FOR_ENGINE, f"Waiting for the cluster. {error}")
            await asyncio.sleep(_API_RETRY_SECONDS)

    async def attach(self) -> Attachment:
        fresh, self._fresh = self._fresh, None
        if fresh is None or fresh.ended:
            state = await self._state()
            if state.phase is Phase.ENDED:
                raise SandboxLostError(f"The sandbox has ended: {state.problem}.")
        return await runner_stream.attachment(self, fresh, self._connect)

    async def poll(self) -> SandboxStatus:
        state = await self._state()
        self.ended = state.problem if state.phase is Phase.ENDED else ""
        if state.phase is Phase.RUNNING:
            return state.status
        return SandboxStatus.STOPPED if await self._volume() is not None else SandboxStatus.ABSENT

    async def pause(self) -> None:
        if await self.poll() is SandboxStatus.RUNNING:
            # Marked first: what is marked and goes on is let go on by whoever needs it.
            await self._mark("yes")
            await self._signal("SIGSTOP")

    async def resume(self) -> None:
        if await self.poll() is SandboxStatus.PAUSED:
            await self._signal("SIGCONT")
            await self._mark("no")

    async def stop(self) -> None:
        self._let_go()
        await self.resume()  # what is stopped hears nothing
        await self._remove_pods(max(1, round(self.spec.limits.stop_seconds)))

    async def destroy(self) -> None:
        self._let_go()
        await self._remove_pods(1)
        await self._remove_volumes()

    async def snapshot(self) -> str:
        name = f"snapshot-{secrets.token_hex(4)}"
        places = (f"{VOLUME}/workspace", f"{VOLUME}/snapshots/{name}")
        async with self._looking_pod() as pod:
            code, _, errors = await self._cluster.run(
                pod, CONTAINER, [*_PYTHON, COPY, *places], limit=self.spec.limits.start_seconds * 2
            )
        if code != 0:
            words = errors.rsplit("\n", 1)[-1]
            raise SandboxError(
                f"The workspace could not be copied: {words}.", code="snapshot_failed", fix="Is its volume full?"
            )
        return name

    async def archive(self, file: WritableFile) -> list[str]:
        status = await self.poll()
        if status is SandboxStatus.ABSENT:
            raise SandboxError("Its workspace is gone.", code="lost")
        if status is not SandboxStatus.STOPPED:
            return await self._archive(self._name, WORKSPACE, file)
        async with self._looking_pod() as pod:
            return await self._archive(pod, f"{VOLUME}/workspace", file)

    async def usage(self) -> DiskUsage | None:
        return await self._look.usage(self._measure)

    # --- start-up, step by step ---

    async def _start(self, progress: Progress) -> None:
        self._let_go()
        self._creation = secrets.token_hex(8)
        self._last_words = ""
        progress("STATUS$STARTING_RUNTIME", "Starting the sandbox")
        limit = self.spec.limits.start_seconds
        state = PodState(Phase.ABSENT)

        def seen(found: PodState) -> None:
            nonlocal state
            if found.problem and found.problem != state.problem and found.code == "unschedulable":
                progress("STATUS$STARTING_RUNTIME", f"No node has room for it yet: {found.problem[:_TOLD_CHARS]}")
            state = found

        try:
            async with asyncio.timeout(limit) as clock:
                await self._bring_up(seen, clock, progress)
                self._fresh = await self._connect()
        except RunnerEndedError as end:
            raise await self._failure(end.reason, end.code) from end
        except ClusterRefusedError as error:
            with suppress(SandboxError):
                await self._undo()
            raise SandboxError(f"The sandbox did not start. {error}", code=error.code) from error
        except TimeoutError:
            reason, code = f"it was not ready within {limit:g} s", "start_timeout"
            if state.problem:
                reason, code = f"{reason}: {state.problem}", state.code
            elif self._last_words:
                reason = f"{reason}; attaching to it gave: {self._last_words}"
            elif words := await self._warnings():
                reason = f"{reason}: {words}"
            raise await self._failure(reason, code) from None
        self._known = True
        progress("STATUS$RUNTIME_STARTED", "The sandbox runs")

    async def _bring_up(self, seen: Callable[[PodState], None], clock: asyncio.Timeout, progress: Progress) -> None:
        pod = await self._pod()
        state = state_of(pod)
        labels = pod["metadata"].get("labels") or {} if pod is not None else {}
        if pod is not None and (
            state.phase is not Phase.RUNNING or labels.get(LABEL_MADE_FROM) != made_from(self.spec)
        ):
            await self._remove_pods(1)
            state = PodState(Phase.ABSENT)
        await self.share()
        self.survived = state.phase is Phase.RUNNING
        if self.survived:
            network = manifests.network_kind(self.spec, self._options)
            if labels.get(manifests.LABEL_NETWORK) != network:
                await self._change({"labels": {manifests.LABEL_NETWORK: network}})
            if state.is_frozen:
                await self._signal("SIGCONT")
                await self._mark("no")
            return
        version = await self._create()
        await self._until_it_runs(version, seen, clock, progress)

    async def share(self) -> None:
        """Make what the sandboxes of this instance use together, unless it is there."""
        maps = await self._cluster.path("configmaps")
        await self._cluster.call_unless("keep the runner", "POST", maps, 409, body=manifests.code_map(self.spec))
        await self._set_border()

    async def _set_border(self) -> None:
        policies = await self._cluster.path("networkpolicies", group=manifests.NETWORKING)
        body = manifests.policy(self.spec, self._options)
        await self._cluster.call_unless("set the network's border", "POST", policies, 409, body=body)

    async def _create(self) -> str:
        """Make the volume, unless it is there, and the pod; returns the version of the latter."""
        body = manifests.claim(self.spec, self._options, self._claim, self._creation)
        claims = await self._cluster.path("persistentvolumeclaims")
        pods = await self._cluster.path("pods")
        for _ in range(_CREATE_ATTEMPTS):
            volume = await self._cluster.call_unless("make its volume", "POST", claims, 409, body=body)
            volume = volume or await self._volume(also_going=True)
            if volume is None or volume["metadata"].get("deletionTimestamp"):
                await until_gone(self._cluster, "persistentvolumeclaims", self._claim, GONE_SECONDS)
                continue
            pod = manifests.pod(self.spec, self._options, self._name, self._claim)
            found = await self._cluster.call_unless("make its pod", "POST", pods, 409, body=pod)
            if found is not None:
                await self._set_border()  # once more: another server may have removed what no pod had
                return str(found["metadata"].get("resourceVersion", ""))
            await until_gone(self._cluster, "pods", self._name, GONE_SECONDS)
        raise RunnerEndedError(
            "its pod could not be made: another one of its name is made again and again", "start_failed"
        )

    async def _until_it_runs(
        self, version: str, seen: Callable[[PodState], None], clock: asyncio.Timeout, progress: Progress
    ) -> None:
        """Wait for it; raises `RunnerEndedError` as soon as that makes no sense. Pulling an image has its own time."""
        is_pulled = False
        async with aclosing(self._looks(version)) as looks:
            async for pod in looks:
                state = state_of(pod)
                seen(state)
                if state.phase is Phase.RUNNING:
                    return
                if state.phase in (Phase.ABSENT, Phase.GOING):
                    raise RunnerEndedError("it was removed while it started", "lost")
                if state.is_hopeless:
                    raise RunnerEndedError(state.problem, state.code)
                if not is_pulled and state.code == "start_timeout" and await self._is_pulling():
                    is_pulled = True
                    clock.reschedule(asyncio.get_running_loop().time() + PULL_SECONDS + self.spec.limits.start_seconds)
                    progress("STATUS$BUILDING_RUNTIME", f"A node pulls the image {self.spec.image}")

    async def _looks(self, version: str) -> AsyncGenerator[Mapping[str, Any] | None, None]:
        """The pod each time that it changes; as it is now, whenever the server has nothing to say any more."""
        path = await self._cluster.path("pods")
        while True:
            query = {"fieldSelector": f"metadata.name={self._name}"} | ({"resourceVersion": version} if version else {})
            watch = self._cluster.watch("watch the pod", path, query=query, seconds=_WATCH_SECONDS)
            async with aclosing(watch) as events:
                async for kind, item in events:
                    if kind != "BOOKMARK":
                        yield None if kind == "DELETED" else item
            pod = await self._pod()
            yield pod
            version = str(pod["metadata"].get("resourceVersion", "")) if pod is not None else ""
            await asyncio.sleep(_FIRST_LOOK)

    async def _is_pulling(self) -> bool:
        return any(one.get("reason") == "Pulling" for one in await self._events())

    async def _warnings(self) -> str:
        """The last warning about the pod, which may be all that is said of it (a volume that cannot be mounted)."""
        found = [one for one in await self._events() if one.get("type") == "Warning"]
        return str(found[-1].get("message", "")).strip().rstrip(".")[:1000] if found else ""

    async def _events(self) -> list[dict[str, Any]]:
        query = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={self._name}"}
        try:
            return await self._cluster.items("read its events", await self._cluster.path("events"), query)
        except SandboxError:  # they are for people, and not everybody may read them
            return []

    async def _connect(self) -> RunnerStream:
        """Attach to the runner once it listens; raises `RunnerEndedError` as soon as the pod does not run."""
        while True:
            try:
                stream: RunnerStream | None = await self._cluster.open_exec(self._name, CONTAINER, ATTACH)
            except ExecRefusedError as error:
                stream, self._last_words = None, str(error)[-500:]
            if stream is not None:
                if await stream.first_word():
                    return stream
                self._last_words = str(stream.stray + stream.errors, "utf-8", "replace").strip()[-500:]
            state = await self._state()
            if state.phase is not Phase.RUNNING:
                raise RunnerEndedError(state.problem or "it was removed", state.code if state.problem else "lost")
            await asyncio.sleep(_RETRY_SECONDS)

    async def _failure(self, reason: str, code: str) -> SandboxError:
        try:
            await self._undo()
        except SandboxError as error:
            reason = f"{reason}; and cleaning up failed: {str(error).rstrip('.')}"
        if code == "no_python":
            return no_python_error(self.spec.image, reason, path=self.spec.environment.get("PATH"))
        if code == "image_missing":
            text = f"The nodes cannot get the sandbox image {self.spec.image}: {reason}."
            return SandboxError(text, code=code, fix=manifests.pull_fix(self.spec.image))
        return SandboxError(f"The sandbox did not start: {reason}.", code=code, fix=_FIXES.get(code, ""))

    async def _undo(self) -> None:
        """Remove the pod, and the volume if it is of this start."""
        self._let_go()
        await self._remove_pods(1)
        volume = await self._volume()
        if volume is not None and (volume["metadata"].get("labels") or {}).get(LABEL_CREATION) == self._creation:
            await self._remove_volumes()

    def _let_go(self) -> None:
        if self._fresh is not None:
            self._fresh.abort()
            self._fresh = None

    # --- the objects ---

    async def _pod(self) -> dict[str, Any] | None:
        path = await self._cluster.path("pods", self._name)
        return await self._cluster.call_unless("look at its pod", "GET", path, 404)

    async def _state(self) -> PodState:
        return state_of(await self._pod())

    async def _volume(self, *, also_going: bool = False) -> dict[str, Any] | None:
        path = await self._cluster.path("persistentvolumeclaims", self._claim)
        found = await self._cluster.call_unless("look at its volume", "GET", path, 404)
        is_going = found is not None and found["metadata"].get("deletionTimestamp") and not also_going
        return None if is_going else found

    async def _mark(self, frozen: str) -> None:
        await self._change({"annotations": {FROZEN: frozen}})

    async def _change(self, metadata: Mapping[str, Any]) -> None:
        path = await self._cluster.path("pods", self._name)
        await self._cluster.call_unless("change its pod", "PATCH", path, 404, body={"metadata": metadata})

    async def _signal(self, number: str) -> None:
        what = "paused" if number == "SIGSTOP" else "let go on"
        try:
            code, _, errors = await self._cluster.run(
                self._name, CONTAINER, [*_PYTHON, SIGNAL, number], limit=_SIGNAL_SECONDS
            )
        except ExecRefusedError as error:
            if (await self._state()).phase is not Phase.RUNNING:
                return  # it has ended
            raise SandboxError(f"The sandbox could not be {what}: {error}", code="exec_refused") from error
        if code != 0:
            raise SandboxError(f"The sandbox could not be {what}: {errors[-_TOLD_CHARS:]}.", code="exec_refused")

    async def _remove_pods(self, grace: int) -> None:
        """End all that runs of this conversation, and wait until it has ended: its volume is not shared."""
        query = {"labelSelector": manifests.selector(manifests.labels_of(self.spec.instance_id, self._id))}
        path = await self._cluster.path("pods")
        for item in await self._cluster.items("look for its pods", path, query):
            name = str(item["metadata"]["name"])
            await remove(self._cluster, "pods", name, grace)
            await until_gone(self._cluster, "pods", name, grace + GONE_SECONDS)

    async def _remove_volumes(self) -> None:
        await remove(self._cluster, "persistentvolumeclaims", self._claim)
        await until_gone(self._cluster, "persistentvolumeclaims", self._claim, GONE_SECONDS)

    @property
    def _id(self) -> str:
        return self.spec.conversation_id

    @asynccontextmanager
    async def _looking_pod(self) -> AsyncIterator[str]:
        """A pod that sees the whole volume, for as long as the block takes; on the node of what runs."""
        volume = await self._volume()
        if volume is None:
            raise SandboxError("Its workspace is gone.", code="lost")
        own = await self._pod()
        node = str(own["spec"].get("nodeName") or "") if own is not None else ""
        name = f"{self._name}-{secrets.token_hex(4)}"
        image = self.spec.image or manifests.image_of(volume)
        body = manifests.look_pod(self.spec, self._options, name, self._claim, image, node, ARCHIVE_SECONDS)
        limit = self.spec.limits.start_seconds
        pods, path = await self._cluster.path("pods"), await self._cluster.path("pods", name)
        await self._cluster.call("make a pod that sees its volume", "POST", pods, body=body)
        try:
            state, pause = PodState(Phase.STARTING), _FIRST_LOOK
            try:
                async with asyncio.timeout(limit):
                    while state.phase is Phase.STARTING and not state.is_hopeless:
                        await asyncio.sleep(pause)
                        pause = min(_LONGEST_LOOK, pause * 1.5)
                        state = state_of(await self._cluster.call_unless("look at it", "GET", path, 404))
            except TimeoutError:
                pass
            if state.phase is not Phase.RUNNING:
                words = state.problem or f"it was not ready within {limit:g} s"
                raise SandboxError(f"No pod could be had that sees its volume: {words}.", code=state.code)
            yield name
        finally:
            await remove(self._cluster, "pods", name, 1)

    # --- its files ---

    async def _archive(self, pod: str, folder: str, file: WritableFile) -> list[str]:
        with tempfile.TemporaryFile(dir=self.spec.data_dir or None) as received:
            code, _, errors = await self._cluster.run(
                pod, CONTAINER, [*_PYTHON, ARCHIVE, folder], limit=ARCHIVE_SECONDS, file=received
            )
            if code == 4:
                raise SandboxError("Its workspace is gone.", code="lost")
            if code != 0:
                raise SandboxError(f"Its workspace could not be read: {errors[-_TOLD_CHARS:]}.", code="lost")
            received.seek(0)
            most = self.spec.limits.disk_bound

            def rewrite() -> list[str]:
                with WorkspaceArchive(file, most) as archive:
                    archive.add_tar(iter(lambda: received.read(_PART), b""))
                    return archive.left_out

            try:
                left_out = await asyncio.to_thread(rewrite)
            except tarfile.TarError as error:
                raise SandboxError(f"Its files could not be read ({error}).", code="changed") from error
        return sorted({*left_out, *errors.splitlines()})

    async def _measure(self) -> DiskUsage | None:
        source = dict(runner_files())["core/disk_usage.py"].decode()
        order = order_for([WORKSPACE, f"{RUNNER_ROOT}/state", f"{RUNNER_ROOT}/home"], None, self.spec.limits.inodes)
        try:
            _, printed, _ = await self._cluster.run(
                self._name, CONTAINER, [*_PYTHON, source, order], limit=LOOK_SECONDS
            )
        except ExecRefusedError:
            return None
        return read_usage(printed)


async def remove(cluster: Cluster, kind: str, name: str, grace: int | None = None, *, group: str = "") -> None:
    """Have an object removed; it may be gone, or going. Not at once: then nobody would know whether it has ended."""
    path = await cluster.path(kind, name, group=group)
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    if grace is not None:
        body["gracePeriodSeconds"] = grace
    await cluster.call_unless(f"remove {name}", "DELETE", path, 404, 409, body=body)


async def until_gone(cluster: Cluster, kind: str, name: str, limit: float) -> None:
    """Wait until there is no such object; raises `SandboxError` when that takes too long."""
    path = await cluster.path(kind, name)
    loop = asyncio.get_running_loop()
    last, pause = loop.time() + limit, _FIRST_LOOK
    while await cluster.call_unless("look whether it is gone", "GET", path, 404) is not None:
        if loop.time() > last:
            raise SandboxError(
                f"The cluster does not remove {name}, of which it was asked {limit:g} s ago.",
                code="engine_refused",
                fix="Does its node answer? kubectl describe tells what holds it.",
            )
        await asyncio.sleep(pause)
        pause = min(_LONGEST_LOOK, pause * 1.5)
