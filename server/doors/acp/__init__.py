"""The Agent Client Protocol over standard input and output: an editor's door to conversations (``drydock acp``)."""
