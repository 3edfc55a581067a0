"""A conversation with an agent, for ordinary and for asynchronous programs."""
