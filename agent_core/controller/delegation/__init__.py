"""Delegation: an agent's sub-agents, each in a conversation of its own (agent-core 4.11, 8.7)."""
