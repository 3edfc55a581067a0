"""Sandboxes, and the subscriber that executes actions in them."""
