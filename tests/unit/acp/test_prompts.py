"""What a user says in an editor, as a message; and an editor's MCP servers, as a conversation's."""

from __future__ import annotations

from typing import Any

import pytest
from acp import audio_block, image_block, resource_block, resource_link_block, text_block
from acp.exceptions import RequestError
from acp.helpers import embedded_blob_resource, embedded_text_resource
from acp.schema import EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer
from hypothesis import given
from hypothesis import strategies as st

from server.doors.acp.agent import mcp_config
from server.doors.acp.prompts import blocks_of, fenced, message_from


def test_the_blocks_of_a_prompt_are_one_message() -> None:
    blocks: list[Any] = [
        text_block("Look at "),
        resource_link_block("a", "file:///a.py"),
        text_block("please"),
        image_block("QUJD", "image/png"),
        resource_block(embedded_text_resource("file:///b.py", "code")),
    ]
    message = message_from(blocks)
    assert message.text == "Look at  <file:///a.py> please\n\n<file:///b.py>:\n```\ncode\n```"
    assert message.images == ["data:image/png;base64,QUJD"]


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (text_block("  "), "prompt: says nothing"),
        (text_block("\ud800"), "prompt.0.text: has NUL"),
        (audio_block("QUJD", "audio/wav"), "prompt.0.type: is audio"),
        (image_block("%%", "image/png"), "prompt.0.data: is no base64"),
        (image_block("QUJD", "text/html"), "prompt.0.mimeType: 'text/html'"),
        (image_block("QUJD", "image/png,x"), "prompt.0.mimeType"),
        (resource_link_block("a", "file:///\0"), "prompt.0.uri: has NUL"),
        (resource_block(embedded_text_resource("file:///a", "\0")), "prompt.0.resource.text: has NUL"),
        (resource_block(embedded_blob_resource("file:///a", "QUJD")), "prompt.0.resource.blob: is binary"),
    ],
)
def test_what_cannot_be_said_is_refused_by_its_place(block: Any, problem: str) -> None:
    with pytest.raises(RequestError) as caught:
        message_from([block])
    assert str(caught.value).startswith(problem)
    assert caught.value.code == -32602


def test_a_message_of_the_log_is_blocks_again() -> None:
    blocks = blocks_of("Hi", ["data:image/png;base64,QUJD", "https://host/a.png"])
    assert [block.type for block in blocks] == ["text", "image", "text"]


@given(st.text(alphabet="`a\n"))
def test_nothing_ends_a_fence_but_its_end(text: str) -> None:
    fence = fenced(text)
    opening = fence.partition("\n")[0]
    assert fence.split("\n").count(opening) == 2


def test_mcp_servers_are_given_on() -> None:
    config = mcp_config(
        [
            McpServerStdio(name="my files", command="/bin/mcp", args=["-v"], env=[EnvVariable(name="A", value="1")]),
            HttpMcpServer(
                type="http",
                name="x",
                url="https://h/mcp",
                headers=[HttpHeader(name="authorization", value="Bearer secret")],
            ),
            SseMcpServer(type="sse", name="y", url="http://h/sse", headers=[]),
        ]
    )
    assert config == {
        "stdio_servers": [{"name": "my-files", "command": "/bin/mcp", "args": ["-v"], "env": {"A": "1"}}],
        "shttp_servers": [{"url": "https://h/mcp", "api_key": "secret"}],
        "sse_servers": [{"url": "http://h/sse"}],
    }


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        (McpServerStdio(name="x", command="a b", args=[], env=[]), "mcpServers.0.command: "),
        (SseMcpServer(type="sse", name="x", url="nope", headers=[]), "mcpServers.0.url: 'nope'"),
        (
            HttpMcpServer(type="http", name="x", url="http://h", headers=[HttpHeader(name="X-A", value="b")]),
            "mcpServers.0.headers.0: is 'X-A'",
        ),
    ],
)
def test_servers_that_cannot_be_given_on_are_refused_by_their_place(server: Any, problem: str) -> None:
    with pytest.raises(RequestError) as caught:
        mcp_config([server])
    assert str(caught.value).startswith(problem)
