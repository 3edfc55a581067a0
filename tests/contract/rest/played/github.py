"""GitHub, as a company has it: REST under /api/v3, GraphQL under /api/graphql."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from tests.contract.rest.played.provider import Asked, Handler, PlayedProvider, Told, linked
from tests.contract.rest.played.world import (
    ISSUES,
    MERGED,
    REPOS,
    REQUESTS,
    TOKEN,
    Branch,
    Repo,
    named_like,
    repo_named,
)


class PlayedGitHub(PlayedProvider):
    authorization = f"Bearer {TOKEN}"
    refusal = Told({"message": "Bad credentials", "documentation_url": "https://docs.github.com/rest"}, 401)

    def routes(self) -> Iterator[tuple[str, Handler]]:
        api = "/api/v3"
        yield f"GET {api}/user", self.user
        yield f"GET {api}/user/orgs", self.organizations
        yield f"GET {api}/user/installations", self.installations
        yield f"GET {api}/user/installations/(\\d+)/repositories", self.of_installation
        yield f"GET {api}/user/repos", self.repositories
        yield f"GET {api}/repos/([^/]+/[^/]+)", self.repository
        yield f"GET {api}/repos/([^/]+/[^/]+)/branches", self.branches
        yield f"GET {api}/repos/([^/]+/[^/]+)/contents/(.+)", self.contents
        yield f"GET {api}/repos/([^/]+/[^/]+)/pulls/(\\d+)", self.one_request
        yield f"POST {api}/repos/([^/]+/[^/]+)/pulls", self.make_request
        yield f"POST {api}/repos/([^/]+/[^/]+)/issues/41/labels", self.set_labels
        yield f"GET {api}/search/repositories", self.search
        yield "POST /api/graphql", self.graphql

    def user(self, asked: Asked) -> Told:
        return Told(
            {
                "login": "ann",
                "id": 1,
                "avatar_url": "https://avatars.example.com/1",
                "type": "User",
                "name": "Ann Mariner",
                "company": "Acme",
                "email": None,
            }
        )

    def organizations(self, asked: Asked) -> Told:
        return Told([{"login": "acme", "id": 2}])

    def installations(self, asked: Asked) -> Told:
        return Told({"total_count": 2, "installations": [{"id": 501, "account": {"login": "ann"}}, {"id": 502}]})

    def of_installation(self, asked: Asked, number: str) -> Told:
        owner = {"501": "ann", "502": "acme"}.get(number)
        if owner is None:
            return self.missing
        told = linked(asked, [described(one) for one in REPOS if one.owner == owner], "per_page")
        return Told({"total_count": 2, "repositories": told.data}, headers=told.headers)

    def repositories(self, asked: Asked) -> Told:
        assert asked.query["sort"] in {"created", "updated", "pushed", "full_name"}
        return linked(asked, [described(one) for one in REPOS], "per_page")

    def repository(self, asked: Asked, name: str) -> Told:
        return Told(described(repo_named(name)))

    def branches(self, asked: Asked, name: str) -> Told:
        found = repo_named(name)
        items = [{"name": b.name, "commit": {"sha": b.sha}, "protected": b.protected} for b in found.branches]
        return linked(asked, items, "per_page")

    def contents(self, asked: Asked, name: str, path: str) -> Told:
        found = repo_named(name)
        if path in found.files:
            content = base64.encodebytes(found.files[path].encode()).decode()
            return Told({"type": "file", "encoding": "base64", "path": path, "content": content})
        inside = [one for one in found.files if one.rpartition("/")[0] == path]
        entries = [{"type": "file", "name": one.rpartition("/")[2], "path": one} for one in inside]
        return Told(entries) if entries else self.missing

    def one_request(self, asked: Asked, name: str, number: str) -> Told:
        return Told({"number": int(number), "state": "closed" if number in MERGED else "open"})

    def make_request(self, asked: Asked, name: str) -> Told:
        body, found = asked.json, repo_named(name)
        assert set(body) == {"title", "head", "base", "body", "draft"}
        if body["head"] not in {branch.name for branch in found.branches}:
            errors = [{"resource": "PullRequest", "field": "head", "code": "invalid"}]
            return Told({"message": "Validation Failed", "errors": errors}, 422)
        if body["base"] == body["head"]:
            errors = [{"resource": "PullRequest", "code": "custom", "message": f"No commits between {name}"}]
            return Told({"message": "Validation Failed", "errors": errors}, 422)
        self.made.append({**body, "draft": body["draft"]})
        return Told({"number": 41, "html_url": f"{self.origin}/{name}/pull/41", "state": "open"}, 201)

    def set_labels(self, asked: Asked, name: str) -> Told:
        self.labels += asked.json["labels"]
        return Told([{"name": one} for one in asked.json["labels"]])

    def search(self, asked: Asked) -> Told:
        words = asked.query["q"].split()
        owners = {word.partition(":")[2] for word in words if word.startswith(("user:", "org:"))}
        text = " ".join(word for word in words if ":" not in word)
        found = [described(one) for one in named_like(text) if one.owner in owners]
        if asked.query.get("sort") == "stars":
            found.sort(key=lambda one: -one["stargazers_count"])
        size = asked.number("per_page", 30)
        return Told({"total_count": len(found), "incomplete_results": False, "items": found[:size]})

    def graphql(self, asked: Asked) -> Told:
        query, variables = asked.json["query"], asked.json["variables"]
        if "refs(" in query:
            return Told({"data": self._refs(variables)})
        assert variables == {"login": "ann"}
        if "pullRequests" in query:
            return Told({"data": {"user": {"pullRequests": {"nodes": [request(one) for one in REQUESTS]}}}})
        issues = [
            {"number": number, "title": title, "repository": {"nameWithOwner": repo.full_name}}
            for repo, number, title in ISSUES
        ]
        return Told({"data": {"user": {"issues": {"nodes": issues}}}})

    def _refs(self, variables: dict[str, Any]) -> dict[str, Any]:
        full_name = f"{variables['owner']}/{variables['name']}"
        found = next((one for one in REPOS if one.full_name == full_name), None)
        if found is None:
            return {"repository": None}
        nodes = [ref(one) for one in found.branches if variables["query"] in one.name]
        return {"repository": {"refs": {"nodes": nodes[: variables["limit"]]}}}


def described(one: Repo) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "full_name": one.full_name,
        "private": one.private,
        "owner": {"login": one.owner, "type": "User" if one.is_personal else "Organization"},
        "stargazers_count": one.stars,
        "pushed_at": one.updated,
        "default_branch": "main",
    }


def ref(one: Branch) -> dict[str, Any]:
    rule = {"id": "BPR_1"} if one.protected else None
    return {
        "name": one.name,
        "target": {"oid": one.sha, "committedDate": one.date},
        "branchProtectionRule": rule,
    }


def request(one: Any) -> dict[str, Any]:
    state = "FAILURE" if one.trouble == "FAILING_CHECKS" else "SUCCESS"
    reviews = [{"state": "CHANGES_REQUESTED"}] if one.trouble == "UNRESOLVED_COMMENTS" else []
    return {
        "number": one.number,
        "title": one.title,
        "repository": {"nameWithOwner": one.repo.full_name},
        "mergeable": "CONFLICTING" if one.trouble == "MERGE_CONFLICTS" else "MERGEABLE",
        "commits": {"nodes": [{"commit": {"statusCheckRollup": {"state": state}}}]},
        "reviews": {"nodes": reviews},
    }
