"""Models: configuration, calls, retries, costs. `agent_core.llm.llm.LLM` is where to start reading."""
