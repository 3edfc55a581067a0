"""The part of GitHub's API that other providers have taken over as it is."""

from __future__ import annotations

from typing import Any

from server.git_hosts import Provider
from server.git_providers.answers import EncodedFile, Shape
from server.git_providers.errors import GitProviderError, MissingError
from server.git_providers.http import Api, segments
from server.git_providers.model import MadeRequest, RequestWish


class State(Shape):
    """Anything with a state."""

    state: str = ""


class _Entry(Shape):
    path: str
    type: str = ""


class _Made(Shape):
    number: int
    html_url: str = ""


class GitHubForm:
    """An account at a provider with requests and files in GitHub's form; see `GitProvider`."""

    name: Provider
    _api: Api

    async def is_request_open(self, repository: str, number: int) -> bool:
        return (await self._api.get(f"/repos/{segments(repository)}/pulls/{number}", State)).data.state == "open"

    async def create_request(self, repository: str, wish: RequestWish) -> MadeRequest:
        path = f"/repos/{segments(repository)}"
        body = {"head": wish.source_branch, "base": wish.target_branch, "body": wish.body, **self._title(wish)}
        made = await self._api.post(f"{path}/pulls", body, _Made)
        note = ""
        if wish.labels:
            try:
                await self._api.post(f"{path}/issues/{made.number}/labels", {"labels": list(wish.labels)}, list[Any])
            except GitProviderError as error:  # the request is there, and has to be told of
                note = f"its labels could not be set: {error}"
        return MadeRequest(made.number, made.html_url, note)

    def _title(self, wish: RequestWish) -> dict[str, Any]:
        """The title, and that it is a draft."""
        return {"title": wish.title, "draft": wish.draft}

    async def files(self, repository: str, folder: str) -> list[str]:
        try:
            reply = await self._api.get(f"/repos/{segments(repository)}/contents/{segments(folder)}", list[_Entry])
        except MissingError:
            return []
        return [entry.path for entry in reply.data if entry.type == "file"]

    async def file(self, repository: str, path: str) -> str:
        reply = await self._api.get(f"/repos/{segments(repository)}/contents/{segments(path)}", EncodedFile)
        return reply.data.text(self.name)
