from __future__ import annotations

import httpx
import pytest

from server.app import create_app
from server.settings.settings import Settings
from tests.contract.rest.conftest import MakeServer, Server

POLLED = [
    "/api/conversations?limit=10",
    "/api/conversations/{id}",
    "/api/conversations/{id}/config",
    "/api/conversations/{id}/events",
    "/api/options/config",
    "/api/options/models",
    "/api/settings",
    "/api/microagent-management/conversations?selected_repository=o/n",
]


async def again(server: Server, path: str, tag: str) -> httpx.Response:
    return await server.get(path, headers={"If-None-Match": tag})


@pytest.fixture
async def conversation_id(server: Server) -> str:
    await server.post("/api/settings", json={"language": "en"})
    conversation_id = await server.create()
    await server.until_running(conversation_id)

    async def is_at_rest() -> bool:
        return bool((await server.info(conversation_id))["agent_state"] == "awaiting_user_input")

    await server.until(is_at_rest)
    return conversation_id


@pytest.mark.parametrize("path", POLLED)
async def test_what_is_polled_has_a_tag_and_who_has_it_already_is_told_so(
    server: Server, conversation_id: str, path: str
) -> None:
    path = path.format(id=conversation_id)
    first = await server.get(path)
    assert first.status_code == 200
    tag = first.headers["etag"]
    same = await again(server, path, tag)
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert "content-type" not in same.headers
    for response in (first, same):
        assert response.headers["vary"] == "Authorization, X-Session-API-Key"
        assert response.headers["cache-control"] == "no-store"
    other = await again(server, path, '"other"')
    assert (other.status_code, other.content) == (200, first.content)


async def test_each_change_of_a_conversation_changes_its_tags(server: Server, conversation_id: str) -> None:
    paths = ["/api/conversations?limit=10", f"/api/conversations/{conversation_id}"]
    tags = [(await server.get(path)).headers["etag"] for path in paths]
    await server.client.patch(paths[1], json={"title": "Another one"})
    for path, tag in zip(paths, tags, strict=True):
        response = await again(server, path, tag)
        assert response.status_code == 200
        assert response.headers["etag"] != tag
        assert "Another one" in response.text


@pytest.mark.parametrize("form", ["W/{tag}", '"a", {tag}', '"a",W/{tag} , "b"', "*"])
async def test_all_forms_of_naming_a_tag_count(server: Server, form: str) -> None:
    tag = (await server.get("/api/options/models")).headers["etag"]
    assert (await again(server, "/api/options/models", form.format(tag=tag))).status_code == 304


@pytest.mark.parametrize("header", ["", ",", '"', "W/", "\xff", '"*"'])
async def test_what_names_no_tag_changes_nothing(server: Server, header: str) -> None:
    response = await server.get("/api/options/models", headers={b"If-None-Match": header.encode("latin-1")})
    assert response.status_code == 200


async def test_errors_have_no_tag_and_no_tag_hides_them(server: Server) -> None:
    for path in ("/api/settings", "/api/conversations/unknown/events"):
        response = await again(server, path, "*")
        assert response.status_code == 404
        assert "etag" not in response.headers


async def test_who_may_not_ask_learns_nothing_by_a_tag(make_server: MakeServer) -> None:
    async with make_server(token="t" * 24) as server:
        path = "/api/options/models"
        known = {"X-Session-API-Key": "t" * 24}
        tag = (await server.get(path, headers=known)).headers["etag"]
        assert (await server.get(path, headers={**known, "If-None-Match": tag})).status_code == 304
        assert (await again(server, path, tag)).status_code == 401


def test_the_document_tells_of_tags_where_there_are_some(tmp_path: object) -> None:
    paths = create_app(Settings.model_validate({"data_dir": tmp_path})).api.openapi()["paths"]
    for path in ("/api/conversations", "/api/conversations/{conversation_id}", "/api/settings"):
        operation = paths[path]["get"]
        assert "304" in operation["responses"]
        assert "If-None-Match" in [one["name"] for one in operation["parameters"]]
    assert "304" not in paths["/api/conversations"]["post"]["responses"]
