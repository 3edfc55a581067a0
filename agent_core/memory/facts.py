"""What a recall tells the model: facts of the workspace and triggered knowledge, as a message."""

from __future__ import annotations

from collections.abc import Mapping

from agent_core.events.control import RecallObservation
from agent_core.events.messages import Message, TextContent


def facts_message(event: RecallObservation) -> Message | None:
    """A user-role message with what was recalled, None when there is nothing to tell.

    Of the secrets only those are in it that came after the system message, which names the others.
    """
    sections = _workspace(event) if event.recall_type == "workspace_context" else _later(event)
    sections += [
        f'<EXTRA_INFO name="{known.name}" trigger="{known.trigger}">\n'
        f"It may or may not be relevant to the request.\n{known.content}\n</EXTRA_INFO>"
        for known in event.microagent_knowledge
    ]
    if not sections:
        return None
    return Message(role="user", content=[TextContent(text="\n\n".join(sections))])


def later_secrets(descriptions: Mapping[str, str]) -> str:
    """What a model is told of secrets that came after its system message; empty without any."""
    if not descriptions:
        return ""
    lines = [f"- ${name}: {text}" if text else f"- ${name}" for name, text in descriptions.items()]
    return "\n".join(
        ["<SECRETS>", "More environment variables that are set for each command that names them:", *lines, "</SECRETS>"]
    )


def _later(event: RecallObservation) -> list[str]:
    return list(filter(None, [later_secrets(event.custom_secrets_descriptions)]))


def _workspace(event: RecallObservation) -> list[str]:
    lines = []
    if event.working_dir:
        lines.append(f"Working directory: {event.working_dir}")
    if event.repo_name:
        branch = f" (branch {event.repo_branch})" if event.repo_branch else ""
        lines.append(f"Repository: {event.repo_name}{branch} in {event.repo_directory or event.working_dir}")
    if event.date:
        lines.append(f"Date: {event.date} (UTC)")
    if event.additional_agent_instructions:
        lines.append(event.additional_agent_instructions)
    lines.extend(f"Port {port} of the sandbox is served at {host}" for host, port in event.runtime_hosts.items())
    sections = ["<WORKSPACE>\n" + "\n".join(lines) + "\n</WORKSPACE>"] if lines else []
    if event.repo_instructions:
        sections.append(f"<REPOSITORY_INSTRUCTIONS>\n{event.repo_instructions}\n</REPOSITORY_INSTRUCTIONS>")
    if event.conversation_instructions:
        sections.append(f"<INSTRUCTIONS>\n{event.conversation_instructions}\n</INSTRUCTIONS>")
    return sections
