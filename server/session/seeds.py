"""Files that wait for the first start of a fork, which puts them into its workspace."""

from __future__ import annotations

from pathlib import Path


def seed_of(data_dir: Path, conversation_id: str) -> Path:
    """Where they wait: a tar file, which is gone when they are there."""
    return data_dir / "forks" / f"{conversation_id}.tar"
