"""The part of GitHub's API that other providers have taken over as it is."""

from __future__ import annotations

from server.git_hosts import Provider
from server.git_providers.answers import EncodedFile, Shape
from server.git_providers.errors import MissingError
from server.git_providers.http import Api, segments


class State(Shape):
    """Anything with a state."""

    state: str = ""


class _Entry(Shape):
    path: str
    type: str = ""


class GitHubForm:
    """An account at a provider with requests and files in GitHub's form; see `GitProvider`."""

    name: Provider
    _api: Api

    async def is_request_open(self, repository: str, number: int) -> bool:
        return (await self._api.get(f"/repos/{segments(repository)}/pulls/{number}", State)).data.state == "open"

    async def files(self, repository: str, folder: str) -> list[str]:
        try:
            reply = await self._api.get(f"/repos/{segments(repository)}/contents/{segments(folder)}", list[_Entry])
        except MissingError:
            return []
        return [entry.path for entry in reply.data if entry.type == "file"]

    async def file(self, repository: str, path: str) -> str:
        reply = await self._api.get(f"/repos/{segments(repository)}/contents/{segments(path)}", EncodedFile)
        return reply.data.text(self.name)
