"""Microagents of repositories that no conversation has cloned."""

from __future__ import annotations

import pytest

from server.routes.user.git_providers import microagents_folder


@pytest.mark.parametrize(
    ("repository", "folder"),
    [
        ("ann/boat", ".openhands/microagents"),
        ("ann/.openhands", "microagents"),
        ("group/team/openhands-config", "microagents"),
        ("acme/tools/openhands-config/", "microagents"),
        ("ann/my-openhands-config", ".openhands/microagents"),
    ],
)
def test_a_repository_that_is_for_all_others_has_its_microagents_at_its_root(repository: str, folder: str) -> None:
    assert microagents_folder(repository) == folder
