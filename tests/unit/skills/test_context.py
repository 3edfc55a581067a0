"""AgentContext: what is told in the system message and beside the user's messages."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from agent_core.events.messages import ImageContent, Message, TextContent
from agent_core.security.secrets import StaticSecret
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import KeywordTrigger, PathTrigger, Skill, TaskTrigger

NAMES = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta", "gamma ray"]), unique=True)


def knowledge(word: str) -> Skill:
    return Skill(name=f"about {word}", content=f"{{{{ {word} }}}} is known", trigger=KeywordTrigger(keywords=[word]))


@pytest.mark.parametrize(
    "moment", [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2026, 1, 2, 3, 4), "today", None]
)
def test_a_context_is_the_same_after_it_was_stored_as_json(moment: datetime | str | None) -> None:
    context = AgentContext(current_datetime=moment)
    again = AgentContext.model_validate_json(context.model_dump_json())
    assert again == context
    assert again.get_system_message_suffix() == context.get_system_message_suffix()


def test_the_parts_of_the_system_message_stand_in_their_order_and_the_date_last() -> None:
    context = AgentContext(
        skills=[Skill(name="repo", content="Use {{ tabs }}."), knowledge("git")],
        memory_context="remembered",
        system_message_suffix="  the suffix ",
        secrets={"TOKEN": SecretStr("abcdefgh")},
        current_datetime=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
    text = context.get_system_message_suffix({"TOKEN": "for the shop", "OTHER": ""})
    assert text is not None
    parts = ["Use {{ tabs }}.", "remembered", "about git", "the suffix", "$TOKEN: for the shop", "$OTHER", "03:04 UTC"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "03:04:05" not in text
    assert "is known" not in text.replace("{{ git }} is known", "")
    assert "abcdefgh" not in text
    assert "\n\n\n" not in text


def test_with_a_suffix_alone_that_is_all_and_with_nothing_there_is_nothing() -> None:
    assert (
        AgentContext(system_message_suffix=" be brief\n", current_datetime=None).get_system_message_suffix()
        == "be brief"
    )
    assert AgentContext(system_message_suffix=" ", current_datetime=None).get_system_message_suffix() is None
    assert AgentContext(current_datetime="today").get_system_message_suffix() is not None


def test_two_skills_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="'a'"):
        AgentContext(skills=[Skill(name="a", content="1"), Skill(name="a", content="2")])


@given(explicit=NAMES, project=NAMES, user=NAMES, public=NAMES, disabled=NAMES)
def test_of_equal_names_the_explicit_one_wins_then_project_user_and_public(
    explicit: list[str], project: list[str], user: list[str], public: list[str], disabled: list[str]
) -> None:
    levels = {"explicit": explicit, "project": project, "user": user, "public": public}
    made = {level: [Skill(name=name, content=level) for name in names] for level, names in levels.items()}
    context = AgentContext(skills=made.pop("explicit"), disabled_skills=disabled)
    logging.disable(logging.WARNING)
    try:
        found = {skill.name: skill.content for skill in context.merged(**made).active_skills}
    finally:
        logging.disable(logging.NOTSET)
    everything = {name for names in levels.values() for name in names} - set(disabled)
    assert found == {name: next(level for level, names in levels.items() if name in names) for name in everything}


def test_which_skill_of_a_name_wins_does_not_depend_on_which_is_there_first() -> None:
    one = Skill(name="a", content="a")
    context = AgentContext(skills=[one.at("user"), one.model_copy(update={"name": "b"})])
    merged = context.merged(project=[one], organization=[one], public=[one.model_copy(update={"name": "b"})])
    assert {skill.name: skill.level for skill in merged.skills} == {"a": "project", "b": "explicit"}
    assert [skill.level for skill in context.merged(organization=[one]).skills[:1]] == ["organization"]


@given(words=NAMES, skipped=NAMES, message=st.text(alphabet="alphbetgmdr ", max_size=40), said=NAMES)
def test_each_matching_skill_is_told_once_with_its_trigger_unless_it_is_skipped(
    words: list[str], skipped: list[str], message: str, said: list[str]
) -> None:
    context = AgentContext(skills=[knowledge(word) for word in words], current_datetime=None)
    text = f"{message} {' '.join(said)}"
    suffix = context.get_user_message_suffix(Message.user(text), [f"about {word}" for word in skipped])
    expected = [word for word in words if word not in skipped and f" {word} " in f" {text} "]
    if not expected:
        assert suffix is None
        return
    assert suffix is not None
    content, names = suffix
    assert names == [f"about {word}" for word in expected]
    for word, other in product(expected, words):
        assert content.text.count(f"{{{{ {word} }}}} is known") == 1
        assert f'"{word}"' in content.text
        assert (f'"{other}"' in content.text) is (other in expected)


def test_the_users_suffix_follows_what_was_triggered() -> None:
    context = AgentContext(skills=[knowledge("git")], user_message_suffix=" always ", current_datetime=None)
    both = context.get_user_message_suffix(Message.user("git"))
    assert both is not None
    assert both[0].text.endswith("</EXTRA_INFO>\nalways")
    image = Message(role="user", content=[ImageContent(image_urls=["https://example.com/git.png"])])
    assert context.get_user_message_suffix(image) == (TextContent(text="always"), [])
    assert AgentContext(skills=[knowledge("git")]).get_user_message_suffix(image) is None


def test_the_list_holds_what_can_be_asked_for_shortened_and_says_how() -> None:
    skills = [
        Skill(name="pdf", content="# Title\n\nFirst line", is_agentskills_format=True, source="/s/pdf/SKILL.md"),
        Skill(name="long", content="", description="word " * 100, is_agentskills_format=True),
        Skill(name="hidden", content="h", is_agentskills_format=True, disable_model_invocation=True),
        Skill(name="task", content="t", trigger=TaskTrigger(triggers=["/task"])),
        Skill(name="rule", content="r", trigger=PathTrigger(paths=["*.py"])),
        Skill(name="repo", content="always"),
    ]
    text = AgentContext(skills=skills, current_datetime=None).get_system_message_suffix()
    assert text is not None
    listed = text[text.index("<available_skills>") :]
    assert "- pdf: First line (/s/pdf/SKILL.md)" in listed
    assert "load the skill" in listed
    assert "- task: t" in listed
    assert "invoke_skill" in listed
    assert all(f"- {name}" not in listed for name in ("hidden", "rule", "repo"))
    without = AgentContext(skills=skills[3:4], current_datetime=None).get_system_message_suffix()
    assert without is not None
    assert "invoke_skill" not in without


def test_a_rule_for_a_touched_file_is_told_with_its_pattern() -> None:
    context = AgentContext(skills=[Skill(name="py", content="typed", trigger=PathTrigger(paths=["*.py"]))])
    told = context.get_tool_use_suffix("src/a.py")
    assert told is not None
    assert told[1] == ["py"]
    assert "typed" in told[0].text
    assert context.get_tool_use_suffix("src/a.py", ["py"]) is None
    assert context.get_tool_use_suffix("src/a.c") is None


def test_a_context_can_be_stored_and_made_again_without_its_secret_values() -> None:
    context = AgentContext(
        skills=[knowledge("git"), Skill(name="py", content="x", trigger=PathTrigger(paths=["*.py"]))],
        secrets={"TOKEN": SecretStr("abcdefgh")},
    )
    stored = context.model_dump_json()
    assert "abcdefgh" not in stored
    again = AgentContext.model_validate_json(stored)
    assert again.skills == context.skills
    assert again.current_datetime == context.current_datetime
    assert again.secrets == {"TOKEN": SecretStr("")}


def test_secrets_may_be_sources_whose_descriptions_are_told_and_values_given_to_commands() -> None:
    described = StaticSecret(secret=SecretStr("abcdefgh"), description="opens the shop")
    context = AgentContext(secrets={"SHOP": described, "PLAIN": "ijklmnop"}, current_datetime=None)
    told = context.get_system_message_suffix() or ""
    assert "- $SHOP: opens the shop\n" in told
    assert "- $PLAIN\n" in told
    assert context.secrets == {"SHOP": described, "PLAIN": SecretStr("ijklmnop")}
    for shown in (told, repr(context), context.model_dump_json()):
        assert "abcdefgh" not in shown
        assert "ijklmnop" not in shown
    with pytest.raises(ValueError, match="secret 'PIN' is a int: give a text") as caught:
        AgentContext(secrets={"PIN": 271828})
    assert "271828" not in str(caught.value)
