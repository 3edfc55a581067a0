"""What a person does with the page: from the first visit to the day after the power cut."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from playwright.async_api import expect

from agent_core.events.event import utc_now
from agent_core.testing.model_turns import Call, Turn, say
from server.db.database import open_database
from server.db.engine import DatabaseSettings
from server.db.repositories.conversations import ConversationRecord
from tests.e2e.conftest import MakeModel, OpenPage, Play, StartServer, ask, done, overflow, run, until_phase
from tests.integration.server.conftest import ServerProcess
from tests.unit.runner.test_pictures import png

pytestmark = [
    pytest.mark.browser,
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="module"),
]


async def test_a_first_visit_ends_with_the_demo_having_mended_a_failing_test(
    start_server: StartServer, visit: OpenPage
) -> None:
    server = await start_server()
    seen = await visit(server.url)
    page = seen.page
    await expect(page.get_by_test_id("demo-note")).to_be_visible()
    await ask(page, "Show me what you can do")
    await expect(page.get_by_test_id("user-message").first).to_contain_text("Show me what you can do")
    await until_phase(page, "finished", patience=90)
    await expect(page.get_by_test_id("finish-card")).to_be_visible()
    await expect(page.get_by_test_id("conversation-item")).to_have_count(1)
    await page.reload()
    await until_phase(page, "finished")
    await expect(page.get_by_test_id("finish-card")).to_have_count(1)
    assert seen.problems == []
    assert seen.complaints == []
    assert seen.foreign == []


async def test_commands_show_their_output_live_and_edits_their_difference(play: Play, visit: OpenPage) -> None:
    edit = Turn(calls=(Call("file_editor", {"command": "create", "path": "/workspace/a.txt", "file_text": "one\n"}),))
    server = play([run("echo first; sleep 2; echo second; false"), edit, done()])
    page = (await visit(server.url)).page
    await ask(page, "go")
    await expect(page.get_by_test_id("live-output")).to_contain_text("first")
    await until_phase(page, "finished")
    card = page.get_by_test_id("command-card").first
    await expect(card).to_have_attribute("data-status", "failed")
    await expect(card).to_contain_text("second")
    await expect(page.get_by_test_id("edit-card")).to_contain_text("a.txt")
    await expect(page.get_by_test_id("finish-card")).to_contain_text("All is done.")


async def test_an_image_is_shown_and_a_drafted_edit_tells_its_difference_and_its_problems(
    start_server: StartServer, visit: OpenPage, scripted: MakeModel
) -> None:
    picture = base64.b64encode(png()).decode()
    draft = {"path": "/workspace/a.py", "content": "x = (\n"}
    model = await scripted(
        [
            run(f"echo {picture} | base64 -d > a.png; echo 'x = 1' > a.py"),
            Turn(calls=(Call("edit_file", draft),)),
            *[say("<updated_code>\nx = (\n</updated_code>") for _ in range(6)],
            done(),
        ]
    )
    options = '{"enable_llm_editor": true, "enable_jupyter": false, "enable_browsing": false}'
    server = await start_server(model=model, DRYDOCK_AGENT_OPTIONS=options)
    seen = await visit(server.url)
    page = seen.page
    await ask(page, "go")
    await until_phase(page, "finished", patience=120)
    card = page.get_by_test_id("edit-card")
    await expect(card).to_contain_text("Edited, with problems: a.py")
    await expect(card).to_contain_text("SyntaxError")
    await card.get_by_text("What it changed").click()
    await expect(card.locator(".diff")).to_contain_text("x = 1")
    url = page.url
    async with server.client() as client:
        event = {"action": "read", "args": {"path": "/workspace/a.png"}}
        response = await client.post(f"/api/conversations/{url.rpartition('/')[2]}/events", json=event)
        assert response.status_code == 200, response.text
    card = page.get_by_test_id("read-card")
    await card.get_by_role("button", name="a.png").click()  # which it is once it has been read
    await expect(card.locator("img")).to_have_js_property("naturalWidth", 3)
    assert seen.problems == []


async def test_stop_ends_a_command_and_a_message_goes_on(play: Play, visit: OpenPage) -> None:
    server = play([run("sleep 600"), done()])
    page = (await visit(server.url)).page
    await ask(page, "go")
    await page.locator('[data-testid="command-card"][data-status="running"]').wait_for()
    await page.get_by_test_id("stop-button").click()
    await until_phase(page, "stopped")
    await page.locator('[data-testid="command-card"][data-status="stopped"]').wait_for()
    await ask(page, "and now finish")
    await until_phase(page, "finished")


async def test_pause_and_resume(play: Play, visit: OpenPage) -> None:
    server = play([run("sleep 600"), done()])
    page = (await visit(server.url)).page
    await ask(page, "go")
    await page.locator('[data-testid="command-card"][data-status="running"]').wait_for()
    await page.get_by_test_id("pause-button").click()
    await until_phase(page, "paused")
    await page.get_by_test_id("resume-button").click()
    await until_phase(page, "finished")


async def test_the_server_is_killed_and_started_again_under_an_open_page(
    start_server: StartServer, visit: OpenPage, scripted: MakeModel
) -> None:
    model = await scripted([run("echo before"), run("sleep 4; echo during"), done("It survived.")])
    server = await start_server(model=model)
    seen = await visit(server.url)
    page = seen.page
    await ask(page, "go")
    await page.locator('[data-testid="command-card"][data-status="running"]').wait_for()
    await expect(page.get_by_test_id("command-card").first).to_contain_text("before")
    await server.kill()
    await expect(page.get_by_test_id("user-message")).to_have_count(1)
    await server.start()
    await until_phase(page, "finished", patience=90)
    await expect(page.get_by_test_id("finish-card")).to_contain_text("It survived.")
    await expect(page.get_by_test_id("command-card")).to_have_count(2)
    await expect(page.get_by_test_id("user-message")).to_have_count(1)
    await expect(page.get_by_test_id("command-card").nth(1)).to_contain_text("during")
    assert seen.problems == []


async def test_conversations_are_renamed_and_deleted(play: Play, visit: OpenPage) -> None:
    server = play(lambda request: say("Hello."))
    page = (await visit(server.url)).page
    await ask(page, "first words")
    await until_phase(page, "ready")
    item = page.get_by_test_id("conversation-item").first
    await item.hover()
    await item.get_by_test_id("conversation-menu").click()
    await page.get_by_test_id("rename-conversation").click()
    await page.get_by_test_id("rename-input").fill("A better name")
    await page.get_by_test_id("rename-input").press("Enter")
    await expect(page.get_by_test_id("conversation-title")).to_contain_text("A better name")
    await item.hover()
    await item.get_by_test_id("conversation-menu").click()
    await page.get_by_test_id("delete-conversation").click()
    await page.get_by_test_id("confirm-ok").click()
    await expect(page.get_by_test_id("conversation-item")).to_have_count(0)
    async with server.client() as client:
        assert (await client.get("/api/conversations")).json()["results"] == []


async def test_a_conversation_is_found_by_its_title_among_many_with_the_keyboard(
    start_server: StartServer, visit: OpenPage, tmp_path: Path
) -> None:
    async with open_database(tmp_path / "data0", DatabaseSettings()) as database:
        for number in range(30):
            title = "Mend the tide clock" if number == 0 else f"Task {number}"
            made = utc_now() + timedelta(minutes=number - 100)
            await database.conversations.create(ConversationRecord(id=f"c{number}", title=title, created_at=made))
    seen = await visit((await start_server()).url)
    items = seen.page.get_by_test_id("conversation-item")
    await expect(items).not_to_have_count(0)
    await seen.page.get_by_test_id("new-conversation").focus()
    await seen.page.keyboard.press("Tab")
    await seen.page.keyboard.type("TIDE")
    await expect(items).to_have_count(1)
    await expect(items).to_contain_text("Mend the tide clock")
    await seen.page.keyboard.press("Escape")
    await expect(items).not_to_have_count(1)
    await expect(seen.page.get_by_test_id("search-field")).to_be_focused()
    assert await overflow(seen.page) == 0
    assert seen.complaints == []


async def test_settings_are_kept_and_the_key_is_never_shown(start_server: StartServer, visit: OpenPage) -> None:
    server = await start_server()
    page = (await visit(server.url)).page
    await page.get_by_test_id("settings-link").first.click()
    await page.get_by_test_id("settings-model").fill("openai/my-model")
    await page.get_by_test_id("settings-base-url").fill("http://127.0.0.1:9/v1")
    await page.get_by_test_id("settings-api-key").fill("sk-my-secret-key")
    await page.get_by_test_id("settings-save").click()
    await expect(page.get_by_test_id("toast").first).to_be_visible()
    await page.reload()
    await expect(page.get_by_test_id("settings-model")).to_have_value("openai/my-model")
    await expect(page.get_by_test_id("settings-api-key")).to_have_attribute("data-set", "true")
    assert "sk-my-secret-key" not in await page.content()
    assert "sk-my-secret-key" not in (await settings_of(server)).text


async def test_secrets_are_added_listed_and_deleted_and_never_shown(start_server: StartServer, visit: OpenPage) -> None:
    server = await start_server()
    page = (await visit(f"{server.url}/settings")).page
    await page.get_by_test_id("secret-name").fill("SHOP_KEY")
    await page.get_by_test_id("secret-value").fill("a-very-secret-value")
    await page.get_by_test_id("secret-description").fill("For the shop")
    await page.get_by_test_id("secret-add").click()
    await expect(page.get_by_test_id("secret")).to_contain_text("For the shop")
    await page.reload()
    await expect(page.get_by_test_id("secret")).to_contain_text("SHOP_KEY")
    assert "a-very-secret-value" not in await page.content()
    await page.get_by_test_id("delete-secret").click()
    await page.get_by_test_id("confirm-ok").click()
    await expect(page.get_by_test_id("secret")).to_have_count(0)
    async with server.client() as client:
        assert (await client.get("/api/secrets")).json() == {"custom_secrets": []}


async def settings_of(server: ServerProcess) -> httpx.Response:
    async with server.client() as client:
        return await client.get("/api/settings")


async def test_a_wrong_key_is_told_with_what_to_do_and_the_conversation_can_go_on(play: Play, visit: OpenPage) -> None:
    broken = True
    server = play(lambda request: Turn(status=401, text="bad key") if broken else say("Better."))
    page = (await visit(server.url)).page
    await ask(page, "go")
    await until_phase(page, "error")
    card = page.get_by_test_id("error-card")
    await expect(card).to_contain_text("The model provider refused the API key")
    await expect(card).to_contain_text("bad key")
    await page.reload()
    await until_phase(page, "error")
    await expect(card).to_contain_text("bad key")
    await expect(page.get_by_test_id("notice")).to_have_count(0)
    broken = False
    await ask(page, "again")
    await until_phase(page, "ready")
    await expect(page.get_by_test_id("agent-message").last).to_contain_text("Better.")


async def test_a_token_is_asked_for_and_a_wrong_one_is_told(start_server: StartServer, visit: OpenPage) -> None:
    server = await start_server(DRYDOCK_TOKEN="open-sesame-42-and-some-more")
    page = (await visit(server.url)).page
    await page.get_by_test_id("login-token").fill("wrong-token")
    await page.get_by_test_id("login-submit").click()
    await expect(page.get_by_test_id("login-error")).to_be_visible()
    await page.get_by_test_id("login-token").fill("open-sesame-42-and-some-more")
    await page.get_by_test_id("login-submit").click()
    await expect(page.get_by_test_id("composer-input")).to_be_visible()
    linked = (await visit(f"{server.url}/#token=open-sesame-42-and-some-more")).page
    await expect(linked.get_by_test_id("composer-input")).to_be_visible()
    assert "open-sesame" not in linked.url


@pytest.mark.parametrize("dark", [False, True])
async def test_it_fits_a_phone_in_both_themes(play: Play, visit: OpenPage, dark: bool) -> None:
    long = "word " * 60 + "x" * 300
    server = play([run(f"echo {'y' * 400}"), say(f"# Title\n\n{long}\n\n```\n{'z' * 300}\n```")])
    page = (await visit(server.url, width=360, height=740, dark=dark)).page
    assert await overflow(page) == 0
    await ask(page, long)
    await until_phase(page, "ready")
    await expect(page.get_by_test_id("agent-message")).to_be_visible()
    assert await overflow(page) == 0
    await page.get_by_test_id("open-drawer").click()
    await expect(page.get_by_test_id("conversation-list")).to_be_visible()


async def test_a_command_is_refused_with_a_reason_the_next_one_approved_and_both_are_undone(
    start_server: StartServer, visit: OpenPage, scripted: MakeModel
) -> None:
    risky = Turn(calls=(Call("terminal", {"command": "echo launched", "security_risk": "HIGH"}),))
    model = await scripted([risky, risky, done()])
    server = await start_server(model=model)
    async with server.client() as client:
        assert (await client.post("/api/settings", json={"confirmation_mode": True})).status_code == 200
    page = (await visit(server.url)).page
    await ask(page, "go")
    await page.get_by_test_id("reject-reason").fill("Look out first")
    await page.get_by_test_id("reject-button").click()
    await expect(page.get_by_test_id("user-message").last).to_contain_text("Look out first")
    await page.get_by_test_id("approve-button").click()
    await until_phase(page, "finished")
    assert "Look out first" in str(model.last_request.messages)
    await expect(page.get_by_test_id("command-verdict")).to_have_text(["rejected", "exit 0"])

    await page.get_by_test_id("user-message").first.hover()
    await page.get_by_test_id("message-menu").first.click()
    await page.get_by_test_id("go-back").first.click()
    await page.get_by_test_id("confirm-ok").click()
    await expect(page.get_by_test_id("rewind-line")).to_contain_text("taken back")
    await expect(page.get_by_test_id("undone-line")).to_contain_text("undone")
    await expect(page.get_by_test_id("command-card")).to_have_count(0)
    await until_phase(page, "ready")


async def test_two_pages_show_the_same_conversation(play: Play, visit: OpenPage) -> None:
    server = play(lambda request: say("Hello to you both."))
    one = (await visit(server.url)).page
    await ask(one, "hello")
    await until_phase(one, "ready")
    two = (await visit(one.url)).page
    await until_phase(two, "ready")
    await ask(two, "from the second page")
    await expect(one.get_by_test_id("user-message")).to_have_count(2)
    await expect(one.get_by_test_id("agent-message")).to_have_count(2)
    await asyncio.gather(until_phase(one, "ready"), until_phase(two, "ready"))


async def test_a_limit_is_told_in_one_place_and_resuming_goes_on(
    start_server: StartServer, visit: OpenPage, scripted: MakeModel
) -> None:
    model = await scripted([run("echo one"), run("echo two"), done()])
    server = await start_server(model=model, DRYDOCK_MAX_ITERATIONS="2")
    page = (await visit(server.url)).page
    await ask(page, "go")
    await until_phase(page, "error")
    await expect(page.get_by_test_id("error-card")).to_contain_text("The limit of steps is reached")
    await expect(page.get_by_test_id("error-card")).to_have_count(1)
    await expect(page.get_by_test_id("notice")).to_have_count(0)
    await expect(page.get_by_test_id("resume-button")).to_contain_text("Resume")
    await page.get_by_test_id("resume-button").click()
    await until_phase(page, "finished")


async def test_a_message_may_be_written_while_the_sandbox_starts(
    start_server: StartServer, visit: OpenPage, scripted: MakeModel
) -> None:
    model = await scripted(lambda request: say(f"You said {len(request.messages)} things."))
    server = await start_server(model=model)
    page = (await visit(server.url)).page
    await ask(page, "the first")
    await until_phase(page, "starting")
    await ask(page, "the second")
    await expect(page.get_by_test_id("pending-message").last).to_contain_text("the second")
    await expect(page.get_by_test_id("user-message")).to_have_count(2)
    await expect(page.get_by_test_id("pending-message")).to_have_count(0)
    await until_phase(page, "ready")


async def test_the_view_stays_where_one_reads_and_each_conversation_keeps_its_draft(
    play: Play, visit: OpenPage
) -> None:
    text = "\n\n".join(f"Paragraph {number} of a long answer." for number in range(80))
    server = play(lambda request: say(text, token_delay=0.005))
    page = (await visit(server.url)).page
    await ask(page, "tell me a lot")
    timeline = page.get_by_test_id("timeline")
    await expect(page.get_by_test_id("streaming-message")).to_contain_text("Paragraph 30")
    await expect(page.get_by_test_id("jump-to-latest")).to_have_count(0)
    await timeline.hover()
    await page.mouse.wheel(0, -400)
    await expect(page.get_by_test_id("jump-to-latest")).to_be_visible()
    place = await timeline.evaluate("e => e.scrollTop")
    await until_phase(page, "ready")
    assert abs(await timeline.evaluate("e => e.scrollTop") - place) < 60
    await page.get_by_test_id("jump-to-latest").click()
    await expect(page.get_by_text("Paragraph 79 of")).to_be_in_viewport()
    await page.get_by_test_id("composer-input").fill("half a thought")
    await page.get_by_test_id("new-conversation").click()
    await expect(page.get_by_test_id("composer-input")).to_have_value("")
    await page.go_back()
    await expect(page.get_by_test_id("composer-input")).to_have_value("half a thought")
    await page.go_forward()
    await expect(page.get_by_test_id("example-prompt").first).to_be_visible()
