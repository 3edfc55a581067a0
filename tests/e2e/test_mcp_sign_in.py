"""Signing in with an MCP server on the page: out to a real page of a server of tokens, and back."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import expect

from agent_core.testing.model_server import ModelRequest
from agent_core.testing.model_turns import Call, Turn, say
from tests.authorization_server import guarded_tools
from tests.e2e.conftest import MakeModel, OpenPage, StartServer, ask, done, until_phase

pytestmark = [
    pytest.mark.browser,
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="module"),
]


TOKEN = "a-token-of-24-characters"


def who(request: ModelRequest) -> Turn:
    """Calls the tool once it is there."""
    if "whoami" not in json.dumps(request.json.get("tools")):
        return say("I cannot do that yet.")
    if request.json["messages"][-1]["role"] == "tool":
        return done()
    return Turn(calls=(Call("whoami", {}),))


async def test_a_conversation_asks_for_a_sign_in_and_uses_the_tools_after_it(
    start_server: StartServer, visit: OpenPage, scripted: MakeModel
) -> None:
    async with guarded_tools(consent="ask") as tools:
        server = await start_server(model=await scripted(who), DRYDOCK_TOKEN=TOKEN)
        async with server.client() as client:
            servers = {"sse_servers": [], "stdio_servers": [], "shttp_servers": [tools.url]}
            stored = await client.post("/api/settings", json={"mcp_config": servers})
            assert stored.status_code == 200, stored.text
        seen = await visit(f"{server.url}/#token={TOKEN}")
        page = seen.page
        await ask(page, "Who am I?")
        notice = page.get_by_test_id("mcp-sign-in-notice")
        await expect(page.get_by_test_id("error-card")).to_contain_text("wants you to sign in")
        await until_phase(page, "ready")
        conversation = page.url

        await notice.get_by_test_id("mcp-sign-in").click()
        await page.get_by_role("button", name="Deny").click()
        await expect(page.get_by_role("alert")).to_contain_text("it was refused there: access_denied")
        await page.get_by_role("link", name="Back to Drydock").click()
        await expect(page).to_have_url(conversation)

        await notice.get_by_test_id("mcp-sign-in").click()
        await page.wait_for_url(f"{tools.tokens.url}/**")
        await page.get_by_role("button", name="Allow").click()
        await expect(page).to_have_url(conversation)
        await expect(notice).to_contain_text("You are signed in")
        await ask(page, "And now?")
        await until_phase(page, "finished")
        assert len(tools.tokens.tokens) == 1
        (token,) = tools.tokens.tokens
        assert token in tools.shown
        assert token not in await page.content()

        await page.goto(f"{server.url}/settings")
        await expect(page.get_by_test_id("mcp-server")).to_have_attribute("data-state", "signed_in")
        await page.get_by_test_id("mcp-sign-out").click()
        await expect(page.get_by_test_id("mcp-server")).to_have_attribute("data-state", "wanted")
        assert all(one.is_over for one in tools.tokens.tokens.values())
        assert seen.problems == []
