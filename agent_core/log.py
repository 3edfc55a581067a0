"""Loggers for programs that use the library."""

from __future__ import annotations

import logging


def get_logger(name: str) -> logging.Logger:
    """The logger of that name; where its lines go is the program's decision (`logging.basicConfig`)."""
    return logging.getLogger(name)
