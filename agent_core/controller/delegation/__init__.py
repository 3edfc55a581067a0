"""Delegation: an agent's sub-agents, each in a conversation of its own."""
