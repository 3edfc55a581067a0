"""Forgejo: everything under /api/v1."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from tests.contract.rest.played.provider import Asked, Handler, PlayedProvider, Told, linked
from tests.contract.rest.played.world import (
    DRAFTS,
    ISSUES,
    MERGED,
    REPOS,
    REQUESTS,
    TOKEN,
    Repo,
    named_like,
    repo_named,
    request_of,
)


class PlayedForgejo(PlayedProvider):
    authorization = f"token {TOKEN}"
    refusal = Told({"message": "invalid username, password or token"}, 401)
    missing = Told({"message": "The target couldn't be found.", "errors": []}, 404)

    def routes(self) -> Iterator[tuple[str, Handler]]:
        api = "/api/v1"
        repository = f"{api}/repos/([^/]+/[^/]+)"
        yield f"GET {api}/user", self.user
        yield f"GET {api}/user/repos", self.repositories
        yield f"GET {api}/repos/search", self.search
        yield f"GET {api}/repos/issues/search", self.issues
        yield f"GET {repository}", self.repository
        yield f"GET {repository}/branches", self.branches
        yield f"POST {repository}/pulls", self.make_request
        yield f"POST {repository}/issues/41/labels", self.set_labels
        yield f"GET {repository}/contents/(.+)", self.contents
        yield f"GET {repository}/pulls/(\\d+)", self.request
        yield f"GET {repository}/pulls/(\\d+)/reviews", self.reviews
        yield f"GET {repository}/commits/sha-(\\d+)/status", self.status

    def user(self, asked: Asked) -> Told:
        return Told(
            {
                "id": 1,
                "login": "ann",
                "full_name": "Ann Mariner",
                "email": "ann@example.com",
                "avatar_url": "https://avatars.example.com/1",
            }
        )

    def repositories(self, asked: Asked) -> Told:
        return counted(asked, [described(one) for one in REPOS])

    def search(self, asked: Asked) -> Told:
        assert asked.query["uid"] == "1"
        found = named_like(asked.query["q"])
        if asked.query["sort"] == "stars":
            found.sort(key=lambda one: -one.stars)
        return Told({"ok": True, "data": [described(one) for one in found][: asked.number("limit", 10)]})

    def issues(self, asked: Asked) -> Told:
        assert asked.query["state"] == "open"
        if asked.query["type"] == "pulls":
            assert asked.query["created"] == "true"
            return Told([issue(one.repo, one.number, one.title) for one in REQUESTS])
        assert asked.query["assigned"] == "true"
        return Told([issue(*one) for one in ISSUES])

    def repository(self, asked: Asked, name: str) -> Told:
        return Told(described(repo_named(name)))

    def branches(self, asked: Asked, name: str) -> Told:
        found = repo_named(name)
        items = [
            {"name": one.name, "commit": {"id": one.sha, "timestamp": one.date}, "protected": one.protected}
            for one in found.branches
        ]
        return counted(asked, items)

    def contents(self, asked: Asked, name: str, path: str) -> Told:
        found = repo_named(name)
        if path in found.files:
            content = base64.b64encode(found.files[path].encode()).decode()
            return Told({"type": "file", "encoding": "base64", "path": path, "content": content})
        inside = [one for one in found.files if one.rpartition("/")[0] == path]
        return Told([{"type": "file", "path": one} for one in inside]) if inside else self.missing

    def make_request(self, asked: Asked, name: str) -> Told:
        body = asked.json
        repo_named(name)
        assert set(body) == {"title", "head", "base", "body"}
        is_draft = body["title"].startswith("WIP: ")
        self.made.append({**body, "title": body["title"].removeprefix("WIP: "), "draft": is_draft})
        return Told({"number": 41, "html_url": f"{self.origin}/{name}/pulls/41", "state": "open"}, 201)

    def set_labels(self, asked: Asked, name: str) -> Told:
        self.labels += asked.json["labels"]
        return Told([{"id": 1, "name": one} for one in asked.json["labels"]])

    def request(self, asked: Asked, name: str, number: str) -> Told:
        is_over = number in MERGED
        is_draft = number in DRAFTS
        is_free = is_over or (not is_draft and trouble(name, number) != "MERGE_CONFLICTS")
        head = {"sha": f"sha-{number}", "ref": "x"}
        state = "closed" if is_over else "open"
        return Told({"state": state, "mergeable": is_free, "draft": is_draft, "head": head})

    def status(self, asked: Asked, name: str, number: str) -> Told:
        return Told({"state": "failure" if trouble(name, number) == "FAILING_CHECKS" else "success"})

    def reviews(self, asked: Asked, name: str, number: str) -> Told:
        is_open = trouble(name, number) == "UNRESOLVED_COMMENTS"
        return Told([{"state": "REQUEST_CHANGES" if is_open else "APPROVED", "dismissed": False}])


def trouble(name: str, number: str) -> str:
    repo = repo_named(name)
    one = request_of(repo, int(number))
    assert one is not None
    return one.trouble


def counted(asked: Asked, items: list[Any]) -> Told:
    told = linked(asked, items, "limit")
    return Told(told.data, headers={**told.headers, "X-Total-Count": str(len(items))})


def issue(repo: Repo, number: int, title: str) -> dict[str, Any]:
    return {"number": number, "title": title, "repository": {"full_name": repo.full_name, "name": repo.name}}


def described(one: Repo) -> dict[str, Any]:
    return {
        "id": one.id,
        "full_name": one.full_name,
        "private": one.private,
        "stars_count": one.stars,
        "updated_at": one.updated,
        "default_branch": "main",
        "owner": {"login": one.owner},
    }
