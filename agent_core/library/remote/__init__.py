"""Conversations that a server carries out."""
