"""Analyzers that read shell commands as a shell does (see `agent_core.security.shell`)."""

from __future__ import annotations

import re
import shlex
from typing import ClassVar, Final

from agent_core.events.llm_events import ActionEvent
from agent_core.events.risk import SecurityRisk
from agent_core.security.analyzer import SecurityAnalyzer, riskiest
from agent_core.security.shell.judge import Judgement, judge
from agent_core.tools.apply_patch import ApplyPatchAction
from agent_core.tools.builtin import FinishAction, ThinkAction
from agent_core.tools.file_editor import FileEditorAction
from agent_core.tools.gemini_files import EditAction, WriteFileAction
from agent_core.tools.llm_edit import LLMEditAction
from agent_core.tools.task_tracker import TaskTrackerAction
from agent_core.tools.terminal import TerminalAction

SHELL_TOOLS: Final = frozenset({"terminal", "execute_bash", "bash", "shell"})
PYTHON_TOOLS: Final = frozenset({"ipython", "execute_ipython_cell", "python"})
_KEY: Final = re.compile(r"(?:C-[a-z@\[\\\]^_]|M-[a-z]|ENTER|TAB|ESC|UP|DOWN|LEFT|RIGHT|BS|HOME|END|SPACE|PGUP|PGDN)\Z")
_SHORT_ANSWER: Final = re.compile(r"[\w.,:-]{0,40}\Z")


def judgement_of(action: ActionEvent) -> Judgement | None:
    """What the shell rules say about an action's command or code; None when it has neither."""
    command, code = getattr(action.action, "command", None), getattr(action.action, "code", None)
    is_shell = isinstance(action.action, TerminalAction) or action.tool_name in SHELL_TOOLS
    if is_shell and isinstance(command, str):
        return judge(command)
    if action.tool_name in PYTHON_TOOLS and isinstance(code, str):
        lines = code.splitlines()
        shell = [line.lstrip()[1:] for line in lines if line.lstrip().startswith("!")]
        plain = [line for line in lines if not line.lstrip().startswith("!")]
        return judge("\n".join([*shell, "python3 -c " + shlex.quote("\n".join(plain))]))
    return None


class ShellRuleAnalyzer(SecurityAnalyzer):
    """Reads shell commands (and Python code, and paths that are written to) and judges what they would do.

    LOW: only looks. MEDIUM: changes something, as work does. HIGH: deletes or opens up what no task needs gone or
    open, writes to disks or the system, runs what comes from the network, sends files or secrets away. UNKNOWN: what
    would run cannot be told from the text; and every tool of which it knows nothing.
    """

    immediate: ClassVar[bool] = True

    def security_risk(self, action: ActionEvent) -> SecurityRisk:
        typed = action.action
        if isinstance(typed, ThinkAction | FinishAction | TaskTrackerAction):
            return SecurityRisk.LOW
        if isinstance(typed, TerminalAction) and typed.is_input:
            return _risk_of_input(typed.command)
        if isinstance(typed, FileEditorAction):
            is_read = typed.command == "view"
            return judge(f"cat {shlex.quote(typed.path)}").risk if is_read else _risk_of_writing(typed.path)
        if isinstance(typed, LLMEditAction):
            return _risk_of_writing(typed.path)
        if isinstance(typed, WriteFileAction | EditAction):
            return _risk_of_writing(typed.file_path)
        if isinstance(typed, ApplyPatchAction):
            risks = [_risk_of_writing(path) for path in typed.paths] or [SecurityRisk.UNKNOWN]
            return riskiest(risks, propagate_unknown=True)
        judgement = judgement_of(action)
        return SecurityRisk.UNKNOWN if judgement is None else judgement.risk

    def reasons(self, action: ActionEvent) -> tuple[str, ...]:
        """Why the risk is what it is, in words for a person; empty where there is no command."""
        judgement = judgement_of(action)
        return () if judgement is None else judgement.reasons


class PolicyRailSecurityAnalyzer(SecurityAnalyzer):
    """Stops a few things whatever else is allowed; everything else is LOW, so combine it with other analyzers.

    `rails` are the rules that count: by default running what was downloaded, writing to disks past their file systems,
    and catastrophic deletes.
    """

    immediate: ClassVar[bool] = True

    rails: tuple[str, ...] = ("remote-code", "device", "disk", "catastrophic-delete", "fork-bomb")

    def security_risk(self, action: ActionEvent) -> SecurityRisk:
        judgement = judgement_of(action)
        findings = judgement.findings if judgement else ()
        is_stopped = any(found.rule in self.rails and found.risk is SecurityRisk.HIGH for found in findings)
        return SecurityRisk.HIGH if is_stopped else SecurityRisk.LOW


def _risk_of_input(text: str) -> SecurityRisk:
    """Input to a running program: keys and short answers are harmless, the rest may well be a command for a shell."""
    if not text.strip() or _KEY.match(text.strip()):
        return SecurityRisk.LOW
    if _SHORT_ANSWER.match(text.strip()):
        return SecurityRisk.MEDIUM
    # A terminal takes a carriage return for Enter.
    return riskiest([judge(text.replace("\r", "\n")).risk, SecurityRisk.MEDIUM], propagate_unknown=True)


def _risk_of_writing(path: str) -> SecurityRisk:
    return judge(f"cp /dev/null {shlex.quote(path)}").risk
