"""agent_core: conversations between people, models and sandboxes, without a server or a database."""
