"""`PluginSource`: where a plugin comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator

from agent_core.destinations import PORTS
from server.settings.text_fields import Words

_MAX_NAME: Final = 500
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+@-]{0,199}")


@dataclass(frozen=True, slots=True)
class PluginSource:
    """A git repository, the branch, tag or commit there (empty: its own choice), and the plugin's folder in it."""

    url: str
    ref: str = ""
    path: str = ""

    @classmethod
    def checked(cls, url: str, ref: str = "", path: str = "") -> Self:
        """The source with these parts; ValueError names the one that cannot be used."""
        url, ref, path = url.strip(), ref.strip(), path.strip().strip("/")
        try:
            parts = urlsplit(url)
            host, _port = parts.hostname, parts.port
        except ValueError:
            parts, host = urlsplit(""), None
        if parts.scheme not in PORTS or not host:
            raise ValueError("source: give the https address of a git repository, such as https://host/owner/name.git")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("source: give the address alone, without a user's name, a query or a fragment")
        if not (url.isascii() and url.isprintable()) or any(one.isspace() for one in url) or len(url) > _MAX_NAME:
            raise ValueError(f"source: an address is ASCII without spaces, and has at most {_MAX_NAME} characters")
        if ref and (not _REF.fullmatch(ref) or ".." in ref or ref.endswith((".lock", "/", "."))):
            raise ValueError(f"ref: {ref[:100]!r} can be no branch, tag or commit")
        inner = PurePosixPath(path)
        if len(path) > _MAX_NAME or not path.isprintable() or ".." in inner.parts or ":" in path:
            raise ValueError(f"path: {path[:100]!r} can be no folder in a repository")
        return cls(url, ref, "" if path in ("", ".") else inner.as_posix())

    @property
    def is_pinned(self) -> bool:
        return _COMMIT.fullmatch(self.ref) is not None

    @property
    def usual_name(self) -> str:
        """The last word of its path, or of its address; ``plugin`` where that can name no folder."""
        name = PurePosixPath(self.path or urlsplit(self.url).path).name.removesuffix(".git")
        return name if name.strip(".") else "plugin"

    @classmethod
    def pinned(cls, text: str) -> Self:
        """What ``address#commit``, or ``address#commit:folder``, means.

        ValueError where the commit is no full hash: nobody but the operator changes what is installed for all.
        """
        url, _, place = text.partition("#")
        commit, _, path = place.partition(":")
        source = cls.checked(url, commit, path)
        if not source.is_pinned:
            raise ValueError("it names no commit; write https://host/owner/name.git#<the full hash of a commit>")
        return source


def _all_pinned(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        PluginSource.pinned(text)
    return texts


PinnedPlugins = Annotated[Words, AfterValidator(_all_pinned)]
