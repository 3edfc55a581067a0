"""Skills: texts for the agent, told always, or when a message, a touched file or the agent asks."""
