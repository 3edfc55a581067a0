"""A folder of prompt templates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from agent_core.agent.system_prompt import NAME, PROMPT_DIR, static_message
from agent_core.events.control import RecalledKnowledge, RecallObservation
from agent_core.memory.facts import facts_message
from agent_core.templates import rendered

SYSTEM_PROMPT: Final = "system_prompt.j2"
USER_PROMPT: Final = "user_prompt.j2"
SECURITY_POLICY: Final = "security_policy.j2"


class PromptManager:
    """Renders what agents are told from the templates of a folder.

    Args:
        prompt_dir: the folder; ours if None.
        system_prompt_filename: the template of the system message in it.

    Raises:
        FileNotFoundError: the folder has no such file.
    """

    def __init__(self, prompt_dir: str | Path | None = None, system_prompt_filename: str = SYSTEM_PROMPT) -> None:
        self.prompt_dir = Path(prompt_dir) if prompt_dir is not None else PROMPT_DIR
        self.system_prompt_filename = system_prompt_filename
        self._existing(system_prompt_filename)

    def get_system_message(self, **context: Any) -> str:
        """The system message; `context` are variables of its template, which count before those that are known."""
        policy = SECURITY_POLICY if (self.prompt_dir / SECURITY_POLICY).is_file() else ""
        return static_message(
            self.prompt_dir,
            self.system_prompt_filename,
            policy=policy,
            model=str(context.get("model_name", "")),
            has_browser=False,
            remembers=False,
            given=context,
        )

    def get_example_user_message(self) -> str:
        """A first message of a user as an example; empty where the folder has none."""
        if not (self.prompt_dir / USER_PROMPT).is_file():
            return ""
        return rendered(self.prompt_dir, USER_PROMPT, {"agent_name": NAME})

    def build_workspace_context(self, recalled: RecallObservation) -> str:
        """What the memory knows of the workspace, as the agent is told it; empty when there is nothing."""
        message = facts_message(recalled)
        return message.text if message is not None else ""

    def build_microagent_info(self, triggered: Sequence[RecalledKnowledge]) -> str:
        """Knowledge that a message brought up, as the agent is told it; empty when there is none."""
        known = RecallObservation(cause=-1, recall_type="knowledge", microagent_knowledge=list(triggered))
        message = facts_message(known)
        return message.text if message is not None else ""

    def _existing(self, name: str) -> None:
        if not (self.prompt_dir / name).is_file():
            raise FileNotFoundError(f"there is no prompt template {name!r} in {self.prompt_dir}")
