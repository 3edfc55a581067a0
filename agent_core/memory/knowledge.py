"""What the memory knows: the skills of a conversation and its workspace, and which were told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent_core.events.control import Condensation, RecalledKnowledge, RecallObservation
from agent_core.events.llm_events import ObservationEvent
from agent_core.events.messages import TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.skills.context import AgentContext, available_skills
from agent_core.skills.loader import PROJECT_FOLDERS, project_skills
from agent_core.skills.skill import Skill
from agent_core.tools.invoke_skill import InvokeSkillObservation

MAX_SERVERS = 5
_NOT_STORED_YET = -1


class Knowledge:
    """Finds what a message brings up; each skill once, and again only when what was told is forgotten.

    Without a `context` everything that the workspace holds is used.
    """

    def __init__(
        self, context: AgentContext | None, *, model: str = "", left_out: frozenset[str] = frozenset()
    ) -> None:
        """Skills of the workspace whose names are in `left_out` are not there."""
        self._left_out = left_out
        self._given = context
        self._context = context or AgentContext()
        self._model = model
        self._project: list[Skill] = []
        self._roots: list[str] = []
        self._told: dict[str, int] = {}

    def observe(self, event: AnyEvent) -> None:
        """Remember what was told by now, and what was forgotten."""
        if isinstance(event, RecallObservation):
            self._told.update((known.name, event.id) for known in event.microagent_knowledge)
        elif isinstance(event, ObservationEvent):
            self._told.update((name, event.id) for name in event.activated_skills)
            if isinstance(event.observation, InvokeSkillObservation) and event.observation.skill_name:
                self._told[event.observation.skill_name] = event.id
        elif isinstance(event, Condensation):
            forgotten = set(event.forgotten_event_ids)
            self._told = {name: place for name, place in self._told.items() if place not in forgotten}

    def forget_told(self) -> None:
        """Nothing was told yet: what counts is observed anew."""
        self._told.clear()

    def take_workspace(self, facts: Mapping[str, Any]) -> None:
        """Take in the skills among the facts of the workspace (the result of ``workspace.facts``)."""
        files = {**_files(facts.get("instructions")), **_files(facts.get("skills"))}
        git = facts.get("git")
        roots = [facts.get("working_dir"), git.get("root") if isinstance(git, dict) else None]
        places = [root.rstrip("/") for root in roots if isinstance(root, str) and root]
        every = project_skills(files, places, model=self._model)
        found = [skill for skill in every if skill.name not in self._left_out]
        self._roots = sorted(places, key=len)
        if self._given is not None and not self._given.load_project_skills:
            found = [skill for skill in found if not _is_in_folder(skill)]
        self._context = (self._given or AgentContext()).merged(project=found)
        active = {skill.name: skill for skill in self._context.active_skills}
        self._project = [skill for skill in found if active.get(skill.name) is skill]

    def of_workspace(self) -> str:
        """The text of all always-on skills of the workspace."""
        return "\n\n".join(f"From {skill.source}:\n{skill.content}" for skill in self._project if skill.is_always_on)

    def servers_of_workspace(self) -> list[tuple[str, str]]:
        """The MCP servers that skills of the workspace want which nothing triggers: skill and server."""
        return [
            (skill.name, server)
            for skill in self._project
            if skill.trigger is None
            for server in skill.mcp_server_names[:MAX_SERVERS]
        ]

    @property
    def active(self) -> list[Skill]:
        """All skills that may be told: the agent's own, and those of the workspace as far as it was looked at."""
        return self._context.active_skills

    @property
    def invocable(self) -> list[Skill]:
        """The skills of the workspace that an agent may ask for; none where none of them has the AgentSkills format."""
        listed = [skill for skill in self._project if skill.is_listed]
        return listed if any(skill.is_agentskills_format for skill in listed) else []

    def at_hand(self, *, can_invoke: bool) -> str:
        """The list of what else the workspace has, and how the agent gets it; "" without any."""
        return available_skills(self._project, can_invoke=can_invoke)

    def triggered(self, message: str) -> list[RecalledKnowledge]:
        """What this message brings up and was not told yet."""
        return self._context.triggered(message, self._told)

    def rules_for(self, path: str) -> tuple[TextContent, list[str]] | None:
        """The rules for a touched file that were not told yet, and their names; from now on they count as told."""
        root = next((root for root in self._roots if path.startswith(f"{root}/")), None)
        if path.startswith("/") and root is None:
            return None
        relative = path.removeprefix(f"{root}/") if root is not None else path
        rules = self._context.get_tool_use_suffix(relative, self._told)
        if rules is not None:
            self._told.update((name, _NOT_STORED_YET) for name in rules[1])
        return rules


def _is_in_folder(skill: Skill) -> bool:
    return any(f"/{folder}/" in (skill.source or "") for folder in PROJECT_FOLDERS)


def _files(found: Any) -> dict[str, str]:
    """Texts by path: what comes from a sandbox is not trusted to have its form."""
    listed: Iterable[Any] = found if isinstance(found, list) else []
    pairs = [(one.get("path"), one.get("content")) for one in listed if isinstance(one, dict)]
    return {path: text for path, text in pairs if isinstance(path, str) and isinstance(text, str)}
