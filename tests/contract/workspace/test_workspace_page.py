"""The page of a workspace, which clients open where they expect an editor, in real sandboxes."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from html import escape, unescape
from urllib.parse import urljoin

import pytest

from tests.contract.workspace.conftest import Workspace

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_page_leads_to_every_file_and_to_the_whole(workspace: Workspace) -> None:
    await workspace.run(
        "mkdir -p 'src/<b>&' && echo one > 'src/<b>&/a \"quoted\" ü.txt' && echo two > z.txt && mkfifo f"
    )
    address = (await workspace.get("vscode-url")).json()["vscode_url"]
    assert address.endswith(f"/api/conversations/{workspace.id}/workspace")

    async def links(page: str) -> dict[str, str]:
        response = await workspace.client.get(page)
        assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert policy.endswith("frame-ancestors 'self'")
        assert "<b>" not in response.text
        found = re.findall(r'<a href="([^"]*)">([^<]*)</a>', response.text)
        return {unescape(text): urljoin(page, unescape(target)) for target, text in found}

    top = await links(address)
    assert list(top) == ["Workspace", "Download as a ZIP file", "Refresh", "src/", "z.txt"], "nothing leads to a FIFO"
    assert (await workspace.client.get(top["z.txt"])).text == "two\n"
    below = await links((await links(top["src/"]))["<b>&/"])
    assert list(below)[:3] == ["Workspace", "src", "<b>&"]
    saved = await workspace.client.get(below['a "quoted" ü.txt'])
    assert (saved.text, saved.headers["content-disposition"].startswith("attachment")) == ("one\n", True)
    for page, names in ((top, {"z.txt", "src/<b>&/"}), (below, {'a "quoted" ü.txt'})):
        archive = zipfile.ZipFile(io.BytesIO((await workspace.client.get(page["Download as a ZIP file"])).content))
        assert names <= set(archive.namelist()), archive.namelist()


async def test_what_cannot_be_shown_is_refused_as_elsewhere(workspace: Workspace) -> None:
    await workspace.run("touch file")
    for path, status in {"gone": 404, "../..": 403, "file": 400}.items():
        response = await workspace.get("workspace", path=path)
        assert (response.status_code, next(iter(response.json()))) == (status, "error"), path
    assert "Nothing is here yet" not in (await workspace.get("workspace")).text
    await workspace.clean()
    assert "Nothing is here yet" in (await workspace.get("workspace")).text


async def test_who_asks_again_is_answered_only_when_something_has_changed_and_does_not_keep_it_in_use(
    workspace: Workspace,
) -> None:
    await workspace.run("touch one")
    first = await workspace.get("workspace")
    assert f'data-tag="{escape(first.headers["etag"])}"' in first.text
    known = {"if-none-match": first.headers["etag"]}
    used = workspace.app.services.manager.idle_seconds()
    again = await workspace.get("workspace", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert workspace.app.services.manager.idle_seconds() >= used
    await workspace.run("touch two")
    changed = await workspace.get("workspace", headers=known)
    assert changed.status_code == 200
    assert ">two</a>" in changed.text
    script = re.search(r"<script>(.*?)</script>", changed.text, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in changed.headers["content-security-policy"]
    await workspace.clean()
