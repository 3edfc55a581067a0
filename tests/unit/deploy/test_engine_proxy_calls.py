"""Which calls of the Engine API pass the proxy, and in what form."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.engine_proxy.calls import find_call
from deploy.engine_proxy.rules import ForbiddenCallError

EXEC = "0f" * 32
CONTAINER = "ab" * 32


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/_ping"),
        ("HEAD", "/_ping"),
        ("GET", "/version"),
        ("GET", "/v1.41/info"),
        ("GET", "/v1.41/containers/json?all=1&limit=-1&size=0&trunc_cmd=0"),
        ("GET", "/v1.41/images/drydock/sandbox:base/json"),
        ("GET", "/v1.41/distribution/python:3.12/json"),
        ("POST", "/v1.41/images/create?tag=3.12&fromImage=python"),
        ("GET", "/v1.41/images/json?only_ids=0&all=0&filters=%7B%22reference%22%3A%5B%22drydock%2Fderived%22%5D%7D"),
        ("POST", f"/v1.41/commit?container=drydock-a-1&repo=drydock%2Fderived&tag={'ab' * 20}&pause=True"),
        ("DELETE", f"/v1.41/images/drydock/derived:{'ab' * 20}?force=False&noprune=False"),
        ("POST", "/v1.41/containers/create?name=drydock-a-1"),
        ("POST", "/v1.41/containers/drydock-a-1/start"),
        ("POST", "/v1.41/containers/drydock-a-1/stop?t=5"),
        ("POST", "/v1.41/containers/drydock-a-1/kill?signal=SIGKILL"),
        ("POST", "/v1.41/containers/drydock-a-1/wait"),
        ("POST", "/v1.41/containers/drydock-a-1/pause"),
        ("POST", "/v1.41/containers/drydock-a-1/unpause"),
        ("GET", "/v1.41/containers/drydock-a-1/logs?stdout=1&stderr=1&tail=15"),
        ("DELETE", "/v1.41/containers/drydock-a-1?v=True&link=False&force=True"),
        ("PUT", "/v1.41/containers/drydock-a-1/archive?path=%2F"),
        ("GET", "/v1.41/containers/drydock-a-1/archive?path=%2Fworkspace"),
        ("POST", "/v1.41/containers/drydock-a-1/exec"),
        ("POST", f"/v1.41/exec/{EXEC}/start"),
        ("POST", f"/v1.41/exec/{EXEC}/resize?h=24&w=80"),
        ("GET", f"/v1.41/exec/{EXEC}/json"),
        ("POST", "/v1.41/volumes/create"),
        ("GET", "/v1.41/volumes?filters=%7B%7D"),
        ("DELETE", "/v1.41/volumes/drydock-a-1-workspace?force=True"),
        ("POST", "/v1.41/networks/create"),
        ("DELETE", "/v1.41/networks/drydock-0123-full"),
        ("POST", "/v1.41/networks/drydock-0123-full/connect"),
        ("POST", "/v1.41/networks/drydock-0123-full/disconnect"),
    ],
)
def test_a_call_that_sandboxes_need_passes(method: str, target: str) -> None:
    call = find_call(method, target)
    assert (call.method, call.target().partition("?")[0]) == (method, target.partition("?")[0])


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/v1.41/build"),
        ("POST", "/v1.41/commit?container=drydock-a"),
        ("POST", "/v1.41/containers/drydock-a/update"),
        ("POST", "/v1.41/containers/drydock-a/rename?name=x"),
        ("POST", "/v1.41/containers/drydock-a/attach?stream=1"),
        ("POST", "/v1.41/containers/prune"),
        ("POST", "/v1.41/volumes/prune"),
        ("POST", "/v1.41/swarm/init"),
        ("POST", "/v1.41/plugins/pull"),
        ("POST", "/v1.41/auth"),
        ("GET", "/v1.41/events"),
        ("GET", "/v1.41/secrets"),
        ("DELETE", "/v1.41/images/python:3.12"),
        ("POST", "/v1.41/networks/drydock_engine/connect"),
        ("POST", "/v1.41/networks/prune"),
        ("POST", "/session"),
        ("CONNECT", "/_ping"),
        ("POST", "/v1.41/images/create?fromSrc=http%3A%2F%2Fx%2Fy.tar"),
        ("POST", "/v1.41/images/create?fromImage=a&fromSrc=-"),
        ("POST", "/v1.41/images/create"),
        ("POST", "/v1.41/images/create?fromImage=python"),
        ("POST", "/v1.41/images/create?fromImage=python&tag="),
        ("POST", "/v1.41/images/create?fromImage=python&tag=3%0d%0ax"),
        ("POST", "/v1.41/images/create?fromImage=a%2F..%2Fb&tag=1"),
        ("POST", "/v1.41/commit?container=drydock-a&repo=drydock%2Fsandbox&tag=base"),
        ("POST", f"/v1.41/commit?container=drydock-a&repo=drydock%2Fsandbox&tag={'ab' * 20}"),
        ("POST", "/v1.41/commit?container=drydock-a&repo=drydock%2Fderived&tag=latest"),
        ("POST", f"/v1.41/commit?container=drydock-a&repo=drydock%2Fderived&tag={'ab' * 20}&changes=USER+root"),
        ("POST", f"/v1.41/commit?repo=drydock%2Fderived&tag={'ab' * 20}"),
        ("DELETE", "/v1.41/images/drydock/sandbox:base"),
        ("DELETE", "/v1.41/images/drydock/derived:latest"),
        ("POST", "/grpc"),
        ("POST", "/v1.41/containers/drydock-a/%61ttach"),
        ("GET", "/v1.41/containers/drydock-a/%2e%2e/json"),
        ("GET", "/v1.41/containers/json?since=postgres"),
        ("GET", "/v1.41/containers/json?filters=%7B%22volume%22%3A%5B%22x%22%5D%7D"),
        ("GET", "/v1.41/containers/json?filters=%5B%5D"),
        ("GET", "/v1.41/containers/json?filters=x"),
        ("GET", "/v1.41/containers/json?filters=%7B%22label%22%3A%5B1%5D%7D"),
        ("GET", "/v1.41/containers/json?all=1&ALL=0"),
        ("DELETE", "/v1.41/containers/drydock-a?link=1"),
        ("GET", "/v1.41/images/drydock/sandbox:base/get"),
    ],
)
def test_any_other_call_is_refused(method: str, target: str) -> None:
    with pytest.raises(ForbiddenCallError):
        find_call(method, target)


@pytest.mark.parametrize(
    "target",
    [
        "/v1.41/containers/postgres/json",
        "/v1.41/containers/drydock_server_1/json",
        "/v1.41/containers/xdrydock-a/json",
        "/v1.41/containers/drydock-a%2F..%2Fpostgres/json",
        "/v1.41/containers/drydock-a/../postgres/json",
        "/v1.41/containers/drydock-a%2e%2e/json",
        "/v1.41/containers/DRYDOCK-a/json",
        "/v1.41/volumes/drydock_data",
        "/v1.41/volumes/" + CONTAINER,
        "/v1.41/networks/bridge",
        "/v1.41/networks/drydock_default",
        "/v1.41/exec/" + EXEC[:12] + "/json",
        "/v1.23/containers/drydock-a/json",
        "//v1.41/containers/drydock-a/json",
        "/v1.41/v1.41/version",
    ],
)
def test_things_of_others_are_out_of_reach(target: str) -> None:
    with pytest.raises(ForbiddenCallError):
        find_call("GET", target)


@pytest.mark.parametrize("name", ["postgres", "drydock_x", "", "drydock-a/b", "drydock-ä"])
def test_a_container_is_made_only_under_a_name_of_ours(name: str) -> None:
    with pytest.raises(ForbiddenCallError):
        find_call("POST", f"/v1.41/containers/create?name={name}")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?name=drydock-a&name=postgres",
        "?n%61me=postgres&name=drydock-a",
        "?name=drydock-a&x=1",
        "?name=drydock-a;x",
    ],
)
def test_a_name_cannot_be_given_in_two_ways(query: str) -> None:
    with pytest.raises(ForbiddenCallError):
        find_call("POST", f"/v1.41/containers/create{query}")


@pytest.mark.parametrize("reference", ["drydock-a", CONTAINER, CONTAINER[:12]])
def test_what_was_checked_takes_the_place_of_what_was_named(reference: str) -> None:
    call = find_call("DELETE", f"/v1.41/containers/{reference}?force=True")
    assert call.own == reference
    assert call.target("cd" * 32) == f"/v1.41/containers/{'cd' * 32}?force=True"


def test_path_and_query_are_written_anew() -> None:
    call = find_call("GET", "/v1.41/containers/drydock-a/archive?path=%2Fwork%20space%26x%3D1")
    assert call.target() == "/v1.41/containers/drydock-a/archive?path=%2Fwork+space%26x%3D1"


@given(st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=60))
def test_whatever_is_asked_for_the_engine_sees_only_plain_paths_of_ours(text: str) -> None:
    try:
        call = find_call("DELETE", f"/v1.41/containers/{text}")
    except ForbiddenCallError:
        return
    assert call.own.startswith("drydock-") or re.fullmatch("[0-9a-f]{12,64}", call.own)
    assert call.target(CONTAINER).partition("?")[0] == f"/v1.41/containers/{CONTAINER}"


@given(st.binary(max_size=60))
def test_whatever_filters_are_given_the_engine_sees_plain_ones(text: bytes) -> None:
    try:
        call = find_call("GET", "/v1.41/volumes?filters=" + quote(text))
    except ForbiddenCallError:
        return
    assert all(isinstance(value, str) for values in call.filters.values() for value in values)
