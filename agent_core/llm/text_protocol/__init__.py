"""Tool calls as text, for models that take no tools themselves (agent-core 9.10)."""
