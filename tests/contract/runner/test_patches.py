"""Patches through a runner; what they do is tested where they are read."""

from __future__ import annotations

from pathlib import Path

from tests.contract.runner.client import Client


def test_a_patch_is_applied_once_under_its_key(client: Client, workspace: Path) -> None:
    (workspace / "a").write_text("x\n")
    patch = "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch"
    first = client.call("patch.apply", patch=patch, key="c:1").result
    assert (first["text"], first["paths"]) == ("Done!\nM a", [str(workspace / "a")])
    assert client.call("patch.apply", patch=patch, key="c:1").result == first
    again = client.call("patch.apply", patch=patch, key="c:2").result
    assert again["is_error"]
    assert "not in a" in again["text"]
    assert client.call("patch.apply", patch=7).error["message"] == "patch must be a string"
