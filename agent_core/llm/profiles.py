"""Models by the name under which the user stored them."""

from __future__ import annotations

import os

from agent_core.llm.config import EXPOSE_SECRETS
from agent_core.llm.llm import LLM
from agent_core.llm.profile_files import ProfileFiles


class ProfileStore:
    """Stored models; without a directory, those in the user's home (`default_directory`)."""

    def __init__(self, base_dir: str | os.PathLike[str] | None = None) -> None:
        self._files = ProfileFiles(base_dir)

    def list(self) -> list[str]:
        """The names there are, sorted."""
        return self._files.names()

    def save(self, name: str, llm: LLM, *, include_secrets: bool = False) -> None:
        """Store what is configured of a model; its keys only if asked for, then readable by the user alone.

        Raises:
            ValueError: that is no name of a profile.
        """
        context = {EXPOSE_SECRETS: include_secrets}
        self._files.write(name, llm.model_dump_json(exclude_defaults=True, indent=2, context=context))

    def load(self, name: str) -> LLM:
        """The stored model.

        Raises:
            FileNotFoundError: there is none of that name.
            ValueError: the name or the file is none of a profile.
        """
        return LLM.model_validate(self._files.read(name))

    def delete(self, name: str) -> None:
        """Remove a profile; one that is not there is no error."""
        self._files.delete(name)
