"""The workspace of a conversation: its files and its repositories. It has to run for this."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

from drydock_client.calls import Calls, conversation_path
from drydock_client.http import Query
from drydock_client.reading import parsed, parsed_list
from drydock_client.results import Change, Diff, Folder, Uploaded

PIECE = 256 * 1024


class FilesApi(Calls):
    """Files, by paths relative to the workspace or absolute below it.

    Errors: `NotFoundError` for what is not there, also while the conversation does not run.
    """

    async def upload(self, conversation_id: str, files: Mapping[str, bytes], *, folder: str = "") -> Uploaded:
        """Store files byte for byte, by their names (which may have folders in them), in place of any that are there.

        What cannot be stored is in `skipped_files`, with its reason.
        """
        parts = [("files", (name, content)) for name, content in files.items()]
        query = {"path": folder or None}
        path = conversation_path(conversation_id, "upload-files")
        return parsed(Uploaded, await self._http.json("POST", path, query=query, files=parts, repeatable=True))

    async def list(self, conversation_id: str, path: str = "") -> Folder:
        """What is in a folder, by default in the workspace itself."""
        answer = await self._http.json("GET", conversation_path(conversation_id, "files"), query={"path": path or None})
        return parsed(Folder, answer)

    async def download(self, conversation_id: str, path: str) -> bytes:
        """The bytes of a file, or a folder as a ZIP file; see `open` for large ones."""
        return await _whole(self.open(conversation_id, path))

    async def zip(self, conversation_id: str, path: str = "") -> bytes:
        """The workspace, or a folder of it, as a ZIP file."""
        return await _whole(self._pieces(conversation_path(conversation_id, "zip-directory"), {"path": path or None}))

    def open(self, conversation_id: str, path: str) -> AsyncIterator[bytes]:
        """A file, or a folder as a ZIP file, in pieces as they come."""
        return self._pieces(conversation_path(conversation_id, "download"), {"path": path})

    async def _pieces(self, path: str, query: Query) -> AsyncIterator[bytes]:
        async with self._http.stream(path, query) as response:
            async for piece in response.aiter_bytes(PIECE):
                yield piece


class GitApi(Calls):
    """Repositories of the workspace."""

    async def changes(self, conversation_id: str, *, since: str = "commit") -> list[Change]:
        """The files that differ from the last commit, or (`since` ``base``) from where the branch began.

        Raises:
            NotFoundError: there is no repository, or the conversation does not run.
        """
        answer = await self._http.json("GET", conversation_path(conversation_id, "git/changes"), query={"since": since})
        return parsed_list(Change, answer)

    async def diff(self, conversation_id: str, path: str, *, since: str = "commit") -> Diff:
        """A file as it was and as it is; see `changes`."""
        query = {"path": path, "since": since}
        return parsed(Diff, await self._http.json("GET", conversation_path(conversation_id, "git/diff"), query=query))


async def _whole(pieces: AsyncIterator[bytes]) -> bytes:
    async with aclosing(pieces):  # type: ignore[type-var] # they are of a generator
        return b"".join([piece async for piece in pieces])
