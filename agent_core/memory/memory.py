"""The memory: the subscriber that answers recalls with facts of the workspace and with skills."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any, Final

from agent_core.errors import EventStoreError, SandboxError, SkillValidationError, StreamClosedError, ToolError
from agent_core.events.branches import Branches, Rewind, read_branch
from agent_core.events.control import (
    Condensation,
    RecallAction,
    RecalledKnowledge,
    RecallObservation,
    SkillLeftOut,
    ToolServerFailed,
)
from agent_core.events.llm_events import ObservationEvent, SystemPromptEvent
from agent_core.events.messages import TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice
from agent_core.memory.transcript import later_secrets
from agent_core.skills.context import MAX_NOTES_CHARS, NOTES_FILE, AgentContext, available_skills
from agent_core.skills.loader import PROJECT_FOLDERS, project_skills
from agent_core.skills.skill import SERVERS_REFUSED, TRUSTED_LEVELS, Skill
from agent_core.spelling import spelled
from agent_core.tools.context import SandboxAccess
from agent_core.tools.invoke_skill import InvokeSkillObservation

logger = logging.getLogger(__name__)


FACTS_SECONDS = 10.0
MAX_SERVERS = 5
MAX_PROBLEMS = 20
STORE_RETRIES = (0.2, 1.0, 5.0, 15.0)
_NOT_STORED_YET = -1
_VARIABLE: Final = re.compile(r"- \$(\w+)")
"""How a secret is named wherever a model is told of it."""


@spelled
class Memory:
    """Answers each recall of one conversation exactly once, whatever happens.

    `rewinding` is held while the conversation is rewound, and while an answer is stored: an answer found before a
    rewind must not come behind it. `context` has the agent's own skills, `secrets` gives descriptions by name,
    `remarks` what else there is to say about a workspace, `repository` what the one is called (``owner/name``) that the
    conversation began with; `left_out` names skills that are not used. A memory that
    `is_silent` answers with nothing. `attach` takes the workspace's skills that the agent may ask for by name; without
    it the agent reads their files. `organization` are skills that are told with the workspace's, `bring` takes those
    with MCP servers that were brought up. `problems` are those of skills from elsewhere; they are told with the
    workspace's, once, when that is known.
    """

    def __init__(
        self,
        stream: EventStream,
        sandbox: SandboxAccess,
        *,
        instructions: str = "",
        repository: str = "",
        context: AgentContext | None = None,
        model: str = "",
        secrets: Callable[[], Mapping[str, str]] = dict,
        remarks: Callable[[Mapping[str, Any]], Awaitable[str]] | None = None,
        left_out: frozenset[str] = frozenset(),
        is_silent: bool = False,
        attach: Callable[[Sequence[Skill]], None] | None = None,
        organization: Sequence[Skill] = (),
        bring: Callable[[Sequence[Skill]], None] | None = None,
        problems: Iterable[SkillValidationError] = (),
        rewinding: asyncio.Lock | None = None,
    ) -> None:
        self._is_silent = is_silent
        self._remarks = remarks
        self._stream = stream
        self._sandbox = sandbox
        self._instructions = instructions
        self._repository = repository
        self._reads_notes = context is not None and context.load_memory
        self._knowledge = Knowledge(context, model=model, left_out=left_out, organization=organization)
        self._has_seen_workspace = self._has_recalled_workspace = False
        self._attach = attach
        self._bring = bring
        self._brought: set[str] = set()
        self._problems = list(problems)
        self._told: set[str] = set()
        self._secrets = SecretCatalog(secrets)
        self._open: dict[int, RecallAction] = {}
        self._rewinding = rewinding or asyncio.Lock()
        self._branches = Branches()
        self._is_stale = False

    def rules_for(self, path: str) -> tuple[TextContent, list[str]] | None:
        """What there is to say of a touched file, with the names of the rules; each rule once."""
        return None if self._is_silent else self._knowledge.rules_for(path)

    def observe(self, event: AnyEvent) -> None:
        if self._branches.fold(event):
            self._note(event)
        self._is_stale = self._is_stale or isinstance(event, Rewind)

    def _note(self, event: AnyEvent) -> None:
        if isinstance(event, RecallAction):
            self._open[event.id] = event
        elif isinstance(event, RecallObservation):
            self._open.pop(event.cause, None)
            self._has_recalled_workspace = self._has_recalled_workspace or event.recall_type == "workspace_context"
        self._knowledge.observe(event)
        self._secrets.observe(event)
        self._bring_servers()

    def _bring_servers(self, names: Collection[str] = ()) -> None:
        """Have the servers of the skills that were brought up, and of `names` that will be; a rewind leaves them."""
        if self._bring is None:
            return
        up = [
            skill
            for skill in self._knowledge.context.active_skills
            if skill.mcp_tools
            and skill.trigger is not None
            and skill.level in TRUSTED_LEVELS
            and (skill.name in names or skill.name in self._knowledge.recalled)
            and skill.name not in self._brought
        ]
        if up:
            self._brought.update(skill.name for skill in up)
            self._bring(up)

    async def rejoin(self) -> None:
        """Forget what a rewind among the observed events undid; raises `EventStoreError`."""
        if self._is_stale:
            self._open.clear()
            self._knowledge.recalled.clear()
            self._secrets.recalled.clear()
            async for event in read_branch(self._stream, self._branches):
                self._note(event)
            self._is_stale = False

    async def look_again(self) -> None:
        """Load the skills of a workspace that an earlier process has told of, before anybody asks for one."""
        if self._has_recalled_workspace and not self._is_silent:
            await self._facts()
            await self._tell(self._left_out())

    async def skills(self) -> list[Skill]:
        if not self._has_seen_workspace and not self._is_silent:
            await self._facts()
        return self._knowledge.context.active_skills

    async def run(self) -> None:
        """Answer what an earlier process left open, then follow the log until the stream is closed."""
        await self.rejoin()  # where that failed before, which is why this runs again
        await self._answer_open()
        async with self._stream.subscribe(after=self._branches.last_id) as events:
            async for event in events:
                self.observe(event)  # type: ignore[arg-type] # no notices were asked for
                await self.rejoin()
                await self._answer_open()

    async def _answer_open(self) -> None:
        for recall in list(self._open.values()):
            answer = await self._answer(recall)
            told = {known.name for known in answer.microagent_knowledge}
            self._bring_servers(told)  # first, since the step that follows has their tools
            stored = await self._store(answer)
            if stored is None:
                return
            self._open.pop(recall.id, None)
            self._knowledge.observe(stored)  # before the next question, which may be about the same
            self._secrets.observe(stored)
            begins = recall.recall_type == "workspace_context"
            left_out = self._left_out() if begins else []
            await self._tell([*left_out, *self._refused_servers(told, always_on=begins)])

    def _left_out(self) -> list[AnyEvent]:
        """The broken skills that were not told of yet, each once for as long as this memory is there."""
        found: list[AnyEvent] = []
        for error in (*self._problems, *self._knowledge.problems):
            text = str(error)
            if text not in self._told and len(self._told) < MAX_PROBLEMS:
                self._told.add(text)
                logger.warning(
                    "conversation %s: a file of a skill cannot be used: %s", self._stream.conversation_id, text
                )
                detail = f"A file of a skill cannot be used: {text}"
                found.append(SkillLeftOut(path=error.path, line=error.line, detail=detail))
        return found

    def _refused_servers(self, told: Collection[str], *, always_on: bool) -> list[AnyEvent]:
        return [
            ToolServerFailed(
                server=server, detail=f"MCP server {server!r} of the skill {skill.name!r}: {SERVERS_REFUSED}"
            )
            for skill in self._knowledge.project
            if (always_on and skill.trigger is None) or skill.name in told
            for server in skill.mcp_server_names[:MAX_SERVERS]
        ]

    async def _tell(self, events: Sequence[AnyEvent]) -> None:
        if not events:
            return
        try:
            await self._stream.add_events(events)
        except (EventStoreError, StreamClosedError) as error:
            logger.warning("conversation %s: %s", self._stream.conversation_id, error)

    async def _store(self, answer: RecallObservation) -> AnyEvent | None:
        """Store it however long that takes (a full disk may get room again): the agent waits for it.

        None: the stream is closed, or a rewind came meanwhile, and the question is looked at anew.
        """
        delays = chain(STORE_RETRIES, repeat(STORE_RETRIES[-1]))
        while not self._stream.closed:
            try:
                async with self._rewinding:
                    unread = [event async for event in self._stream.history(after=self._branches.last_id)]
                    is_undone = any(isinstance(event, Rewind) for event in unread)
                    return None if is_undone else await self._stream.add_event(answer)
            except StreamClosedError:
                return None
            except EventStoreError as error:
                delay = next(delays)
                if not error.code:  # else the store's owner tells all, once
                    recall = f"{self._stream.conversation_id}:{answer.cause}"
                    logger.error("recall %s is not answered yet, next try in %s s: %s", recall, delay, error)
                    self._stream.publish(StatusNotice("STATUS$ERROR_MEMORY", str(error), "error"))
                await asyncio.sleep(delay)
        return None

    async def _answer(self, recall: RecallAction) -> RecallObservation:
        if self._is_silent:
            return RecallObservation(cause=recall.id, recall_type=recall.recall_type)
        if recall.recall_type == "knowledge":
            if not self._has_seen_workspace:  # it was told about by an earlier process
                await self._facts()
            return RecallObservation(
                cause=recall.id,
                recall_type="knowledge",
                custom_secrets_descriptions=self._secrets.untold,
                microagent_knowledge=self._knowledge.triggered(recall.query),
            )
        facts = await self._facts()
        git = facts.get("git")
        git = git if isinstance(git, dict) else {}
        system, python, user = (_text(facts.get(name)) for name in ("os", "python", "user"))
        machine = ", ".join(filter(None, (system, python and f"Python {python}", user and f"user {user}")))
        can_invoke = self._attach is not None and bool(self._knowledge.invocable)
        instructions = [
            f"Machine: {machine}" if machine else "",
            available_skills(self._knowledge.project, can_invoke=can_invoke),
            await self._notes(),
            await self._remarks(facts) if self._remarks is not None else "",
            later_secrets(self._secrets.untold),
        ]
        always_on = [skill for skill in self._knowledge.project if skill.is_always_on]
        return RecallObservation(
            cause=recall.id,
            recall_type="workspace_context",
            repo_name=self._repository_at(_text(git.get("root"))) or name_of_remote(_text(git.get("remote"))),
            repo_directory=_text(git.get("root")),
            repo_branch=_text(git.get("branch")),
            repo_instructions="\n\n".join(f"From {skill.source}:\n{skill.content}" for skill in always_on),
            additional_agent_instructions="\n\n".join(filter(None, instructions)),
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            custom_secrets_descriptions=dict(self._secrets.current()),
            conversation_instructions=self._instructions,
            working_dir=_text(facts.get("working_dir")) or self._sandbox.working_dir,
            microagent_knowledge=self._knowledge.triggered(recall.query),
        )

    def _repository_at(self, root: str) -> str:
        """The repository that the conversation began with, if that is what is there."""
        folder = self._repository.rpartition("/")[2].removesuffix(".git")
        return self._repository.removesuffix(".git") if folder and root.rpartition("/")[2] == folder else ""

    async def _notes(self) -> str:
        if not self._reads_notes:
            return ""
        path = f"{self._sandbox.working_dir}/{NOTES_FILE}"
        arguments = {"path": path, "limit": MAX_NOTES_CHARS * 4}
        try:
            reply = await self._sandbox.request("file.read", arguments, limit_seconds=FACTS_SECONDS)
        except (SandboxError, ToolError) as error:
            logger.debug("no notes in the workspace of %s: %s", self._stream.conversation_id, error)
            return ""
        text = (reply.blob or b"").decode("utf-8", "replace").strip()[:MAX_NOTES_CHARS]
        return f"Notes of earlier conversations about this project ({NOTES_FILE}):\n{text}" if text else ""

    async def _facts(self) -> dict[str, Any]:
        try:
            facts = (await self._sandbox.request("workspace.facts", {}, limit_seconds=FACTS_SECONDS)).result
        except (SandboxError, ToolError) as error:
            # The agent can work without them; its first command will say what is wrong with the sandbox.
            if not self._stream.closed:
                logger.warning("no facts of the workspace of %s: %s", self._stream.conversation_id, error)
            return {}
        self._knowledge.take_workspace(facts)
        self._has_seen_workspace = True
        if self._attach is not None and (skills := self._knowledge.invocable):
            self._attach(skills)
        return facts


class Knowledge:
    """The skills of a conversation and its workspace but for those in `left_out`.

    `context` has all of them, `project` those of the workspace and of its `organization`, `problems` what is wrong with
    files of the workspace, `recalled` by which event each was told. Without a `context` everything that the workspace
    holds is used.
    """

    def __init__(
        self,
        context: AgentContext | None,
        *,
        model: str = "",
        left_out: frozenset[str] = frozenset(),
        organization: Sequence[Skill] = (),
    ) -> None:
        self._organization = [skill.at("organization") for skill in organization if skill.name not in left_out]
        self._left_out = left_out
        self._configured = context
        self.context = context or AgentContext()
        self._model = model
        self.project: list[Skill] = []
        self.problems: list[SkillValidationError] = []
        self._roots: list[str] = []
        self.recalled: dict[str, int] = {}
        self._prompt: str | None = None
        self._last_texts: dict[str, str] = {}

    def observe(self, event: AnyEvent) -> None:
        if isinstance(event, SystemPromptEvent):
            self._prompt = event.dynamic_context.text if event.dynamic_context is not None else ""
        elif isinstance(event, RecallObservation):
            self._last_texts.update((known.name, known.content) for known in event.microagent_knowledge)
            self.recalled.update((known.name, event.id) for known in event.microagent_knowledge)
        elif isinstance(event, ObservationEvent):
            self.recalled.update((name, event.id) for name in event.activated_skills)
            if isinstance(event.observation, InvokeSkillObservation) and event.observation.skill_name:
                self.recalled[event.observation.skill_name] = event.id
        elif isinstance(event, Condensation):
            forgotten = set(event.forgotten_event_ids)
            self.recalled = {name: place for name, place in self.recalled.items() if place not in forgotten}

    def take_workspace(self, facts: Mapping[str, Any]) -> None:
        files = {**_files(facts.get("instructions")), **_files(facts.get("skills"))}
        git = facts.get("git")
        roots = [facts.get("working_dir"), git.get("root") if isinstance(git, dict) else None]
        places = [root.rstrip("/") for root in roots if isinstance(root, str) and root]
        self.problems = []
        every = project_skills(files, places, model=self._model, report=self.problems.append)
        found = [skill for skill in every if skill.name not in self._left_out]
        self._roots = sorted(places, key=len)
        if self._configured is not None and not self._configured.load_project_skills:
            folders = [f"/{folder}/" for folder in PROJECT_FOLDERS]
            found = [skill for skill in found if not any(folder in (skill.source or "") for folder in folders)]
        self.context = (self._configured or AgentContext()).merged(project=found, organization=self._organization)
        active = {skill.name: skill for skill in self.context.active_skills}
        self.project = [skill for skill in (*found, *self._organization) if active.get(skill.name) is skill]

    @property
    def invocable(self) -> list[Skill]:
        """The listed skills of the workspace; none where all of them are files to be read, and no AgentSkills."""
        listed = [skill for skill in self.project if skill.is_listed]
        is_served = any(skill.is_agentskills_format or skill.level == "organization" for skill in listed)
        return listed if is_served else []

    def triggered(self, message: str) -> list[RecalledKnowledge]:
        """What a message brings up, and which skills always count that came after the system message."""
        return [*self._later(), *self.context.triggered(message, self.recalled)]

    def _later(self) -> list[RecalledKnowledge]:
        if self._prompt is None:
            return []
        workspace = {skill.name for skill in self.project}
        return [
            RecalledKnowledge(name=skill.name, trigger="", content=skill.content)
            for skill in self.context.active_skills
            if skill.is_always_on
            and skill.name not in workspace
            and skill.content not in self._prompt
            and (skill.name not in self.recalled or self._last_texts.get(skill.name) != skill.content)
        ]

    def rules_for(self, path: str) -> tuple[TextContent, list[str]] | None:
        """The rules for a touched file that were not told yet, and their names; they count as told now."""
        root = next((root for root in self._roots if path.startswith(f"{root}/")), None)
        if path.startswith("/") and root is None:
            return None
        relative = path.removeprefix(f"{root}/") if root is not None else path
        rules = self.context.get_tool_use_suffix(relative, self.recalled)
        if rules is not None:
            self.recalled.update((name, _NOT_STORED_YET) for name in rules[1])
        return rules


class SecretCatalog:
    """The secrets' descriptions by name, as `current` gives them, and by which event each was told."""

    def __init__(self, current: Callable[[], Mapping[str, str]]) -> None:
        self.current = current
        self.recalled: dict[str, int] = {}

    def observe(self, event: AnyEvent) -> None:
        if isinstance(event, SystemPromptEvent):
            self._note(event, event.dynamic_context.text if event.dynamic_context is not None else "")
        elif isinstance(event, RecallObservation):
            self._note(event, event.additional_agent_instructions)
            if event.recall_type == "knowledge":
                self.recalled.update((name, event.id) for name in event.custom_secrets_descriptions)
        elif isinstance(event, Condensation):
            forgotten = set(event.forgotten_event_ids)
            self.recalled = {name: place for name, place in self.recalled.items() if place not in forgotten}

    def _note(self, event: AnyEvent, text: str) -> None:
        self.recalled.update((name, event.id) for name in _VARIABLE.findall(text))

    @property
    def untold(self) -> dict[str, str]:
        return {name: text for name, text in self.current().items() if name not in self.recalled}


_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/]*(?:/|$)", re.IGNORECASE)
_OF_A_USER: Final = re.compile(r"(?:[^@/:]+@)?[^/:]+:")


def name_of_remote(address: str) -> str:
    """``owner/name`` of the repository at a remote's address on any host; that of a folder is its own name."""
    address = address.rstrip("/").removesuffix(".git")
    if found := _SCHEME.match(address) or _OF_A_USER.match(address):
        parts = [part for part in address[found.end() :].split("/") if part and part != "_git"]
        return "/".join(parts)
    return address.rpartition("/")[2]


def _text(value: Any) -> str:
    """For what comes from a sandbox: it is not trusted to have its form."""
    return value if isinstance(value, str) else ""


def _files(found: Any) -> dict[str, str]:
    listed: Iterable[Any] = found if isinstance(found, list) else []
    pairs = [(one.get("path"), one.get("content")) for one in listed if isinstance(one, dict)]
    return {path: text for path, text in pairs if isinstance(path, str) and isinstance(text, str)}
