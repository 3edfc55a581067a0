"""Azure DevOps: an organisation, its projects, and what is under `_apis` of either."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from tests.contract.rest.played.provider import Asked, Handler, PlayedProvider, Told
from tests.contract.rest.played.world import MERGED, REPOS, REQUESTS, TOKEN, Repo, repo_named, request_of

USER = "d6245f20-2af8-44f4-9451-8107cb2767db"


class PlayedAzureDevOps(PlayedProvider):
    authorization = "Basic " + base64.b64encode(f":{TOKEN}".encode()).decode()
    refusal = Told("<html>Sign in</html>", 203, {"Content-Type": "text/html"})
    missing = Told({"message": "TF401019: The Git repository does not exist"}, 404)
    refs_at_once = 3

    @property
    def host(self) -> str:
        return f"{self.origin}/tfs/shipyard"

    def routes(self) -> Iterator[tuple[str, Handler]]:
        base = "/tfs/shipyard"
        repository = f"{base}/([^/]+)/_apis/git/repositories/([^/]+)"
        yield f"GET {base}/_apis/connectionData", self.connection
        yield f"GET {base}/_apis/git/repositories", self.repositories
        yield f"GET {base}/([^/]+)/_apis/git/pullrequests", self.requests
        yield f"GET {repository}", self.repository
        yield f"GET {repository}/refs", self.refs
        yield f"GET {repository}/pullRequests/(\\d+)/statuses", self.statuses
        yield f"GET {repository}/pullRequests/(\\d+)", self.one_request
        yield f"POST {repository}/pullrequests", self.make_request
        yield f"GET {repository}/items", self.items

    def connection(self, asked: Asked) -> Told:
        account = {"$type": "System.String", "$value": "ann@example.com"}
        user = {"id": USER, "providerDisplayName": "Ann Mariner", "properties": {"Account": account}}
        return Told({"authenticatedUser": user, "instanceId": "1"})

    def repositories(self, asked: Asked) -> Told:
        return Told(listed([described(one) for one in REPOS]))

    def repository(self, asked: Asked, project: str, name: str) -> Told:
        return Told(described(repo_named(f"{project}/{name}")))

    def refs(self, asked: Asked, project: str, name: str) -> Told:
        found = repo_named(f"{project}/{name}")
        wanted = asked.query.get("filterContains", "")
        assert asked.query.get("filter", "heads/") == "heads/"
        refs = [
            {"name": f"refs/heads/{one.name}", "objectId": one.sha, "isLocked": one.protected}
            for one in found.branches
            if wanted in one.name
        ]
        refs.append({"name": f"refs/tags/{wanted}", "objectId": "0" * 40})
        start, end = (number * self.refs_at_once for number in (asked.number("continuationToken", 0), 1))
        rest = {"x-ms-continuationtoken": str(start // end + 1)} if start + end < len(refs) else {}
        return Told(listed(refs[start : start + end]), headers=rest)

    def requests(self, asked: Asked, project: str) -> Told:
        assert asked.query["searchCriteria.creatorId"] == USER
        assert asked.query["searchCriteria.status"] == "active"
        items = [
            {
                "pullRequestId": one.number,
                "title": one.title,
                "status": "active",
                "mergeStatus": "conflicts" if one.trouble == "MERGE_CONFLICTS" else "succeeded",
                "repository": described(one.repo),
                "reviewers": [{"vote": -5 if one.trouble == "UNRESOLVED_COMMENTS" else 10}],
            }
            for one in REQUESTS
            if one.repo.owner == project
        ]
        return Told(listed(items))

    def statuses(self, asked: Asked, project: str, name: str, number: str) -> Told:
        repo = repo_named(f"{project}/{name}")
        one = request_of(repo, int(number))
        is_bad = one is not None and one.trouble == "FAILING_CHECKS"
        first = {"id": 1, "state": "failed", "context": {"name": "build"}}
        second = {"id": 2, "state": "failed" if is_bad else "succeeded", "context": {"name": "build"}}
        return Told(listed([second, first]))

    def one_request(self, asked: Asked, project: str, name: str, number: str) -> Told:
        return Told({"pullRequestId": int(number), "status": "completed" if number in MERGED else "active"})

    def make_request(self, asked: Asked, project: str, name: str) -> Told:
        body = asked.json
        repo_named(f"{project}/{name}")
        assert asked.query["api-version"] == "7.0"
        assert set(body) == {"title", "description", "sourceRefName", "targetRefName", "isDraft"}
        made = {"head": body["sourceRefName"], "base": body["targetRefName"], "body": body["description"]}
        assert all(one.startswith("refs/heads/") for one in (made["head"], made["base"]))
        plain = {key: value.removeprefix("refs/heads/") for key, value in made.items()}
        self.made.append({**plain, "title": body["title"], "draft": body["isDraft"]})
        return Told({"pullRequestId": 41, "status": "active", "repository": {"name": name}}, 201)

    def items(self, asked: Asked, project: str, name: str) -> Told:
        found = repo_named(f"{project}/{name}")
        if "path" in asked.query:
            text = found.files.get(asked.query["path"].lstrip("/"))
            return Told({"path": asked.query["path"], "content": text}) if text is not None else self.missing
        folder = asked.query["scopePath"].strip("/")
        inside = [{"path": f"/{one}"} for one in found.files if one.rpartition("/")[0] == folder]
        return Told(listed([{"path": f"/{folder}", "isFolder": True}, *inside])) if inside else self.missing


def listed(items: list[Any]) -> dict[str, Any]:
    return {"count": len(items), "value": items}


def described(one: Repo) -> dict[str, Any]:
    return {
        "id": f"00000000-0000-0000-0000-000000000{one.id}",
        "name": one.name,
        "project": {"name": one.owner, "visibility": "private" if one.private else "public"},
        "defaultBranch": "refs/heads/main",
    }
