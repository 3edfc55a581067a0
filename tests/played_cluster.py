"""A server that plays the API of Kubernetes, as far as it is documented and used here, with real pods behind it.

No API server is to be had where the tests run. This one keeps objects with their versions, and answers as the
documentation says: lists and watches by label and field, from a version on, 404, 409, 410 and 429, quotas, graceful
deletion, claims that stay as long as a pod has them, rules reviews, and execs over the WebSocket protocols v4 and v5.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from tests.played_node import EngineError, PlayedNode, closed

TOKEN = "token-of-the-played-cluster"
NAMESPACE = "sandboxes"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_EVENTS = 500
_KINDS = {
    "pods": "Pod",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "configmaps": "ConfigMap",
    "networkpolicies": "NetworkPolicy",
    "events": "Event",
}

Object = dict[str, Any]


class RefusedError(Exception):
    def __init__(self, status: int, reason: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.headers = status, reason, headers

    def response(self) -> web.Response:
        about = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body = {**about, "message": str(self), "reason": self.reason, "code": self.status}
        return web.json_response(body, status=self.status, headers=self.headers)


class PlayedCluster:
    """Entered, it listens at `url`; `kubeconfig` leads there. What tests change is how it answers.

    Attributes:
        refusals: errors for requests whose ``METHOD /path`` matches the pattern; a count is how often.
        unready: what pods are instead of started: the fields of their status, by the image's name.
        exec_protocols: what execs are spoken over.
        rules: of the account's rights.
        longest_page: the most objects that a list has at once.
    """

    def __init__(self, folder: Path) -> None:
        self.node = PlayedNode()
        self.url = ""
        self.kubeconfig = folder / "kubeconfig"
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in _KINDS}
        self.refusals: list[tuple[str, RefusedError, int]] = []
        self.requests: list[str] = []
        self.unready: dict[str, Object] = {}
        self.exec_protocols = ["v5.channel.k8s.io", "v4.channel.k8s.io"]
        self.rules: list[Object] = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        self.longest_page = 500
        self._version = 100
        self._events: deque[tuple[int, str, str, Object]] = deque(maxlen=_EVENTS)
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._containers: dict[str, str] = {}
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def __aenter__(self) -> PlayedCluster:
        await self.come_back()
        cluster = {"name": "played", "cluster": {"server": self.url}}
        user = {"name": "drydock", "user": {"token": TOKEN}}
        about = {"cluster": "played", "user": "drydock", "namespace": NAMESPACE}
        config = {
            **{"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [user]},
            **{"contexts": [{"name": "played", "context": about}], "current-context": "played"},
        }
        self.kubeconfig.write_text(json.dumps(config))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_away()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.node.close()

    async def come_back(self) -> None:
        app = web.Application(client_max_size=4 * 1024**2)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def go_away(self) -> None:
        """All connections break, and nobody listens."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def refuse(self, request: str, status: int, message: str, *, reason: str = "Forbidden", times: int = 1000) -> None:
        headers = {"Retry-After": "0"} if status == 429 else {}
        self.refusals.append((request, RefusedError(status, reason, message, **headers), times))

    async def change(self, kind: str, name: str, change: Callable[[Object], None]) -> None:
        """Change an object as a controller does."""
        change(self.objects[kind][name])
        await self._tell(kind, "MODIFIED", self.objects[kind][name])

    async def evict(self, name: str, message: str) -> None:
        def fail(pod: Object) -> None:
            pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": message}

        await self.change("pods", name, fail)
        await self.node.kill(self._containers[name])

    async def kill(self, name: str, reason: str = "") -> None:
        """End the container of a pod as the kernel does; `reason` is what the node makes of it."""
        self.objects["pods"][name]["status"]["_reason"] = reason
        await self.node.kill(self._containers[name])

    # --- requests ---

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        try:
            if request.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise RefusedError(401, "Unauthorized", "Unauthorized")
            for number, (pattern, error, times) in enumerate(self.refusals):
                if times and re.search(pattern, f"{request.method} {request.path_qs}"):
                    self.refusals[number] = (pattern, error, times - 1)
                    raise error
            return await self._routed(request)
        except RefusedError as error:
            return error.response()

    async def _routed(self, request: web.Request) -> web.StreamResponse:
        match request.path.strip("/").split("/"):
            case ["version"]:
                return web.json_response({"major": "1", "minor": "36", "gitVersion": "v1.36.1"})
            case ["apis", "authorization.k8s.io", "v1", "selfsubjectrulesreviews"]:
                order = await request.json()
                status = {"incomplete": False, "nonResourceRules": [], "resourceRules": self.rules}
                return web.json_response({**order, "status": status}, status=201)
            case ["api", "v1", "namespaces", space, kind, *more] if kind != "networkpolicies":
                pass
            case ["apis", "networking.k8s.io", "v1", "namespaces", space, "networkpolicies" as kind, *more]:
                pass
            case _:
                raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        if kind not in _KINDS:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        if space != NAMESPACE:
            raise RefusedError(403, "Forbidden", f'{kind} is forbidden: cannot use namespace "{space}"')
        match request.method, more:
            case "GET", [] if request.query.get("watch") == "true":
                return await self._watched(request, kind)
            case "GET", []:
                items = [one for one in self.objects[kind].values() if _is_selected(one, request.query)]
                begin, most = (
                    int(request.query.get("continue", "0")),
                    int(request.query.get("limit", "0")) or len(items),
                )
                most = min(most, self.longest_page)
                about = {"resourceVersion": str(self._version)}
                if begin + most < len(items):
                    about |= {"continue": str(begin + most)}
                items = items[begin : begin + most]
                return web.json_response({"kind": f"{_KINDS[kind]}List", "metadata": about, "items": items})
            case "POST", []:
                return web.json_response(await self._made(kind, await request.json()), status=201)
            case "GET", [name]:
                return web.json_response(self._found(kind, name))
            case "PATCH", [name]:
                if request.content_type != "application/merge-patch+json":
                    raise RefusedError(415, "UnsupportedMediaType", f"{request.content_type} is not supported here")
                found = self._found(kind, name)
                _merge(found, await request.json())
                await self._tell(kind, "MODIFIED", found)
                return web.json_response(found)
            case "DELETE", [name]:
                options = await request.json() if request.can_read_body else {}
                return web.json_response(await self._deleted(kind, name, options))
            case "GET", [name, "exec"] if kind == "pods":
                return await self._exec(request, name)
        raise RefusedError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _found(self, kind: str, name: str) -> Object:
        if (found := self.objects[kind].get(name)) is None:
            raise RefusedError(404, "NotFound", f'{kind} "{name}" not found')
        return found

    async def _made(self, kind: str, item: Object) -> Object:
        about = item["metadata"]
        name = about["name"]
        if not _NAME.fullmatch(name) or len(name) > 253 or (kind == "pods" and len(name) > 63):
            raise RefusedError(422, "Invalid", f"metadata.name: Invalid value: {name!r}")
        for key, value in (about.get("labels") or {}).items():
            if not _LABEL.fullmatch(value) or len(value) > 63 or not _LABEL.fullmatch(key) or len(key) > 63:
                raise RefusedError(422, "Invalid", f"metadata.labels: Invalid value: {value!r}")
        if name in self.objects[kind]:
            raise RefusedError(409, "AlreadyExists", f'{kind} "{name}" already exists')
        about |= {"uid": secrets.token_hex(8), "namespace": NAMESPACE, "creationTimestamp": _now()}
        if kind == "pods":
            _admit(item)
            item["status"] = {"phase": "Pending"}
        self.objects[kind][name] = item
        await self._tell(kind, "ADDED", item)
        if kind == "pods":
            self._begin(self._live(item))
        return item

    async def _deleted(self, kind: str, name: str, options: Mapping[str, Any]) -> Object:
        found = self._found(kind, name)
        if kind == "pods":
            grace = options.get("gracePeriodSeconds", found["spec"].get("terminationGracePeriodSeconds", 30))
            before = found["metadata"].get("deletionGracePeriodSeconds")
            if before is None or grace < before:
                found["metadata"] |= {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": grace}
                await self._tell(kind, "MODIFIED", found)
                self._begin(self._end(found, grace))
        elif kind == "persistentvolumeclaims":
            found["metadata"]["deletionTimestamp"] = _now()
            await self._tell(kind, "MODIFIED", found)
            await self._free_claims()
        else:
            del self.objects[kind][name]
            await self._tell(kind, "DELETED", found)
        return found

    async def _free_claims(self) -> None:
        """Remove those that are to go and that no pod has."""
        used = {
            volume["persistentVolumeClaim"]["claimName"]
            for pod in self.objects["pods"].values()
            for volume in pod["spec"]["volumes"]
            if "persistentVolumeClaim" in volume
        }
        for name, claim in list(self.objects["persistentvolumeclaims"].items()):
            if claim["metadata"].get("deletionTimestamp") and name not in used:
                del self.objects["persistentvolumeclaims"][name]
                self.node.forget_claim(name)
                await self._tell("persistentvolumeclaims", "DELETED", claim)

    async def _watched(self, request: web.Request, kind: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        seen = int(request.query.get("resourceVersion") or self._version)
        until = time.monotonic() + float(request.query.get("timeoutSeconds", "60"))
        oldest = self._events[0][0] if len(self._events) == _EVENTS else 0
        if seen + 1 < oldest:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
            return response
        with contextlib.suppress(ConnectionError, TimeoutError):
            while time.monotonic() < until and self._runner is not None:
                for version, of, event, item in list(self._events):
                    if version > seen and of == kind and _is_selected(item, request.query):
                        await response.write(json.dumps({"type": event, "object": item}).encode() + b"\n")
                seen = self._version
                async with self._news, asyncio.timeout(max(0.0, until - time.monotonic())):
                    while self._version == seen:
                        await self._news.wait()
        return response

    async def _tell(self, kind: str, event: str, item: Object) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, kind, event, json.loads(json.dumps(item))))
        async with self._news:
            self._news.notify_all()

    async def _exec(self, request: web.Request, name: str) -> web.StreamResponse:
        pod = self._found("pods", name)
        socket = web.WebSocketResponse(protocols=self.exec_protocols, heartbeat=None)
        identity = self._containers.get(name)
        if pod["status"]["phase"] != "Running" or identity is None:
            raise RefusedError(400, "BadRequest", f"container not found ({request.query.get('container')!r})")
        await socket.prepare(request)
        if socket.ws_protocol is None:
            await socket.close(code=1002)
            return socket
        has_input = request.query.get("stdin") == "true"
        try:
            command = await self.node.exec(identity, request.query.getall("command"), has_input=has_input)
        except EngineError as error:
            await _end_exec(socket, 255, str(error))
            return socket
        feeding = asyncio.create_task(self._feed(socket, command.writer))
        try:
            async for channel, piece in command.pieces():
                await socket.send_bytes(bytes([channel]) + piece)
            await _end_exec(socket, await command.exit_code())
        except (ConnectionError, RuntimeError):
            pass  # the client has gone
        finally:
            feeding.cancel()
            await asyncio.wait({feeding})
            await closed(command.writer)
        return socket

    async def _feed(self, socket: web.WebSocketResponse, writer: asyncio.StreamWriter) -> None:
        try:
            async for message in socket:
                if message.type is not WSMsgType.BINARY or not message.data:
                    continue
                if message.data[0] == 0:
                    writer.write(message.data[1:])
                    await writer.drain()
                elif message.data[0] == 255 and message.data[1:] == b"\0" and socket.ws_protocol == "v5.channel.k8s.io":
                    writer.write_eof()
        finally:
            await closed(writer)

    # --- what controllers and the kubelet do ---

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _live(self, pod: Object) -> None:
        """From its creation to the end of its container."""
        name = pod["metadata"]["name"]
        image = pod["spec"]["containers"][0]["image"]
        if (status := self.unready.get(image)) is not None:
            await self._now_is(pod, **status)
            return
        scheduled = {"type": "PodScheduled", "status": "True"}
        pod["spec"].setdefault("nodeName", self.node.name)
        await self._now_is(pod, conditions=[scheduled])
        await self.node.prepare(pod, self.objects["configmaps"])
        identity = ""
        try:
            for container in pod["spec"].get("initContainers", ()):
                code, words = await self.node.prepare_by(pod, container)
                if code:
                    ended = {"ExitCode": code, "Words": words}
                    told = {"name": container["name"], "state": {"terminated": _terminated(ended, "")}}
                    await self._now_is(pod, phase="Failed", initContainerStatuses=[told])
                    return
            [container] = pod["spec"]["containers"]
            if "deletionTimestamp" in pod["metadata"]:
                return
            identity = await self.node.run(pod, container, networked=self._has_a_way_out(pod))
            self._containers[name] = identity
            running = {"name": container["name"], "ready": True, "state": {"running": {"startedAt": _now()}}}
            await self._now_is(pod, phase="Running", containerStatuses=[running])
            ended = await self.node.wait(identity)
        except EngineError as error:
            reason = "StartError" if "exec" in str(error) else "ContainerCannotRun"
            broken = {"exitCode": 128, "reason": reason, "message": str(error)}
            told = {"name": "sandbox", "state": {"terminated": broken}}
            await self._now_is(pod, phase="Failed", containerStatuses=[told])
            return
        told = {"name": "sandbox", "state": {"terminated": _terminated(ended, pod["status"].pop("_reason", ""))}}
        phase = "Failed" if ended["ExitCode"] else "Succeeded"
        await self._now_is(pod, phase=phase, containerStatuses=[told])

    async def _end(self, pod: Object, grace: float) -> None:
        name = pod["metadata"]["name"]
        if (identity := self._containers.get(name)) is not None:
            await self.node.end(identity, grace)
            await self.node.remove(identity)
        if self.objects["pods"].get(name) is pod:
            del self.objects["pods"][name]
            self._containers.pop(name, None)
            self.node.forget_pod(pod)
            await self._tell("pods", "DELETED", pod)
            await self._free_claims()

    async def _now_is(self, pod: Object, **status: Any) -> None:
        if self.objects["pods"].get(pod["metadata"]["name"]) is pod:
            if pod["status"].get("reason") != "Evicted":
                pod["status"] |= status
            await self._tell("pods", "MODIFIED", pod)

    def _has_a_way_out(self, pod: Object) -> bool:
        """What the policies that are about a pod let out; one that none is about may do anything."""
        labels = pod["metadata"]["labels"]
        about = [
            one["spec"]
            for one in self.objects["networkpolicies"].values()
            if one["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
        ]
        return not about or any(one["egress"] for one in about)


async def _end_exec(socket: web.WebSocketResponse, code: int, message: str = "") -> None:
    status: Object = {"metadata": {}, "status": "Success"}
    if message:
        status = {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}
    elif code:
        causes = [{"reason": "ExitCode", "message": str(code)}]
        text = f"command terminated with non-zero exit code: exit status {code}"
        about = {"metadata": {}, "status": "Failure", "message": text, "reason": "NonZeroExitCode"}
        status = {**about, "details": {"causes": causes}}
    await socket.send_bytes(b"\x03" + json.dumps(status).encode())
    await socket.close()


def _admit(pod: Object) -> None:
    """The level `restricted` of pod security, and that no account of the cluster is in the pod."""
    spec = pod["spec"]
    person = spec["securityContext"]
    is_restricted = (
        person.get("runAsNonRoot")
        and person.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost")
        and not any(spec.get(one) for one in ("hostNetwork", "hostPID", "hostIPC"))
    )
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        rules = container["securityContext"]
        is_restricted = is_restricted and rules["allowPrivilegeEscalation"] is False and not rules.get("privileged")
        is_restricted = is_restricted and "ALL" in rules["capabilities"]["drop"]
    if not is_restricted or spec.get("automountServiceAccountToken") is not False:
        raise RefusedError(403, "Forbidden", 'pods is forbidden: violates PodSecurity "restricted:latest"')


def _terminated(ended: Mapping[str, Any], reason: str) -> Object:
    why = reason or ("OOMKilled" if ended.get("OOMKilled") else "Error" if ended["ExitCode"] else "Completed")
    return {"exitCode": ended["ExitCode"], "reason": why, "message": ended["Words"]}


def _is_selected(item: Object, query: Mapping[str, str]) -> bool:
    labels = item["metadata"].get("labels") or {}
    for part in filter(None, query.get("labelSelector", "").split(",")):
        key, _, value = part.partition("=")
        if key not in labels or ("=" in part and labels[key] != value):
            return False
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = part.partition("=")
        found: Any = item
        for step in path.split("."):
            found = found.get(step, {}) if isinstance(found, dict) else {}
        if found != value:
            return False
    return True


def _merge(found: Object, patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            _merge(found.setdefault(key, {}), value)
        else:
            found[key] = value


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
