"""Tools: their specifications, their definitions, and the built-in ones."""
