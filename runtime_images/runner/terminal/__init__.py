"""Terminals: a kept bash on a pseudo-terminal, its commands, and what they print."""
