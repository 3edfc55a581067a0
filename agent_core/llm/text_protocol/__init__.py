"""Tool calls as text, for models that take no tools themselves."""
