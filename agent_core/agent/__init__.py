"""Agents: stateless configuration that turns a prompt into the next events."""
