"""Condensers: one module each; `condenser.py` says what they have in common."""
