"""Condensers by what they do with the middle of a view: sum it up, or leave parts out."""
