"""What is no sane JSON is refused in words, on every route that takes a body, and leaves nothing behind."""

from __future__ import annotations

from tests.contract.rest.conftest import MakeServer, Server

JSON = {"content-type": "application/json"}


BODIES = [
    (b'{"%s": ', "valid JSON"),
    (b"\xff\xfe{}", "valid JSON"),
    (b'{"%s": NaN}', "%s is not a finite number; send a finite one or null"),
    (b'{"%s": 1e999}', "%s is not a finite number"),
    (b'{"%s": "\\ud800"}', "%s contains half a character"),
    (b'{"%s": "a\\u0000b"}', "%s contains a NUL"),
    (b'{"%s": 99999999999999999}', "%s is an integer beyond 2^53"),
    (b"[" * 5000 + b"]" * 5000, "depth"),
    (b'{"%s":' + b"[" * 100 + b"]" * 100 + b"}", "deeper"),
]
ROUTES = [
    ("POST", "/api/conversations", b"initial_user_msg"),
    ("PATCH", "/api/conversations/c", b"title"),
    ("POST", "/api/conversations/c/message", b"message"),
    ("POST", "/api/conversations/c/events", b"action"),
    ("POST", "/api/settings", b"llm_api_key"),
]


async def test_a_body_that_is_no_sane_json_is_a_422_that_says_why(make_server: MakeServer) -> None:
    async with make_server(allow_set_conversation_id=True) as server:
        await server.create(conversation_id="c")
        for method, path, field in ROUTES:
            for body, problem in BODIES:
                content = body.replace(b"%s", field)
                response = await server.client.request(method, path, content=content, headers=JSON)
                assert response.status_code == 422, (path, body[:40])
                for shown in ("detail", "message"):
                    assert problem.replace("%s", field.decode()) in str(response.json()[shown]), (path, body[:40])
        assert (await server.get("/api/settings")).status_code == 404
        assert len((await server.get("/api/conversations")).json()["results"]) == 1


async def test_a_place_in_a_text_is_not_told_as_a_field_and_the_text_is_not_repeated(server: Server) -> None:
    response = await server.post("/api/settings", content=b'{"language": secret', headers=JSON)
    assert response.json()["message"].startswith("the body is no valid JSON: ")
    assert "secret" not in response.text


async def test_an_address_that_is_no_text_is_told_in_words_that_clients_show(server: Server) -> None:
    response = await server.get("/api/conversations?page_id=%FF")
    assert response.status_code == 422
    assert response.json()["message"] == "page_id: holds bytes that are no UTF-8; percent-encode text as UTF-8"


async def test_a_wrong_field_is_named_with_its_problem_and_what_to_do(make_server: MakeServer) -> None:
    cases: list[tuple[str, object, list[str], str]] = [
        ("", {"initial_user_mgs": "x"}, ["body", "initial_user_mgs"], "did you mean 'initial_user_msg'?"),
        ("", {"initial_user_msg": 5}, ["body", "initial_user_msg"], "valid string"),
        ("", {"git_provider": "gitub"}, ["body", "git_provider"], "'github', 'gitlab'"),
        ("", {"repository": "x" * 501}, ["body", "repository"], "at most 500 characters"),
        ("", {"suggested_task": []}, ["body", "suggested_task"], "send a JSON object"),
        ("/c/message", {}, ["body", "message"], "send it"),
    ]
    async with make_server(allow_set_conversation_id=True) as server:
        await server.create(conversation_id="c")
        for path, body, place, fix in cases:
            response = await server.post(f"/api/conversations{path}", json=body)
            (problem,) = response.json()["detail"]
            assert (response.status_code, problem["loc"]) == (422, place)
            assert fix in problem["msg"], (body, problem)
        asked = await server.get("/api/conversations/c/select-file")
        assert asked.json()["detail"][0] == {
            "type": "missing",
            "loc": ["query", "file"],
            "msg": "Field required: send it",
        }


async def test_a_message_over_the_limit_is_refused_over_http_too(make_server: MakeServer) -> None:
    long = "x" * 2000
    async with make_server(allow_set_conversation_id=True, max_message_bytes=1024) as server:
        await server.create(conversation_id="c")
        for path, body in (
            ("/api/conversations", {"initial_user_msg": long}),
            ("/api/conversations/c/message", {"message": long}),
            ("/api/conversations/c/events", {"action": "message", "args": {"content": long}}),
        ):
            response = await server.post(path, json=body)
            assert response.status_code == 400
            assert "1024 bytes" in response.text


async def test_numbers_beyond_all_reason_are_no_settings(server: Server) -> None:
    huge = {"max_iterations": 10**12, "condenser_max_size": 10**12, "remote_runtime_resource_factor": -1}
    for name, value in huge.items():
        assert (await server.post("/api/settings", json={name: value})).status_code == 422
    assert (await server.get("/api/settings")).status_code == 404


async def test_a_page_id_with_half_a_character_is_refused(server: Server) -> None:
    response = await server.get("/api/conversations", params={"page_id": "WzEsICJcdWQ4MDAiXQ"})
    assert response.status_code == 400
    assert "page_id" in response.json()["detail"]
