"""Fakes with the real interface, for our tests and those of whoever builds on agent_core."""
