"""The points at which a server is killed: before and after each function in which something is written or told.

The product knows nothing of them. A server process that is started with ``RUN_FIRST=tests.chaos.points:arm`` (see
`tests.integration.server.forks`) has these functions wrapped: each pass is noted in the file ``FAULT_TRACE``, and the
process kills itself at the one that ``FAULT_POINT`` names (``number:before:3``, the third time).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import signal
import sys
from importlib import import_module
from typing import Any, Literal, NamedTuple

Side = Literal["before", "after"]
_DB = "server.db.repositories"
_CLUSTERED = "server.conversation_manager.clustered:ClusteredConversationManager"
_STANDALONE = "server.conversation_manager.standalone:StandaloneConversationManager"


class FaultPoint(NamedTuple):
    """One function (``module:name`` or ``module:Class.name``) at whose begin and end a server is killed.

    `provider`: only where sandboxes are made so, or of several servers (``cluster``); `part`: only where the workload
    has that part, or the server is ended or frozen; `later`: only by a server that takes up the work of another;
    `command`: not the server is killed there, but this command beside it.
    """

    name: str
    function: str
    provider: str = ""
    part: str = ""
    later: bool = False
    command: str = ""


POINTS = (
    FaultPoint("append", "agent_core.events.stream:EventStream.add_events"),
    FaultPoint("commit", "server.db.writer:Writer._commit"),
    FaultPoint("insert", "server.db.writer:Writer._insert"),
    FaultPoint("append in the store", "server.db.event_store:SqlEventStore._append"),
    FaultPoint("change", "server.db.writer:Writer._apply"),
    FaultPoint("claim of a log", "server.db.event_store:SqlEventStore.claim"),
    FaultPoint("blob write", "server.db.blobs:FolderBlobStore.put", part="import"),
    FaultPoint("blob delete", "server.db.blobs:FolderBlobStore.delete", part="import"),
    FaultPoint("emit to a client", "server.sockets.feed:Feed._send"),
    FaultPoint("step", "agent_core.controller.step:Step.take"),
    FaultPoint("model call", "agent_core.llm.llm:LLM.acompletion"),
    FaultPoint("step stored", "agent_core.controller.step:Step._store_whole"),
    FaultPoint("action", "agent_core.runtime.action_runner:ActionRunner.execute"),
    FaultPoint("answer", "agent_core.runtime.runtime:Runtime._answer"),
    FaultPoint("sandbox request", "agent_core.runtime.channel.connection:SandboxConnection.request"),
    FaultPoint("MCP program start", "agent_core.session.tool_servers:SandboxPrograms.start", part="mcp"),
    FaultPoint("MCP program write", "agent_core.session.tool_servers:SandboxProgram.write", part="mcp"),
    FaultPoint("sub-agents", "agent_core.controller.delegation:Delegation._carry_out", part="subagents"),
    FaultPoint("sub-agent", "agent_core.controller.child_run:ChildRun.run", part="subagents"),
    FaultPoint("state recorded", "server.session.recorder:Recorder.record_state"),
    FaultPoint("snapshot", "agent_core.runtime.snapshots:ConversationSnapshots._take"),
    FaultPoint("snapshot of the present", "agent_core.runtime.snapshots:keep"),
    FaultPoint("rewind", "agent_core.session.rewind:Rewinder._rewind"),
    FaultPoint("files brought back", "agent_core.runtime.snapshots:restore"),
    FaultPoint("fork", "server.conversation_manager.forks:fork_conversation", part="fork"),
    FaultPoint("fork noted", "server.session.unfinished:_note", part="fork"),
    FaultPoint("fork's log", "agent_core.session.rewind:fork_log", part="fork"),
    FaultPoint("fork's files", "server.conversation_manager.forks:_copy_files", part="fork"),
    FaultPoint("fork's note struck", "server.session.unfinished:_strike", part="fork"),
    FaultPoint("fork's files placed", "agent_core.runtime.snapshots:plant", part="fork"),
    FaultPoint("upload", "agent_core.runtime.transfers:Upload.write"),
    FaultPoint("upload kept", "agent_core.runtime.transfers:Upload.keep"),
    FaultPoint("webhook created", f"{_DB}.webhooks:WebhookRepository.create"),
    FaultPoint("webhook delivery", "server.doors.webhooks.sender:Sender.send"),
    FaultPoint("webhook position", "server.db.repositories.webhooks:WebhookRepository.move"),
    FaultPoint("webhook deleted", f"{_DB}.webhooks:WebhookRepository.delete"),
    FaultPoint("settings write", f"{_DB}.user_settings:SettingsRepository.change"),
    FaultPoint("secret created", f"{_DB}.user_secrets:SecretRepository.create"),
    FaultPoint("secret changed", f"{_DB}.user_secrets:SecretRepository.change"),
    FaultPoint("secret deleted", f"{_DB}.user_secrets:SecretRepository.delete"),
    FaultPoint("once", f"{_DB}.idempotency_keys:IdempotencyKeys.once"),
    FaultPoint("conversation created", f"{_DB}.conversations:ConversationRepository.create"),
    FaultPoint("conversation changed", f"{_DB}.conversations:ConversationRepository.update"),
    FaultPoint("conversation touched", f"{_DB}.conversations:Touches.flush"),
    FaultPoint("conversation deleted", f"{_DB}.conversations:ConversationRepository.delete"),
    FaultPoint("conversation's option", f"{_DB}.conversations:ConversationRepository._extend", later=True),
    FaultPoint("life noted", "server.session.crash_guard:CrashGuard._write", later=True),
    FaultPoint("place in the queue", "server.session.run_queue:RunQueue._keep_place", part="queue"),
    FaultPoint("places forgotten", f"{_DB}.conversations:ConversationRepository.forget_places"),
    FaultPoint("webhook changed", f"{_DB}.webhooks:WebhookRepository.update", part="keeping"),
    FaultPoint("note kept", f"{_DB}.notes:NoteRepository.add", part="keeping"),
    FaultPoint("notes indexed", f"{_DB}.notes:NoteRepository._index", part="keeping"),
    FaultPoint("note changed", f"{_DB}.notes:NoteRepository.change", part="keeping"),
    FaultPoint("note deleted", f"{_DB}.notes:NoteRepository.delete", part="keeping"),
    FaultPoint("skill put", f"{_DB}.user_skills:SkillRepository.put", part="keeping"),
    FaultPoint("skill switched", f"{_DB}.user_skills:SkillRepository.enable", part="keeping"),
    FaultPoint("skill deleted", f"{_DB}.user_skills:SkillRepository.delete", part="keeping"),
    FaultPoint("feedback", f"{_DB}.feedback:FeedbackRepository.add", part="keeping"),
    FaultPoint("shared", f"{_DB}.shares:ShareRepository.add", part="keeping"),
    FaultPoint("share taken back", f"{_DB}.shares:ShareRepository.remove", part="keeping"),
    FaultPoint("chat answered", f"{_DB}.chat_turns:ChatTurnRepository.keep", part="chat"),
    FaultPoint("plugin fetched", "server.session.agents.plugin_fetch:_fetched", part="plugin"),
    FaultPoint("plugin added", f"{_DB}.plugins:PluginRepository.add", part="plugin"),
    FaultPoint("plugin replaced", f"{_DB}.plugins:PluginRepository.replace", part="plugin"),
    FaultPoint("plugin switched", f"{_DB}.plugins:PluginRepository.enable", part="plugin"),
    FaultPoint("plugin deleted", f"{_DB}.plugins:PluginRepository.delete", part="plugin"),
    FaultPoint("plugin placed", "agent_core.session.sandbox_plugins:SandboxPlugins.bring_up", part="plugin"),
    FaultPoint("hook", "agent_core.runtime.hook_calls:ConversationHooks._run", part="plugin"),
    FaultPoint("archive taken", "server.conversation_manager.conversation_archives:import_archive", part="archive"),
    FaultPoint("condensation", "agent_core.memory.condensers:LLMSummarizingCondenser.condensation", part="condenser"),
    FaultPoint("title", "server.session.titles:TitleKeeper._give_title"),
    FaultPoint("import", "server.routes.conversations.imports:import_conversation", part="import"),
    FaultPoint("leftovers", "server.db.leftovers:remove_leftovers"),
    FaultPoint("unfinished removed", "server.session.unfinished:remove_unfinished_forks"),
    FaultPoint("warm sandbox made", "server.session.warm_sandboxes:WarmSandboxes._make"),
    FaultPoint("warm sandbox looked for", "server.session.warm_sandboxes:WarmSandboxes._offer"),
    FaultPoint("warm sandbox taken", "server.session.warm_sandboxes:WarmSandboxes.taken"),
    FaultPoint("warm sandbox removed", "server.session.warm_sandboxes:WarmSandboxes._end"),
    FaultPoint("sweep", "server.session.sandboxes:Sandboxes._reap"),
    FaultPoint("recovery", "server.session.recovery:Recovery.resume_all"),
    FaultPoint("load", "server.session.web_session:WebSession._load"),
    FaultPoint("start", "agent_core.session.agent_session:AgentSession._start"),
    FaultPoint("unload", "server.session.web_session:WebSession._unload", part="rest"),
    FaultPoint("stop", "server.conversation_manager.standalone:StandaloneConversationManager.stop"),
    FaultPoint("delete", "server.conversation_manager.standalone:StandaloneConversationManager.delete"),
    FaultPoint("local sandbox start", "agent_core.runtime.local.sandbox:LocalSandbox.start", "local"),
    FaultPoint("local sandbox launch", "agent_core.runtime.local.sandbox:LocalSandbox._launch", "local"),
    FaultPoint("sandbox pause", "agent_core.runtime.channel.connection:SandboxConnection.pause", part="rest"),
    FaultPoint("local sandbox resume", "agent_core.runtime.local.sandbox:LocalSandbox.resume", "local", "rest"),
    FaultPoint("local sandbox stop", "agent_core.runtime.local.sandbox:LocalSandbox.stop", "local"),
    FaultPoint("local sandbox remove", "agent_core.runtime.local.sandbox:LocalSandbox.destroy", "local"),
    FaultPoint("room in the database's log", "server.db.database:Database.make_room"),
    FaultPoint("key checked", "server.db.sealing_keys:check_key"),
    FaultPoint("key's exchange finished", "server.db.sealing_keys:finish_rotation"),
    FaultPoint("key exchanged", "server.db.sealing_keys:rotate_key", part="rotation", command="rotate-key"),
    FaultPoint("key put in place", "server.db.sealing_keys:_take", part="rotation", command="rotate-key"),
    FaultPoint("operator's plugins", f"{_DB}.plugins:PluginRepository.keep_only", part="plugin"),
    FaultPoint("retention", "server.conversation_manager.retention:Retention._round", part="retention"),
    FaultPoint("sign-in kept", f"{_DB}.mcp_sign_ins:McpSignInRepository._change", part="sign-in"),
    FaultPoint("sign-in taken", f"{_DB}.mcp_sign_ins:McpSignInRepository.take", part="sign-in"),
    FaultPoint("sign-in begun", "agent_core.mcp.sign_in:SignIns.begin", part="sign-in"),
    FaultPoint("sign-in finished", "agent_core.mcp.sign_in:SignIns.finish", part="sign-in"),
    FaultPoint("signed out", "agent_core.mcp.sign_in:SignIns.sign_out", part="sign-in"),
    FaultPoint("backup's database", "server.db.backup:Backup._copy", part="backup", command="backup"),
    FaultPoint("backup's payloads", "server.db.backup:Backup._add_payloads", part="backup", command="backup"),
    FaultPoint("backup's files", "server.db.backup:Backup._add_files", part="backup", command="backup"),
    FaultPoint("backup written", "server.cli.backup:_write", part="backup", command="backup"),
    FaultPoint("backup noted", "server.cli.backup:_note", part="backup", command="backup"),
    FaultPoint("older backups", "server.cli.backup:KeptBackups.remove_older", part="backup", command="backup"),
    FaultPoint("restore unpacked", "server.db.restore:Restore._unpack", part="backup", command="restore"),
    FaultPoint("restore settled", "server.db.restore:Restore._settle", part="backup", command="restore"),
    FaultPoint("restore put in place", "server.db.data_folder:_finish_restore", part="backup", command="restore"),
    FaultPoint("Docker sandbox start", "agent_core.runtime.docker.sandbox:DockerSandbox.start", "docker"),
    FaultPoint("Docker network", "agent_core.runtime.docker.networks:DockerNetworks.ensure", "docker"),
    FaultPoint("Docker container create", "agent_core.runtime.docker.objects:DockerObjects.create", "docker"),
    FaultPoint("Docker container start", "agent_core.runtime.docker.objects:DockerObjects.inject_and_start", "docker"),
    FaultPoint("Docker sandbox stop", "agent_core.runtime.docker.sandbox:DockerSandbox.stop", "docker"),
    FaultPoint("Docker sandbox remove", "agent_core.runtime.docker.sandbox:DockerSandbox.destroy", "docker"),
    FaultPoint("lease taken", f"{_DB}.leases:LeaseRepository.take", "cluster"),
    FaultPoint("leases given back", f"{_DB}.leases:LeaseRepository.release", "cluster"),
    FaultPoint("what runs told", f"{_DB}.leases:LeaseRepository.tell", "cluster"),
    FaultPoint("chores taken", f"{_DB}.leases:LeaseRepository.does", "cluster"),
    FaultPoint("turns settled", f"{_DB}.turns:TurnRepository.exchange", "cluster"),
    FaultPoint("membership renewed", f"{_DB}.leases:LeaseRepository.renew", "cluster"),
    FaultPoint("letter put", f"{_DB}.inbox:InboxRepository.put", "cluster"),
    FaultPoint("letter taken", "server.conversation_manager.inbox:Inbox._taken", "cluster"),
    FaultPoint("letter answered", f"{_DB}.inbox:InboxRepository.answer", "cluster"),
    FaultPoint("delivered once", "server.conversation_manager.inbox:Inbox.deliver_once", "cluster"),
    FaultPoint("taken over", f"{_CLUSTERED}._take_over", "cluster"),
    FaultPoint("take-over begun", f"{_STANDALONE}.take_over", "cluster"),
    FaultPoint("handed over", f"{_CLUSTERED}._hand_over", "cluster", "drain"),
    FaultPoint("server retired", f"{_DB}.leases:LeaseRepository.retire", "cluster", "drain"),
    FaultPoint("lease lost", f"{_CLUSTERED}._lost", "cluster", "freeze"),
    FaultPoint("server registered", f"{_DB}.leases:LeaseRepository.register", "cluster", "freeze"),
    FaultPoint("audit record beside a change", f"{_DB}.audit:AuditLog.append"),
    FaultPoint("audit record", f"{_DB}.audit:AuditLog.record"),
)


def pass_name(number: int, side: Side) -> str:
    return f"{number}:{side}"


def _say_what_runs(*_: object) -> None:
    """What the server is about, for one that does not come to its end: a signal asks for it."""
    for task in asyncio.all_tasks():
        task.print_stack(limit=8, file=sys.stderr)
    sys.stderr.flush()


class _Arm:
    def __init__(self, trace: str, chosen: str) -> None:
        self._trace = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._chosen, _, times = chosen.rpartition(":")
        self._left = int(times or 0)

    def passes(self, name: str) -> None:
        os.write(self._trace, f"{name}\n".encode())
        if name == self._chosen:
            self._left -= 1
            if self._left == 0:
                os.write(self._trace, f"killed {name}\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, number: int, function: Any) -> Any:
        before, after = pass_name(number, "before"), pass_name(number, "after")

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapped(*args: Any, **options: Any) -> Any:
                self.passes(before)
                result = await function(*args, **options)
                self.passes(after)
                return result
        else:

            @functools.wraps(function)
            def wrapped(*args: Any, **options: Any) -> Any:
                self.passes(before)
                result = function(*args, **options)
                self.passes(after)
                return result

        return wrapped


def find(point: FaultPoint) -> tuple[Any, str, Any]:
    """The module or class that has a point's function, the function's name there, and the function.

    Raises `LookupError` where there is none, or it is none that can be wrapped.
    """
    module_name, _, path = point.function.partition(":")
    owner: Any = import_module(module_name)
    *classes, name = path.split(".")
    for one in classes:
        owner = getattr(owner, one, None)
    function = vars(owner).get(name) if owner is not None else None
    if not inspect.isfunction(function) or inspect.isasyncgenfunction(function):
        raise LookupError(f"fault point {point.name!r}: there is no function {point.function}")
    return owner, name, function


def arm() -> None:
    """Wrap all of them in this process, which has to have imported what it will use."""
    import_module("server.app")
    signal.signal(signal.SIGUSR2, _say_what_runs)
    armed = _Arm(os.environ.pop("FAULT_TRACE"), os.environ.pop("FAULT_POINT", ""))
    loose: dict[int, Any] = {}
    is_one_of_several = bool(os.environ.pop("FAULT_CLUSTER", ""))
    for number, point in enumerate(POINTS):
        if (point.provider == "cluster") != is_one_of_several:
            continue
        owner, name, function = find(point)
        wrapped = armed.wrap(number, function)
        setattr(owner, name, wrapped)
        if inspect.ismodule(owner):
            loose[id(function)] = wrapped
    for module in list(sys.modules.values()):  # others have them under their names, too
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in loose:
                setattr(module, name, loose[id(value)])
