"""Answers that cannot be completed, by no fault of the server: what a sandbox broke off."""

from __future__ import annotations

from contextvars import ContextVar

broke_off: ContextVar[bool] = ContextVar("broke_off", default=False)
"""Set in the task of such a request; the web server's complaint about it is not logged then."""
