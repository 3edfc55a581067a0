"""Repositories of the workspace, looked at and cloned by git in a process of its own."""
