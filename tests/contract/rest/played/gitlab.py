"""GitLab: REST under /api/v4, GraphQL under /api/graphql."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.contract.rest.played.provider import Asked, Handler, PlayedProvider, Told, linked
from tests.contract.rest.played.world import ISSUES, MERGED, REPOS, REQUESTS, TOKEN, Repo, named_like, repo_named


class PlayedGitLab(PlayedProvider):
    authorization = f"Bearer {TOKEN}"
    refusal = Told({"message": "401 Unauthorized"}, 401)
    missing = Told({"message": "404 Project Not Found"}, 404)

    def routes(self) -> Iterator[tuple[str, Handler]]:
        api = "/api/v4"
        yield f"GET {api}/user", self.user
        yield f"GET {api}/projects", self.projects
        yield f"GET {api}/projects/([^/]+)", self.project
        yield f"GET {api}/projects/([^/]+)/repository/branches", self.branches
        yield f"GET {api}/projects/([^/]+)/repository/tree", self.tree
        yield f"GET {api}/projects/([^/]+)/repository/files/([^/]+)/raw", self.file
        yield f"GET {api}/projects/([^/]+)/merge_requests/(\\d+)", self.one_request
        yield f"POST {api}/projects/([^/]+)/merge_requests", self.make_request
        yield f"GET {api}/issues", self.issues
        yield "POST /api/graphql", self.graphql

    def user(self, asked: Asked) -> Told:
        return Told(
            {
                "id": 1,
                "username": "ann",
                "name": "Ann Mariner",
                "avatar_url": "https://avatars.example.com/1",
                "organization": "Acme",
                "email": "ann@example.com",
            }
        )

    def projects(self, asked: Asked) -> Told:
        assert asked.query["membership"] == "true"
        assert asked.query.get("order_by", "id") in {"id", "name", "created_at", "last_activity_at", "star_count"}
        text = asked.query.get("search", "")
        with_path = asked.query.get("search_namespaces") == "true" and "/" in text
        found = [one for one in REPOS if text in one.full_name] if with_path else named_like(text)
        if asked.query.get("order_by") == "star_count":
            found.sort(key=lambda one: -one.stars)
        return counted(asked, [described(one) for one in found])

    def project(self, asked: Asked, name: str) -> Told:
        return Told(described(repo_named(name)))

    def branches(self, asked: Asked, name: str) -> Told:
        found = repo_named(name)
        return counted(
            asked,
            [
                {"name": b.name, "commit": {"id": b.sha, "committed_date": b.date}, "protected": b.protected}
                for b in found.branches
                if asked.query.get("search", "") in b.name
            ],
        )

    def tree(self, asked: Asked, name: str) -> Told:
        found = repo_named(name)
        inside = [one for one in found.files if one.rpartition("/")[0] == asked.query["path"]]
        return Told([{"type": "blob", "path": one} for one in inside]) if inside else self.missing

    def file(self, asked: Asked, name: str, path: str) -> Told:
        found = repo_named(name)
        assert asked.query["ref"] == "HEAD"
        return Told(found.files[path]) if path in found.files else self.missing

    def one_request(self, asked: Asked, name: str, number: str) -> Told:
        return Told({"iid": int(number), "state": "merged" if number in MERGED else "opened"})

    def make_request(self, asked: Asked, name: str) -> Told:
        body = asked.json
        found = next((one for one in REPOS if name in (one.full_name, str(one.id))), None)
        if found is None:
            return self.missing
        assert set(body) - {"labels"} == {"title", "source_branch", "target_branch", "description"}
        if body["source_branch"] == "fix/4":
            return Told({"message": ["Another open merge request already exists for this source branch: !11"]}, 409)
        self.labels += body.get("labels", "").split(",") if "labels" in body else []
        made = {"head": body["source_branch"], "base": body["target_branch"], "body": body["description"]}
        self.made.append({**made, "title": body["title"], "draft": False})
        return Told({"iid": 41, "id": 90041, "web_url": f"{self.origin}/{found.full_name}/-/merge_requests/41"}, 201)

    def issues(self, asked: Asked) -> Told:
        assert (asked.query["scope"], asked.query["state"]) == ("assigned_to_me", "opened")
        return Told(
            [
                {"iid": number, "title": title, "references": {"full": f"{repo.full_name}#{number}"}}
                for repo, number, title in ISSUES
            ]
        )

    def graphql(self, asked: Asked) -> Told:
        nodes = [
            {
                "iid": str(one.number),
                "title": one.title,
                "project": {"fullPath": one.repo.full_name},
                "conflicts": one.trouble == "MERGE_CONFLICTS",
                "headPipeline": {"status": "FAILED" if one.trouble == "FAILING_CHECKS" else "SUCCESS"},
                "resolvableDiscussionsCount": 2,
                "resolvedDiscussionsCount": 1 if one.trouble == "UNRESOLVED_COMMENTS" else 2,
            }
            for one in REQUESTS
        ]
        return Told({"data": {"currentUser": {"authoredMergeRequests": {"nodes": nodes}}}})


def counted(asked: Asked, items: list[Any]) -> Told:
    told = linked(asked, items, "per_page")
    return Told(told.data, headers={**told.headers, "X-Total": str(len(items))})


def described(one: Repo) -> dict[str, Any]:
    return {
        "id": one.id,
        "path_with_namespace": one.full_name,
        "visibility": "private" if one.private else "public",
        "star_count": one.stars,
        "last_activity_at": one.updated,
        "default_branch": "main",
        "namespace": {"kind": "user" if one.is_personal else "group", "full_path": one.owner},
    }
