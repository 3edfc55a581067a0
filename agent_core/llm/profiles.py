"""Configurations of models as files, one JSON file each, in the user's home; and the models to ask when one fails."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from agent_core.spelling import SpelledModel

logger = logging.getLogger(__name__)

HOME_VARIABLE = "DRYDOCK_HOME"
"""Names the folder in which programs and servers of this user keep what they share: stored models."""

EXPOSE_FALLBACKS = "expose_fallbacks"
"""Key of a serialisation context that writes the models of each `FallbackStrategy` along with the model that has it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_Model = TypeVar("_Model", bound=BaseModel)


class ProfileFiles:
    """The files of a folder (``profiles`` in ``DRYDOCK_HOME`` or ``~/.drydock``), for the user alone."""

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        if directory is None:
            directory = Path(os.environ.get(HOME_VARIABLE, "").strip() or "~/.drydock") / "profiles"
        self.directory = Path(directory).expanduser()

    def names(self) -> list[str]:
        if not self.directory.is_dir():
            return []
        return sorted(path.stem for path in self.directory.glob("*.json") if _NAME.fullmatch(path.stem))

    def read(self, name: str) -> dict[str, Any]:
        """The fields of a profile; raises `FileNotFoundError`, naming those there are, or `ValueError`."""
        path = self.path(name)
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            known = ", ".join(self.names()) or "none"
            raise FileNotFoundError(f"there is no profile {name!r} in {self.directory}; there are: {known}") from None
        except ValueError as error:
            raise ValueError(f"profile {name!r} is not valid JSON ({error}): {path}") from None
        if not isinstance(value, dict):
            raise ValueError(f"profile {name!r} is no JSON object: {path}")
        return value

    def write(self, name: str, text: str) -> None:
        """Store a profile whole, in place of an earlier one."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_suffix(".part")
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)

    def path(self, name: str) -> Path:
        """The file of a profile; raises `ValueError` for what is no name of one."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a profile: letters, digits, dot, hyphen and underscore, up to 64")
        return self.directory / f"{name}.json"


class FallbackStrategy(BaseModel, metaclass=SpelledModel):
    """The profiles of the models that are asked, in this order, when a call failed after its retries.

    Only for failures that another model may not have (rate limit, timeout, server down), and anew for each call. What
    the others cost is counted for the model that failed. If all fail, the first failure is the one reported.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    fallback_llms: tuple[str, ...] = Field(min_length=1)
    profile_store_dir: Path | None = None
    """Where they are; None means in the user's home."""
    profiles: Mapping[str, Any] | None = Field(default=None, exclude=True, repr=False)
    """The models themselves, or their data, by their names, where they are not in files; not stored."""

    def with_models(self, kind: type[_Model]) -> Self:
        """The same with models for the data of `profiles`; raises `ValueError`."""
        if self.profiles is None:
            return self
        models = {name: kind.model_validate(one) for name, one in self.profiles.items()}
        return self.model_copy(update={"profiles": models})

    def found(self, kind: type[_Model]) -> Iterator[tuple[str, _Model]]:
        """The models in their order, by name; a profile that cannot be read is passed over, with a word in the log."""
        files = ProfileFiles(self.profile_store_dir)
        for name in self.fallback_llms:
            try:
                model = kind.model_validate(files.read(name) if self.profiles is None else self.profiles[name])
            except KeyError:
                logger.warning("the fallback %r is passed over: there is no such profile", name)
                continue
            except (OSError, ValueError) as error:
                logger.warning("the fallback %r is passed over: %s", name, error)
                continue
            yield name, model
