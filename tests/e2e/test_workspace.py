"""The workspace beside a conversation that began with a repository, as a person uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.contract.workspace.git_server import GitServer
from tests.e2e.conftest import MakeModel, OpenPage, StartServer, ask, done, overflow, run, until_phase
from tests.integration.server.conftest import create, following
from tests.unit.runner.test_pictures import png

pytestmark = [
    pytest.mark.browser,
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="module"),
]


HTML = {"content-type": "text/html"}
EVERY_BYTE = bytes(range(256)) * 5_000


@pytest.fixture
def git_server(tmp_path: Path) -> Iterator[GitServer]:
    server = GitServer(tmp_path / "repositories")
    server.make("ann/open")
    yield server
    server.close()


async def test_a_repository_is_chosen_and_its_files_changes_and_history_are_beside_the_conversation(
    start_server: StartServer, visit: OpenPage, scripted: MakeModel, git_server: GitServer, tmp_path: Path
) -> None:
    commit = "git -c user.name=Ann -c user.email=ann@example.com commit -qam 'Work of the agent'"
    model = await scripted([run(f"cd open && echo more >> file && {commit} && echo loose > loose"), done()])
    server = await start_server(model=model, DRYDOCK_SANDBOX_NETWORK="host-access")  # where the repository's server is
    seen = await visit(server.url)
    page = seen.page
    await page.get_by_test_id("add-repository").click()
    await page.get_by_test_id("repository-name").fill(f"{git_server.url}/ann/open.git")
    await page.get_by_test_id("repository-branch").fill("other")
    await ask(page, "go")
    await until_phase(page, "finished", patience=90)

    await page.get_by_role("button", name="Workspace", exact=True).click()
    panel = page.get_by_test_id("workspace-panel")
    await panel.get_by_text("open", exact=True).click()
    await panel.get_by_text("file", exact=True).click()
    await expect(panel.get_by_test_id("file-view")).to_contain_text("more")
    await panel.get_by_label("Back to the list").click()

    (tmp_path / "every byte.bin").write_bytes(EVERY_BYTE)
    (tmp_path / "boat.png").write_bytes(png())
    await panel.get_by_test_id("upload-input").set_input_files([tmp_path / "every byte.bin", tmp_path / "boat.png"])
    async with page.expect_download() as downloading:
        await panel.get_by_label("Download every byte.bin").click()
    saved = await downloading.value
    assert saved.suggested_filename == "every byte.bin"
    assert (await saved.path()).read_bytes() == EVERY_BYTE
    await panel.get_by_text("boat.png").click()
    picture = panel.get_by_alt_text("boat.png")
    await expect(picture).to_be_visible()
    assert await picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0

    await panel.get_by_test_id("workspace-tab-changes").click()
    await expect(panel.get_by_test_id("change")).to_have_count(1)
    await expect(panel.get_by_test_id("change")).to_contain_text("loose")
    await panel.get_by_test_id("since").select_option("base")
    await expect(panel.get_by_test_id("change")).to_have_count(2)
    await panel.get_by_test_id("change").first.click()
    await expect(panel.get_by_test_id("diff")).to_contain_text("more")
    await panel.get_by_test_id("workspace-tab-history").click()
    await expect(panel.get_by_test_id("commits").get_by_role("listitem")).to_contain_text(
        ["Work of the agent", "second", "first"]
    )
    await page.set_viewport_size({"width": 390, "height": 800})
    await expect(panel).to_be_visible()
    assert await overflow(page) <= 0
    await panel.get_by_label("Close the workspace").click()
    await expect(panel).to_be_hidden()
    assert seen.problems == []
    assert seen.complaints == []
    assert seen.foreign == []


async def test_the_page_of_files_follows_the_workspace_while_it_is_seen(
    start_server: StartServer, visit: OpenPage
) -> None:
    server = await start_server(DRYDOCK_SANDBOX="local")
    conversation_id = await create(server)
    address = f"{server.url}/api/conversations/{conversation_id}/workspace"
    async with following(server, conversation_id) as follower:
        await follower.run("touch 'one <b>.txt'")
        await follower.until(lambda: follower.count(observation="run") == 1)
        seen = await visit(address)
        await expect(seen.page.get_by_role("link", name="one <b>.txt")).to_be_visible()
        await follower.run("rm one*; mkdir two")
        await expect(seen.page.get_by_role("link", name="two/")).to_be_visible()
        await expect(seen.page.get_by_role("link", name="one <b>.txt")).to_have_count(0)
        around = f"<!doctype html><iframe style='display:none' src='{address}'></iframe>"
        await seen.page.route(f"{server.url}/around", lambda route: route.fulfill(body=around, headers=HTML))
        await seen.page.clock.install()
        asked: list[str] = []
        seen.page.on("request", lambda request: asked.append(request.url))
        await seen.page.goto(f"{server.url}/around")
        await seen.page.frame_locator("iframe").get_by_text("two/").wait_for(state="attached")
        await seen.page.clock.fast_forward(60_000)
        await follower.run("mkdir three")
        await follower.until(lambda: follower.count(observation="run") == 3)
        await seen.page.clock.fast_forward(60_000)
        assert asked.count(address) == 1, "a frame that nobody sees asks for nothing"
        await seen.page.evaluate("document.querySelector('iframe').style.display = 'block'")
        await expect(seen.page.frame_locator("iframe").get_by_role("link", name="three/")).to_be_visible()
    assert seen.problems == []
