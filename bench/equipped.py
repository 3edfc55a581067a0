"""Settings with everything on that a step has to go through: condensers, analyzers that may hold it back, skills."""

from __future__ import annotations

from agent_core.llm.llm import LLM
from agent_core.memory.condensers import get_default_condenser
from agent_core.security.analyzers import get_default_analyzer
from agent_core.security.confirmation import ConfirmRisky
from agent_core.session.settings import SessionSettings
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import KeywordTrigger, Skill
from bench.view import Summing

SKILLS = 20
SKILL_CHARACTERS = 2_000


def equipped(llm: LLM) -> SessionSettings:
    """Settings of its own for one conversation; its condenser's model sums up at once."""
    always = Skill(name="rules", content="Keep it short. " * 30)
    triggered = [
        Skill(
            name=f"skill-{number}",
            content=f"What to know of {number}. ".ljust(SKILL_CHARACTERS, "."),
            trigger=KeywordTrigger(keywords=[f"keyword{number}"]),
        )
        for number in range(SKILLS)
    ]
    return SessionSettings(
        llm=llm,
        condenser=get_default_condenser(LLM(model="openai/summing").using(Summing())),
        analyzer=get_default_analyzer(),
        policy=ConfirmRisky(),
        agent_context=AgentContext(skills=[always, *triggered]),
    )
