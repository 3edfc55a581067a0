"""Conversation managers: the conversations that run in this process, and their connections."""
