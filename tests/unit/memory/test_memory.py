"""The memory's answers to recalls: the workspace with its skills, and knowledge, each once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_core.errors import SandboxError, SkillValidationError, ToolError
from agent_core.events.branches import Rewind
from agent_core.events.control import Condensation, RecallAction, RecallObservation, SkillLeftOut
from agent_core.events.llm_events import ObservationEvent, SystemPromptEvent
from agent_core.events.messages import TextContent
from agent_core.events.schema import Observation
from agent_core.events.store import InMemoryEventStore
from agent_core.events.stream import EventStream
from agent_core.memory.memory import MAX_PROBLEMS, Memory, name_of_remote
from agent_core.memory.transcript import facts_message
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import KeywordTrigger, PathTrigger, Skill
from agent_core.tools.invoke_skill import InvokeSkillObservation
from tests.answering_sandbox import AnsweringSandbox, Asked, Reply

LIMIT_SECONDS = 60.0
FOLDER = "/workspace/.openhands/microagents"


@dataclass
class Sandbox(AnsweringSandbox):
    """A sandbox that knows nothing but the facts of its workspace."""

    facts: dict[str, Any] = field(default_factory=dict)
    broken: bool = False

    def answer(self, asked: Asked) -> dict[str, Any]:
        if asked.op == "file.read":
            raise ToolError("no such file")
        assert asked.op == "workspace.facts"
        if self.broken:
            raise SandboxError("the sandbox is gone")
        return self.facts


def a_workspace() -> dict[str, Any]:
    def file(path: str, content: str) -> dict[str, str]:
        return {"path": path, "content": content}

    return {
        "working_dir": "/workspace",
        "os": "Linux",
        "instructions": [file("/workspace/AGENTS.md", "use tabs"), file("/workspace/CLAUDE.md", "for claude")],
        "skills": [
            file(f"{FOLDER}/repo.md", "run make"),
            file(f"{FOLDER}/git.md", "---\ntriggers: [git]\n---\nno force"),
            file(f"{FOLDER}/broken.md", "---\ntype: magic\n---\n"),
            {"path": 7},
        ],
    }


@dataclass
class Talk:
    """One memory at work."""

    stream: EventStream
    memory: Memory

    async def recall(self, query: str, *, first: bool = False) -> RecallObservation:
        asked = await self.stream.add_event(
            RecallAction(recall_type="workspace_context" if first else "knowledge", query=query)
        )
        return await self.answer(asked.id)

    async def answer(self, cause: int) -> RecallObservation:
        async with asyncio.timeout(LIMIT_SECONDS), self.stream.subscribe(after=cause) as events:
            async for event in events:
                if isinstance(event, RecallObservation) and event.cause == cause:
                    return event
        raise AssertionError("the stream ended")


@asynccontextmanager
async def talking(
    sandbox: Sandbox, context: AgentContext | None = None, store: InMemoryEventStore | None = None, **options: Any
) -> AsyncIterator[Talk]:
    stream = await EventStream.open("c", store or InMemoryEventStore())
    memory = Memory(stream, sandbox, context=context, **options)
    async for event in stream.history():
        memory.observe(event)
    task = asyncio.create_task(memory.run(), name="memory")
    try:
        yield Talk(stream, memory)
    finally:
        stream.close()
        await task


def names(answer: RecallObservation) -> list[str]:
    return [known.name for known in answer.microagent_knowledge]


async def test_the_first_message_brings_the_workspace_with_its_always_on_skills_and_what_it_triggers() -> None:
    async with talking(
        Sandbox(a_workspace()), instructions="be quick", secrets=lambda: {"TOKEN": "for the shop"}
    ) as talk:
        answer = await talk.recall("commit with Git", first=True)
    assert answer.repo_instructions == (
        "From /workspace/AGENTS.md:\nuse tabs\n\nFrom /workspace/CLAUDE.md:\nfor claude\n\n"
        f"From {FOLDER}/repo.md:\nrun make"
    )
    assert names(answer) == ["git"]
    assert answer.microagent_knowledge[0].trigger == "git"
    assert f"- git: no force ({FOLDER}/git.md)" in answer.additional_agent_instructions
    assert answer.custom_secrets_descriptions == {"TOKEN": "for the shop"}
    assert answer.conversation_instructions == "be quick"
    told = facts_message(answer)
    assert told is not None
    assert "no force" in told.text
    assert "use tabs" in told.text


async def test_a_skill_is_told_once_also_after_a_restart_and_nothing_found_is_an_empty_answer() -> None:
    store, sandbox = InMemoryEventStore(), Sandbox(a_workspace())
    async with talking(sandbox, store=store) as talk:
        await talk.recall("hello", first=True)
        assert (await talk.recall("what now?")).is_empty
        assert names(await talk.recall("use git")) == ["git"]
        assert (await talk.recall("use git again")).is_empty
        assert len(sandbox.asked) == 1
    async with talking(sandbox, store=store) as talk:
        assert (await talk.recall("git?")).is_empty
        assert (await talk.recall("git!")).is_empty
    assert len(sandbox.asked) == 2


async def test_two_questions_at_once_are_not_answered_with_the_same_skill() -> None:
    store = InMemoryEventStore()
    stream = await EventStream.open("c", store)
    asked = await stream.add_events([RecallAction(recall_type="knowledge", query="git") for _ in range(3)])
    stream.close()
    async with talking(Sandbox(a_workspace()), store=store) as talk:
        answers = [await talk.answer(one.id) for one in asked]
    assert [names(answer) for answer in answers] == [["git"], [], []]


async def test_what_a_condensation_has_forgotten_is_told_again() -> None:
    async with talking(Sandbox(a_workspace())) as talk:
        told = await talk.recall("git")
        await talk.stream.add_event(Condensation(forgotten_event_ids=[0]))
        assert (await talk.recall("git")).is_empty
        await talk.stream.add_event(Condensation(forgotten_event_ids=[told.id]))
        assert names(await talk.recall("git")) == ["git"]
        assert (await talk.recall("git")).is_empty


async def test_a_skill_that_the_agent_has_read_is_not_told_again_before_that_is_forgotten() -> None:
    async with talking(Sandbox(a_workspace())) as talk:
        await talk.recall("hello", first=True)
        read = ObservationEvent(
            cause=0,
            tool_name="invoke_skill",
            observation=InvokeSkillObservation.from_text("no force", skill_name="git"),
        )
        stored = await talk.stream.add_event(read)
        assert (await talk.recall("git")).is_empty
        await talk.stream.add_event(Condensation(forgotten_event_ids=[stored.id]))
        assert names(await talk.recall("git")) == ["git"]


async def test_what_a_rewind_has_undone_is_told_again() -> None:
    async with talking(Sandbox(a_workspace())) as talk:
        first = await talk.recall("hello", first=True)
        assert names(await talk.recall("git")) == ["git"]
        await talk.stream.add_event(Rewind(to=first.id))
        assert names(await talk.recall("git")) == ["git"]


def told_secrets(answer: RecallObservation) -> list[str]:
    """The names of those secrets that a model hears of from this."""
    told = facts_message(answer)
    return re.findall(r"- \$(\w+)", told.text) if told is not None else []


async def test_a_secret_that_came_later_is_told_once_with_the_next_message_also_after_a_restart() -> None:
    store, secrets = InMemoryEventStore(), {"FIRST": "for the shop"}
    async with talking(Sandbox(a_workspace()), store=store, secrets=lambda: secrets) as talk:
        said = TextContent(text="<SECRETS>\n- $FIRST: for the shop\n</SECRETS>")
        await talk.stream.add_event(SystemPromptEvent(system_prompt=TextContent(text="you"), dynamic_context=said))
        secrets["SECOND"] = ""
        first = await talk.recall("hello", first=True)
        assert first.custom_secrets_descriptions == {"FIRST": "for the shop", "SECOND": ""}
        assert told_secrets(first) == ["SECOND"]
        assert (await talk.recall("go on")).is_empty
        secrets["THIRD"] = "of the bank"
        later = await talk.recall("use it")
        assert later.custom_secrets_descriptions == {"THIRD": "of the bank"}
        assert told_secrets(later) == ["THIRD"]
        assert "- $THIRD: of the bank" in str(facts_message(later))
        assert (await talk.recall("go on")).is_empty
    secrets["FOURTH"] = ""
    async with talking(Sandbox(a_workspace()), store=store, secrets=lambda: secrets) as talk:
        assert told_secrets(await talk.recall("go on")) == ["FOURTH"]
        await talk.stream.add_event(Condensation(forgotten_event_ids=[later.id]))
        assert told_secrets(await talk.recall("go on")) == ["THIRD"]
        await talk.stream.add_event(Rewind(to=first.id))
        assert told_secrets(await talk.recall("go on")) == ["THIRD", "FOURTH"]


async def test_the_agents_own_skills_come_before_those_of_the_workspace_which_may_be_unwanted() -> None:
    own = Skill(name="git", content="rebase", trigger=KeywordTrigger(keywords=["git"]))
    both = AgentContext(skills=[own])
    async with talking(Sandbox(a_workspace()), both) as talk:
        answer = await talk.recall("git", first=True)
    assert [known.content for known in answer.microagent_knowledge] == ["rebase"]
    assert "run make" in answer.repo_instructions
    alone = AgentContext(skills=[own], load_project_skills=False)
    async with talking(Sandbox(a_workspace()), alone) as talk:
        answer = await talk.recall("git", first=True)
    assert "run make" not in answer.repo_instructions
    assert "use tabs" in answer.repo_instructions


async def test_disabled_skills_and_files_for_other_models_are_not_told() -> None:
    context = AgentContext(load_project_skills=True, disabled_skills=["git", "agents"])
    async with talking(Sandbox(a_workspace()), context, model="openai/gpt-x") as talk:
        answer = await talk.recall("git", first=True)
    assert answer.repo_instructions == f"From {FOLDER}/repo.md:\nrun make"
    assert names(answer) == []


async def test_without_a_sandbox_the_agents_own_skills_are_told_and_the_workspace_is_asked_again_later() -> None:
    own = Skill(name="own", content="known", trigger=KeywordTrigger(keywords=["word"]))
    sandbox = Sandbox(a_workspace(), broken=True)
    async with talking(sandbox, AgentContext(skills=[own], load_project_skills=True)) as talk:
        assert names(await talk.recall("a word on git", first=True)) == ["own"]
        sandbox.broken = False
        assert names(await talk.recall("a word on git")) == ["git"]


async def test_a_rule_is_told_with_the_first_touched_file_that_it_is_for() -> None:
    facts = a_workspace()
    facts["skills"].append({"path": f"{FOLDER}/py.md", "content": "---\npaths: src/*.py\n---\ntyped"})
    own = Skill(name="all", content="with care", trigger=PathTrigger(paths=["*"]))
    async with talking(Sandbox(facts), AgentContext(skills=[own], load_project_skills=True)) as talk:
        assert talk.memory.rules_for("/workspace/src/a.py") is None  # nobody knows yet what the workspace is
        await talk.recall("hello", first=True)
        assert talk.memory.rules_for("/etc/src/a.py") is None
        told = talk.memory.rules_for("/workspace/src/a.py")
        assert told is not None
        assert told[1] == ["all", "py"]
        assert "typed" in told[0].text
        assert talk.memory.rules_for("/workspace/src/b.py") is None
        stored = await talk.stream.add_event(
            ObservationEvent(
                cause=0,
                observation=Observation.from_text("done"),
                tool_name="file_editor",
                extended_content=[told[0]],
                activated_skills=told[1],
            )
        )
        assert isinstance(stored, ObservationEvent)
        assert "typed" in stored.to_llm_message().text
        await talk.stream.add_event(Condensation(forgotten_event_ids=[stored.id]))
        await talk.recall("hello")
        assert talk.memory.rules_for("/workspace/src/b.py") == told


@dataclass
class WithNotes(Sandbox):
    """A sandbox whose workspace has notes."""

    notes: bytes = b""

    async def request(self, op: str, args: Any, **options: Any) -> Reply:
        if op != "file.read":
            return await super().request(op, args, **options)
        self.asked.append(Asked(op, dict(args)))
        return Reply({}, self.notes)


async def test_notes_about_the_project_are_told_with_the_first_message_if_the_context_asks_for_them() -> None:
    sandbox = WithNotes(a_workspace(), notes=b"Tests run with make. " + b"n" * 7000)
    async with talking(sandbox, AgentContext(load_memory=True)) as talk:
        told = (await talk.recall("Hello", first=True)).additional_agent_instructions
        assert "make" not in (await talk.recall("Again")).additional_agent_instructions
    assert "Tests run with make." in told
    assert told.count("n") < 6100
    assert sandbox.asked[-1].args["path"] == "/workspace/.openhands/MEMORY.md"
    sandbox = WithNotes(a_workspace(), notes=b"Tests run with make.")
    async with talking(sandbox, AgentContext()) as talk:
        assert "make" not in (await talk.recall("Hello", first=True)).additional_agent_instructions
    async with talking(Sandbox(a_workspace()), AgentContext(load_memory=True)) as talk:
        assert "Notes" not in (await talk.recall("Hello", first=True)).additional_agent_instructions


async def test_a_skill_that_is_left_out_is_never_told_and_a_silent_memory_tells_nothing() -> None:
    async with talking(Sandbox(a_workspace()), left_out=frozenset({"git"})) as talk:
        answer = await talk.recall("commit with Git", first=True)
        assert answer.repo_instructions
        assert names(answer) == []
    async with talking(Sandbox(a_workspace()), is_silent=True, instructions="be quick") as talk:
        answer = await talk.recall("commit with Git", first=True)
        assert facts_message(answer) is None
        assert facts_message(await talk.recall("commit with Git")) is None
        assert talk.memory.rules_for("/workspace/x.py") is None
        assert await talk.memory.skills() == []


async def test_a_workspace_that_does_not_say_where_it_is_has_no_skills() -> None:
    facts = {**a_workspace(), "working_dir": ""}
    facts["skills"] = [{"path": "/.openhands/microagents/repo.md", "content": "not the project's"}]
    async with talking(Sandbox(facts)) as talk:
        assert (await talk.recall("hello", first=True)).repo_instructions == ""


async def test_the_agent_is_told_the_folder_that_the_sandbox_found_and_else_the_configured_one() -> None:
    async with talking(Sandbox({**a_workspace(), "working_dir": "/srv/found"})) as talk:
        assert (await talk.recall("hello", first=True)).working_dir == "/srv/found"
    silent = Sandbox({**a_workspace(), "working_dir": ""})
    async with talking(silent) as talk:
        answer = await talk.recall("hello", first=True)
    assert answer.working_dir == silent.working_dir
    assert "Machine: Linux\n" in f"{answer.additional_agent_instructions}\n", "nor is anything else made up"


async def test_whoever_asks_for_the_skills_before_anybody_has_spoken_gets_those_of_the_workspace() -> None:
    async with talking(Sandbox(a_workspace())) as talk:
        assert "git" in [skill.name for skill in await talk.memory.skills()]


async def test_without_skills_and_without_a_sandbox_there_is_nothing_to_tell_and_nothing_breaks() -> None:
    async with talking(Sandbox(broken=True)) as talk:
        assert names(await talk.recall("git", first=True)) == []
        assert names(await talk.recall("git")) == []
        assert talk.memory.rules_for("/workspace/a.py") is None


async def problems(talk: Talk) -> list[SkillLeftOut]:
    return [event async for event in talk.stream.history() if isinstance(event, SkillLeftOut)]


async def test_a_broken_skill_is_told_by_file_and_line_once_for_each_load_wherever_it_comes_from() -> None:
    store, sandbox = InMemoryEventStore(), Sandbox(a_workspace())
    elsewhere = SkillValidationError("/home/a.md, line 3: no good", path="/home/a.md", line=3)
    async with talking(sandbox, store=store, problems=[elsewhere, elsewhere]) as talk:
        await talk.recall("hello", first=True)
        await talk.recall("go on")
        await talk.recall("once more", first=True)
        told = await problems(talk)
    assert [(one.path, one.line) for one in told] == [("/home/a.md", 3), (f"{FOLDER}/broken.md", 2)]
    assert "/home/a.md, line 3: no good" in told[0].detail
    assert f"{FOLDER}/broken.md, line 2: type: 'magic' is none of" in told[1].detail
    async with talking(sandbox, store=store) as talk:
        await talk.memory.look_again()
        await talk.recall("go on")
        await talk.recall("again")
        assert [one.path for one in (await problems(talk))[2:]] == [f"{FOLDER}/broken.md"]


async def test_of_many_broken_skills_so_many_are_told() -> None:
    facts = a_workspace()
    files = [{"path": f"{FOLDER}/{number}.md", "content": "---\ntype: magic\n---"} for number in range(100)]
    async with talking(Sandbox({**facts, "skills": files})) as talk:
        await talk.recall("hello", first=True)
        await talk.recall("go on")
        assert len(await problems(talk)) == MAX_PROBLEMS


async def test_a_skill_that_always_counts_and_came_after_the_system_message_is_told_with_the_next_message() -> None:
    store = InMemoryEventStore()
    old, new = Skill(name="old", content="Old rule."), Skill(name="new", content="New rule.")
    async with talking(Sandbox(a_workspace()), AgentContext(skills=[old]), store) as talk:
        said = TextContent(text="<REPOSITORY_CONTEXT>\nOld rule.\n</REPOSITORY_CONTEXT>")
        await talk.stream.add_event(SystemPromptEvent(system_prompt=TextContent(text="you"), dynamic_context=said))
        assert names(await talk.recall("hello", first=True)) == []
    async with talking(Sandbox(a_workspace()), AgentContext(skills=[old, new]), store) as talk:
        later = await talk.recall("go on")
        assert names(later) == ["new"]
        told = facts_message(later)
        assert told is not None
        assert "From now on this is always to be followed.\nNew rule." in told.text
        assert names(await talk.recall("go on")) == []
    changed = old.model_copy(update={"content": "Changed rule."})
    for context, expected in ((AgentContext(skills=[changed, new]), ["old"]), (AgentContext(skills=[changed]), [])):
        async with talking(Sandbox(a_workspace()), context, store) as talk:
            assert names(await talk.recall("go on")) == expected


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://github.com/ann/boat.git", "ann/boat"),
        ("https://git.example.com:8443/ann/boat", "ann/boat"),
        ("http://git.internal:81/team/tools/boat.git/", "team/tools/boat"),
        ("https://dev.azure.com/acme/fleet/_git/boat", "acme/fleet/boat"),
        ("git@git.example.com:ann/boat.git", "ann/boat"),
        ("git.example.com:ann/boat", "ann/boat"),
        ("ssh://git@git.example.com:22/ann/boat.git", "ann/boat"),
        ("/srv/repositories/boat.git", "boat"),
        ("../boat", "boat"),
        ("", ""),
        ("https://git.example.com", ""),
    ],
)
def test_a_repository_is_called_by_owner_and_name_whatever_host_it_is_on(address: str, name: str) -> None:
    assert name_of_remote(address) == name


@pytest.mark.parametrize(
    ("begun_with", "root", "expected"),
    [
        ("ann/boat", "/workspace/boat", "ann/boat"),
        ("ann/boat.git", "/workspace/boat", "ann/boat"),
        ("ann/boat", "/workspace/other", "git/bob/other"),
        ("", "/workspace/other", "git/bob/other"),
    ],
)
async def test_the_repository_that_a_conversation_began_with_is_told_by_its_name(
    begun_with: str, root: str, expected: str
) -> None:
    git = {"root": root, "remote": "https://git.example.com/git/bob/other.git", "branch": "main"}
    async with talking(Sandbox({**a_workspace(), "git": git}), repository=begun_with) as talk:
        recalled = await talk.recall("hello", first=True)
    assert (recalled.repo_name, recalled.repo_directory, recalled.repo_branch) == (expected, root, "main")
