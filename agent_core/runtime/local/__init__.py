"""Sandboxes without an engine: under bubblewrap, or unconfined by explicit wish."""
