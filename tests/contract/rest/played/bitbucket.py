"""Bitbucket Cloud: everything under /2.0, lists in a frame with `values` and `next`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.contract.rest.played.provider import Asked, Handler, PlayedProvider, Told, page
from tests.contract.rest.played.world import MERGED, REPOS, REQUESTS, TOKEN, Repo, repo_named, request_of

WORKSPACES = ("ann", "acme")
USER = "{6a2c0c5e-0000-4000-8000-000000000001}"


class PlayedBitbucket(PlayedProvider):
    authorization = f"Bearer {TOKEN}"
    refusal = Told({"type": "error", "error": {"message": "Token is invalid or not supported"}}, 401)
    missing = Told({"type": "error", "error": {"message": "Resource not found"}}, 404)
    is_old = False
    """As it was until 2026: it lists workspaces elsewhere."""

    def routes(self) -> Iterator[tuple[str, Handler]]:
        api = "/2.0"
        yield f"GET {api}/user", self.user
        yield f"GET {api}/user/workspaces", self.accesses
        yield f"GET {api}/workspaces", self.workspaces
        yield f"GET {api}/workspaces/([^/]+)/pullrequests/([^/]+)", self.requests
        yield f"GET {api}/repositories/([^/]+)", self.repositories
        yield f"GET {api}/repositories/([^/]+/[^/]+)", self.repository
        yield f"GET {api}/repositories/([^/]+/[^/]+)/refs/branches", self.branches
        yield f"GET {api}/repositories/([^/]+/[^/]+)/pullrequests/(\\d+)/statuses", self.statuses
        yield f"GET {api}/repositories/([^/]+/[^/]+)/pullrequests/(\\d+)", self.one_request
        yield f"POST {api}/repositories/([^/]+/[^/]+)/pullrequests", self.make_request
        yield f"GET {api}/repositories/([^/]+/[^/]+)/src/main/(.+)", self.source

    def user(self, asked: Asked) -> Told:
        return Told(
            {
                "type": "user",
                "uuid": USER,
                "account_id": "557058:1",
                "nickname": "ann",
                "display_name": "Ann Mariner",
                "links": {"avatar": {"href": "https://avatars.example.com/1"}},
            }
        )

    def accesses(self, asked: Asked) -> Told:
        if self.is_old:
            return self.missing
        return framed(asked, [{"type": "workspace_access", "workspace": {"slug": one}} for one in WORKSPACES])

    def workspaces(self, asked: Asked) -> Told:
        if not self.is_old:
            return Told({"type": "error", "error": {"message": "CHANGE-2770"}}, 410)
        return framed(asked, [{"type": "workspace", "slug": one} for one in WORKSPACES])

    def repositories(self, asked: Asked, workspace: str) -> Told:
        if workspace not in WORKSPACES:
            return self.missing
        found = [one for one in REPOS if one.owner == workspace and matches(asked, one.name)]
        return framed(asked, [described(one) for one in found])

    def repository(self, asked: Asked, name: str) -> Told:
        return Told(described(repo_named(name)))

    def branches(self, asked: Asked, name: str) -> Told:
        found = repo_named(name)
        items = [
            {"type": "branch", "name": one.name, "target": {"hash": one.sha, "date": one.date}}
            for one in found.branches
            if matches(asked, one.name)
        ]
        return framed(asked, items)

    def requests(self, asked: Asked, workspace: str, user: str) -> Told:
        assert (user, asked.query["state"]) == (USER, "OPEN")
        items = [
            {
                "id": one.number,
                "title": one.title,
                "task_count": 1 if one.trouble == "UNRESOLVED_COMMENTS" else 0,
                "destination": {"repository": {"full_name": one.repo.full_name}},
            }
            for one in REQUESTS
            if one.repo.owner == workspace
        ]
        return framed(asked, items)

    def statuses(self, asked: Asked, name: str, number: str) -> Told:
        repo = repo_named(name)
        one = request_of(repo, int(number))
        is_bad = one is not None and one.trouble == "FAILING_CHECKS"
        return framed(asked, [{"state": "SUCCESSFUL"}, {"state": "FAILED" if is_bad else "SUCCESSFUL"}])

    def one_request(self, asked: Asked, name: str, number: str) -> Told:
        return Told({"id": int(number), "state": "MERGED" if number in MERGED else "OPEN"})

    def make_request(self, asked: Asked, name: str) -> Told:
        body = asked.json
        repo_named(name)
        assert set(body) == {"title", "description", "source", "destination"}
        if body["source"]["branch"]["name"] == "fix/4":
            error = {"message": "Bad request", "fields": {"source": ["branch not found: fix/4"]}}
            return Told({"type": "error", "error": error}, 400)
        made = {"head": body["source"]["branch"]["name"], "base": body["destination"]["branch"]["name"]}
        self.made.append({**made, "title": body["title"], "body": body["description"], "draft": False})
        href = f"{self.origin}/{name}/pull-requests/41"
        return Told({"type": "pullrequest", "id": 41, "state": "OPEN", "links": {"html": {"href": href}}}, 201)

    def source(self, asked: Asked, name: str, path: str) -> Told:
        found = repo_named(name)
        if path in found.files:
            return Told(found.files[path])
        inside = [one for one in found.files if one.rpartition("/")[0] == path.rstrip("/")]
        return framed(asked, [{"type": "commit_file", "path": one} for one in inside]) if inside else self.missing


def matches(asked: Asked, name: str) -> bool:
    query = asked.query.get("q")
    if query is None:
        return True
    match = re.fullmatch(r'name ~ "(.*)"', query)
    assert match is not None, query
    return match[1] in name


def framed(asked: Asked, items: list[Any]) -> Told:
    found, has_more = page(asked, items, "pagelen", 10)
    number = asked.number("page", 1)
    frame = {"values": found, "page": number, "pagelen": asked.number("pagelen", 10), "size": len(items)}
    if has_more:
        frame["next"] = f"{asked.origin}{asked.path}?page={number + 1}"
    return Told(frame)


def described(one: Repo) -> dict[str, Any]:
    return {
        "type": "repository",
        "uuid": f"{{{one.id}}}",
        "full_name": one.full_name,
        "is_private": one.private,
        "updated_on": one.updated,
        "mainbranch": {"type": "branch", "name": "main"},
        "workspace": {"slug": one.owner},
    }
