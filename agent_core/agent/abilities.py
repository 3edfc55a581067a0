"""What kinds of agents can do, for callers that act accordingly instead of asking for classes."""

from __future__ import annotations


class AgentAbilities:
    """The abilities of an ordinary agent; a class of agents says what is different about it."""

    @property
    def supports_openhands_tools(self) -> bool:
        """Whether it uses tools of the registry."""
        return True

    @property
    def supports_condenser(self) -> bool:
        """Whether its history is condensed by its `condenser`."""
        return True

    @property
    def supports_openhands_mcp(self) -> bool:
        """Whether it uses the tools of MCP servers."""
        return True

    @property
    def is_told_of_workspace(self) -> bool:
        """Whether it is told the facts of its workspace, and the skills that messages bring up."""
        return True

    @property
    def condenses_on_overflow(self) -> bool:
        """Whether a history that is too long for the model is condensed; else that is an error."""
        return True

    @property
    def skills_left_out(self) -> frozenset[str]:
        """Names of skills that it is never told of, wherever they come from."""
        return frozenset()
