"""A client of the first generation, served by ``--page``: it boots, and does all that such a client's user can.

The client in `first_generation` asks, sends and draws what the protocol says that the original does, with the library
that the original has for its socket, and notes what would have broken that one.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Error, Page, expect

from agent_core.testing.model_server import ModelRequest
from agent_core.testing.model_turns import Call, Turn, call, calls, finish, say
from tests.e2e.conftest import ROOT, MakeModel, OpenPage, StartServer, Visit

pytestmark = [
    pytest.mark.browser,
    pytest.mark.bubblewrap,
    pytest.mark.asyncio(loop_scope="module"),
]


CLIENT = Path(__file__).parent / "first_generation"
SOCKETS = ROOT / "frontend_stub" / "node_modules" / "socket.io-client" / "dist" / "socket.io.esm.min.js"
SITE = "localhost:8124"
SERVE = (
    "mkdir -p site && echo '<title>Quay</title><h1>Quay</h1>' > site/index.html && cd site &&"
    " for port in 8124 $APP_PORT_2; do (python3 -m http.server $port >/dev/null 2>&1 &) ; done ;"
    f" until curl -s {SITE} >/dev/null; do :; done; cd .."
)
SAFE = {"security_risk": "LOW"}
FILE = {"path": "/workspace/a.txt", **SAFE}
WORK: list[Turn] = [
    call("terminal", {"command": f"git init -q . ; {SERVE}; echo made; ls -A", **SAFE}, text="I look around."),
    call("file_editor", {"command": "create", **FILE, "file_text": "one\n"}),
    call(
        "file_editor",
        {"command": "str_replace", "path": "/workspace/a.txt", "old_str": "one", "new_str": "two", **SAFE},
    ),
    call("execute_ipython_cell", {"code": "6 * 7", **SAFE}),
    call("browser", {"code": f"goto('http://{SITE}')", **SAFE}),
    call("terminal", {"comand": "ls"}, text="I mistype."),
    call("think", {"thought": "All went well."}),
    call("task_tracker", {"command": "plan", "task_list": [{"title": "Look around", "status": "done", "notes": ""}]}),
    finish("That is all there is."),
]


def answer(request: ModelRequest) -> Turn:
    """By what the user said last: all kinds of work, something long, or something that needs approval."""
    messages = request.messages
    said = max(
        place for place, one in enumerate(messages) if one["role"] == "user" and "[" not in str(one["content"])[:1]
    )
    wish = str(messages[said]["content"])
    done: int = sum(one["role"] == "assistant" for one in messages[said:])
    if "everything" in wish:
        return WORK[min(done, len(WORK) - 1)]
    if "long" in wish:
        return call("terminal", {"command": "echo begun; sleep 600", **SAFE}) if done == 0 else finish("Stopped early.")
    if "dangerous" in wish:
        return (
            calls(
                Call("terminal", {"command": "rm -rf ./nothing", "security_risk": "HIGH"}),
                Call("terminal", {"comand": ""}),
            )
            if done == 0
            else finish("Asked.")
        )
    return say(f"You said: {wish[-60:]}")


def build(folder: Path) -> Path:
    """The client as its build lays it out."""
    for name, place in {
        "index.html": "index.html",
        "translation.json": "locales/en/translation.json",
        "style-1.css": "assets/style-1.css",
        "client.js": "assets/client-1.js",
        "expectations.js": "assets/expectations-1.js",
        "screens.js": "assets/screens-1.js",
    }.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CLIENT / name, folder / place)
    shutil.copy(SOCKETS, folder / "assets" / "socket.io-4.8.js")
    return folder


async def walked(page: Page, what: str) -> Any:
    return await page.evaluate(f"walk.{what}")


async def until_state(page: Page, *states: str) -> None:
    try:
        await page.wait_for_function("states => states.includes(walk.state())", arg=list(states))
    except Error as error:
        for what in ("state()", "problems", "calls.slice(-12)", "frames.slice(-6)"):
            error.add_note(f"{what}: {await walked(page, what)}")
        raise


async def send(page: Page, text: str) -> None:
    await expect(page.locator("#input")).to_be_enabled()
    await page.locator("#input").fill(text)
    await page.locator("#send").click()


def line(page: Page, kind: str, name: str) -> Any:
    return page.locator(f'#chat li[data-kind="{kind}"][data-type="{name}"]')


async def check(seen: Visit, *known: str) -> None:
    """Nothing that would have broken the original, no error in the console, nothing from elsewhere."""
    await seen.page.wait_for_function("walk.isQuiet()")
    assert await walked(seen.page, "problems") == list(known)
    assert seen.problems == []
    # A browser complains of each answer that is an error; of these the client knows two: settings of a new user, and
    # hosts at which nothing listens yet.
    assert [one for one in seen.complaints if "404" not in one and "502" not in one] == []
    assert [one for one in seen.foreign if re.match(r"http://2[0-9]{4}-", one) is None] == []  # previews


async def test_an_unmodified_client_of_the_first_generation_does_all_that_it_can(
    start_server: StartServer, scripted: MakeModel, visit: OpenPage, tmp_path: Path
) -> None:
    page_folder = build(tmp_path / "client")
    server = await start_server("--sandbox", "local", "--page", str(page_folder), model=await scripted(answer))

    # A, B: the first page of a new user, whose settings are stored then.
    seen = await visit(server.url)
    page = seen.page
    await page.wait_for_function("walk.isUp")
    calls = await walked(page, "calls")
    assert calls[:3] == [
        "GET /locales/en/translation.json 200",
        "GET /api/options/config 200",
        "GET /api/options/config 200",
    ]
    assert "GET /api/settings 404" in calls
    assert "POST /api/settings 200" in calls
    assert "GET /api/conversations?limit=10 200" in calls

    # C: a conversation, and what is asked for when its agent is there.
    await page.locator("#new").click()
    await until_state(page, "awaiting_user_input")
    await page.wait_for_function(
        "walk.calls.filter(one => /config 200|web-hosts 200|vscode-url 200/.test(one)).length >= 5"
    )
    await expect(page.locator("#line")).to_have_text("CONNECTED")
    await expect(page.locator("#chat li")).to_have_count(0)

    # D: all kinds of work.
    await send(page, "Do everything")
    await until_state(page, "finished")
    await expect(line(page, "action", "message").first).to_have_text("Do everything")
    await expect(line(page, "observation", "run").first).to_contain_text("ok: made")
    await expect(line(page, "observation", "edit").last).to_contain_text("+two")
    await expect(line(page, "thought", "thought")).to_have_text(["I look around.", "I mistype."])
    await expect(line(page, "observation", "error")).to_contain_text(["comand"])
    await expect(line(page, "observation", "run_ipython")).to_contain_text("42")
    await expect(line(page, "observation", "browse")).to_contain_text("Quay")
    await expect(line(page, "action", "finish")).to_have_text("That is all there is.")
    await page.wait_for_function("document.getElementById('screenshot').naturalWidth > 300")
    assert SITE in await page.locator("#address").inner_text()
    await expect(page.locator('#tasks li[data-status="done"]')).to_have_text("Look around")
    await expect(page.locator("#terminal")).to_contain_text("made")
    await expect(page.locator("#usage")).to_contain_text("tokens")
    await expect(page.locator("#title")).to_have_text("A title")
    await expect(page.locator("#changes")).to_contain_text("A a.txt")
    assert await walked(page, "diff('a.txt')") == {"modified": "two\n", "original": ""}
    hosts, number = await walked(page, "served()")
    assert (len(hosts), number) == (2, 1), "it asked when nothing listened yet, and polls what it was told then"
    await expect(page.frame_locator("#served").locator("h1")).to_have_text("Quay")
    await check(seen)

    # Files: one up with a message, the workspace down, the trajectory.
    await page.locator("#file").set_input_files({"name": "n.txt", "mimeType": "text/plain", "buffer": b"notes"})
    await send(page, "Here are notes")
    await until_state(page, "awaiting_user_input")
    await expect(line(page, "action", "message").last).to_contain_text("You said:")
    assert {"a.txt", "n.txt", "site/"} <= set(await walked(page, "files()"))
    assert await walked(page, "workspace()") == "80,75"
    await walked(page, "editor()")
    async with page.expect_download() as downloading:
        await page.frame_locator("#editor").get_by_text("Download as a ZIP file").click()
    with zipfile.ZipFile(await (await downloading.value).path()) as archive:
        assert {"a.txt", "n.txt", "site/index.html"} <= set(archive.namelist())
    trajectory = (await walked(page, "trajectory()"))["trajectory"]
    assert {"run", "edit", "run_ipython", "task_tracking", "finish"} <= {one.get("action") for one in trajectory}
    await walked(page, "microagents()")
    assert await walked(page, "ownMicroagents()") == []
    await walked(page, "otherScreens()")

    # The panel, and the pages of the settings: each stores all that it has read, and loses nothing by it.
    assert await walked(page, "panel()") == 1
    assert await walked(page, "settingsPages()") == [
        [],
        ["enable_sound_notifications", "max_budget_per_task"],
        ["enable_sound_notifications", "max_budget_per_task"],
        ["https://tools.example.com/mcp 60"],
        ["QUAY_KEY"],
    ]

    # Stop, and go on.
    await send(page, "Something long")
    await until_state(page, "running")
    await page.wait_for_function("walk.frames.some(one => one.args?.command?.includes('sleep 600'))")
    await page.locator("#stop").click()
    await until_state(page, "stopped")
    await send(page, "continue")
    await until_state(page, "awaiting_user_input", "finished")
    await check(seen)
    assert await walked(page, "sockets") == 1

    # E: a hard load shows the same again.
    before = await page.locator("#chat li").all_inner_texts()
    await page.reload()
    await until_state(page, "awaiting_user_input", "finished")
    await expect(page.locator("#chat li")).to_have_count(len(before))
    assert await page.locator("#chat li").all_inner_texts() == before
    await expect(page.locator('#tasks li[data-status="done"]')).to_have_count(1)
    await check(seen)

    # Confirmations: one refused, one approved.
    await walked(page, "saveSettings({confirmation_mode: true})")
    await page.locator("#home").click()
    await page.locator("#new").click()
    for button, expected in (("#reject", "user_rejected"), ("#confirm", "run")):
        await until_state(page, "awaiting_user_input", "finished")
        await send(page, "Do something dangerous")
        await expect(page.locator("#question")).to_be_visible()
        await expect(page.locator("#danger")).to_be_visible()
        await expect(page.locator("#input")).to_be_disabled()
        await page.locator(button).click()
        await expect(line(page, "observation", expected)).to_have_count(1)
        await expect(page.locator("#question")).to_be_hidden()
    await until_state(page, "finished")
    await check(seen)

    # F: rename, stop the runtime, come back, delete.
    assert await walked(page, "rename('Another name')") is True
    await expect(page.locator("#title")).to_have_text("Another name")
    assert (await walked(page, "stopRuntime()"))["conversation_status"] == "RUNNING"
    await page.locator("#home").click()
    item = page.locator("#list li", has_text="Another name")
    await expect(item).to_have_attribute("data-status", "STOPPED")
    await item.click()
    await until_state(page, "awaiting_user_input", "finished")
    await expect(line(page, "observation", "run")).to_have_count(1)
    await check(seen)
    assert await walked(page, "remove()") is True
    await page.locator("#home").click()
    await expect(page.locator("#list li")).to_have_count(1)
    await page.goto(f"{server.url}/conversations/{'0' * 32}")
    await expect(page.locator("#banner")).to_have_text("This conversation does not exist")
    await check(seen)

    # An old recording, imported and opened.
    async with server.client() as client:
        recording = json.loads((ROOT / "tests/contract/rest/first_generation.json").read_text("utf-8"))
        made = await client.post("/api/conversations/import", json=recording)
    await page.goto(f"{server.url}/conversations/{made.json()['conversation_id']}")
    await until_state(page, "awaiting_user_input")
    await expect(line(page, "action", "finish")).to_have_text("It has 3 lines.")
    await expect(line(page, "observation", "run")).to_contain_text("3 notes.txt")
    await expect(page.locator("#usage")).to_contain_text("$0.0300 15 tokens")
    await check(seen, "edit 11 is drawn as null")  # as the original has recorded it, and drawn it


async def test_on_a_server_with_a_token_its_user_signs_in_once(
    start_server: StartServer, scripted: MakeModel, visit: OpenPage, tmp_path: Path
) -> None:
    page_folder = build(tmp_path / "client")
    options = ("--sandbox", "local", "--page", str(page_folder))
    server = await start_server(*options, model=await scripted(answer), DRYDOCK_TOKEN="a-token-of-ours-0123456789")
    page = (await visit(f"{server.url}/conversations/x")).page
    await page.get_by_label("Access token").fill("no-token-of-ours")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_have_text("That is not this server's access token.")
    await page.get_by_label("Access token").fill("a-token-of-ours-0123456789")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(f"{server.url}/conversations/x")
    await page.wait_for_function("typeof walk === 'object' && walk.isUp")

    # The address that the server prints signs in by itself.
    seen = await visit(f"{server.url}/#token=a-token-of-ours-0123456789")
    page = seen.page
    await page.wait_for_function("typeof walk === 'object' && walk.isUp")
    await expect(page).to_have_url(f"{server.url}/")
    await page.locator("#new").click()
    await until_state(page, "awaiting_user_input")
    await send(page, "Do everything")
    await until_state(page, "finished")
    await expect(line(page, "observation", "run").first).to_contain_text("ok: made")
    await walked(page, "editor()")
    async with page.expect_download() as downloading:
        await page.frame_locator("#editor").get_by_text("Download as a ZIP file").click()
    with zipfile.ZipFile(await (await downloading.value).path()) as archive:
        assert "a.txt" in archive.namelist()
    await page.reload()
    await until_state(page, "awaiting_user_input", "finished")
    assert seen.foreign == []
    await page.goto(f"{server.url}/sign-out")
    await page.goto(server.url)
    await expect(page.get_by_label("Access token")).to_be_focused()


def counting(request: ModelRequest) -> Turn:
    return say(f"Answer {sum(one['role'] == 'assistant' for one in request.messages) + 1}")


async def test_it_goes_on_by_itself_when_its_server_was_killed_and_is_back(
    start_server: StartServer, scripted: MakeModel, visit: OpenPage, tmp_path: Path
) -> None:
    page_folder = build(tmp_path / "client")
    server = await start_server("--sandbox", "local", "--page", str(page_folder), model=await scripted(counting))
    page = (await visit(server.url)).page
    await page.wait_for_function("walk.isUp")
    await page.locator("#new").click()
    await until_state(page, "awaiting_user_input")
    await send(page, "First")
    await expect(line(page, "action", "message")).to_have_text(["First", "Answer 1"])
    await until_state(page, "awaiting_user_input")

    await server.kill()
    await page.wait_for_function("document.getElementById('line').dataset.line === 'DISCONNECTED'")
    await page.locator("#input").fill("Second")
    await page.locator("#send").click()  # its library sends it as soon as it can
    await server.start()
    await expect(line(page, "action", "message")).to_have_text(["First", "Answer 1", "Second", "Answer 2"])
    await until_state(page, "awaiting_user_input")
    assert [one for one in await walked(page, "problems") if one != "connect_error websocket error"] == []
