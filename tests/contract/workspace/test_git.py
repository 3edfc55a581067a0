"""Changes, differences and history of the workspace's repositories over the public routes, in real sandboxes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.workspace.conftest import WAIT_SECONDS, Workspace

pytestmark = pytest.mark.asyncio(loop_scope="module")

_ANN = " ".join(f"GIT_{who}_NAME=Ann GIT_{who}_EMAIL=ann@example.com" for who in ("AUTHOR", "COMMITTER"))
MAKE = f"export {_ANN}"
"""Before commits."""


async def changes(workspace: Workspace) -> dict[str, str]:
    response = await workspace.get("git/changes")
    assert response.status_code == 200, response.text
    found = response.json()
    assert all(set(one) == {"status", "path"} for one in found)
    return {one["path"]: one["status"] for one in found}


async def diff(workspace: Workspace, path: str) -> tuple[str, str]:
    response = await workspace.get("git/diff", path=path)
    assert response.status_code == 200, response.text
    assert set(response.json()) == {"original", "modified"}
    return response.json()["original"], response.json()["modified"]


async def test_without_a_repository_there_is_nothing_to_tell(workspace: Workspace) -> None:
    for what in ("changes", "status", "log"):
        response = await workspace.get(f"git/{what}")
        assert (response.status_code, response.json()) == (404, {"error": "Not a git repository"})
    assert (await workspace.get("git/diff", path="x")).status_code == 404


async def test_a_repository_that_is_only_being_made_is_none_yet(workspace: Workspace) -> None:
    await workspace.run("mkdir -p .git/objects")  # what there is when `git init` has just begun
    for what in ("changes", "status"):
        response = await workspace.get(f"git/{what}")
        assert (response.status_code, response.json()) == (404, {"error": "Not a git repository"})
    await workspace.run("git init -q -b main && printf n > new")
    assert await changes(workspace) == {"new": "A"}


async def test_each_kind_of_change_is_listed_and_shown(workspace: Workspace) -> None:
    await workspace.run(
        f"{MAKE}; git init -q -b main && printf 'one\\n' > m && printf d > d && printf r > r && printf s > s && "
        "ln -s m l && printf k > 'kö pt\t\"x\"' && printf 'gone/\\n' > .gitignore && git add . && "
        "git commit -qm first && printf 'two\\n' > m && rm d && git mv r renamed && printf n > new && "
        "git add new && mkdir -p u/deep gone && printf u > u/deep/f && printf i > gone/i && "
        "git rm -q --cached s && ln -sf d l && printf K > 'kö pt\t\"x\"'"
    )
    assert await changes(workspace) == {
        **{"m": "M", "d": "D", "r": "D", "renamed": "A", "new": "A", "u/deep/f": "A", "s": "M", "l": "M"},
        'kö pt\t"x"': "M",
    }
    assert await diff(workspace, "m") == ("one\n", "two\n")
    assert await diff(workspace, f"{workspace.root}/m") == ("one\n", "two\n")
    assert await diff(workspace, "d") == ("d", "")
    assert await diff(workspace, "u/deep/f") == ("", "u")
    assert await diff(workspace, "l") == ("m", "d")
    assert await diff(workspace, 'kö pt\t"x"') == ("k", "K")
    status = (await workspace.get("git/status")).json()
    (repository,) = status["repositories"]
    assert (status["folder"], repository["branch"], repository["upstream"], len(repository["head"])) == (
        "",
        "main",
        None,
        40,
    )


async def test_names_that_are_no_text_are_shown_under_the_names_that_stand_for_them(workspace: Workspace) -> None:
    await workspace.run(
        f"{MAKE}; git init -q -b main && for name in kept gone; do printf old > $name$'\\xff'; done && git add . && "
        "git commit -qm first && printf new > $'kept\\xff' && rm $'gone\\xff' && printf fresh > $'made\\xff'"
    )
    assert await changes(workspace) == {"kept\ufffd": "M", "gone\ufffd": "D", "made\ufffd": "A"}
    assert await diff(workspace, "kept\ufffd") == ("old", "new")
    assert await diff(workspace, "gone\ufffd") == ("old", "")
    assert await diff(workspace, "made\ufffd") == ("", "fresh")
    assert (await workspace.get("git/diff", path="none\ufffd")).status_code == 404


async def test_a_conflict_a_detached_head_and_no_commit_at_all(workspace: Workspace) -> None:
    await workspace.run("git init -q -b trunk && printf x > x")
    assert await changes(workspace) == {"x": "A"}
    assert await diff(workspace, "x") == ("", "x")
    (repository,) = (await workspace.get("git/status")).json()["repositories"]
    assert (repository["branch"], repository["head"]) == ("trunk", None)
    assert (await workspace.get("git/log")).json() == {"commits": [], "has_more": False, "next_page_id": None}
    await workspace.run(
        f"{MAKE}; git add . && git commit -qm a && git checkout -qb b && echo b > x && git commit -qam b && "
        "git checkout -q trunk && echo c > x && git commit -qam c && git checkout -q --detach && ! git merge -q b"
    )
    assert await changes(workspace) == {"x": "U"}
    (repository,) = (await workspace.get("git/status")).json()["repositories"]
    assert (repository["branch"], len(repository["head"])) == (None, 40)


async def test_all_repositories_of_a_workspace_are_looked_at(workspace: Workspace) -> None:
    make = f"{MAKE}; git init -q && echo 1 > f && git add f && git commit -qm 1"
    await workspace.run(
        f"mkdir -p one group/two && (cd one; {make}; echo 2 > f) && "
        f"(cd group/two; {make}; echo 2 > g; git init -q nested)"
    )
    assert await changes(workspace) == {"one/f": "M", "group/two/g": "A"}
    assert await diff(workspace, "one/f") == ("1\n", "2\n")
    assert (await workspace.get("git/diff", path="f")).status_code == 404
    log = (await workspace.get("git/log", repository="group/two")).json()
    assert [commit["subject"] for commit in log["commits"]] == ["1"]
    await workspace.run(f"{MAKE}; git init -q && git add one/f 2>/dev/null; echo o > own && mkdir d && echo o > d/own")
    assert await changes(workspace) == {"one/f": "M", "group/two/g": "A", "own": "A", "d/own": "A"}
    await workspace.run("echo broken > one/.git/HEAD")
    assert await changes(workspace) == {"group/two/g": "A", "own": "A", "d/own": "A"}
    assert "one: " in (await workspace.get("git/status")).json()["errors"][0]


async def test_submodules_are_shown_as_what_they_are(workspace: Workspace) -> None:
    await workspace.run(
        f"{MAKE}; git init -q lib && git -C lib commit -q --allow-empty -m lib && git init -q app && cd app && "
        "git -c protocol.file.allow=always submodule --quiet add ../lib sub && git commit -qm app && "
        "git -C sub commit -q --allow-empty -m more && echo x > sub/x"
    )
    assert await changes(workspace) == {"app/sub": "M", "app/sub/x": "A"}
    original, modified = await diff(workspace, "app/sub")
    assert original.startswith("Subproject commit ")
    assert modified.startswith("Subproject commit ")
    assert original != modified


async def test_line_ends_that_git_gives_a_file_are_no_change_of_it(workspace: Workspace) -> None:
    await workspace.run(
        f"{MAKE}; git init -q && git config --global filter.bad.smudge 'touch /tmp/ran; cat' && "
        "printf '*.txt eol=crlf filter=bad\n' > .gitattributes && "
        "for f in a.txt b.txt raw; do printf 'one\r\ntwo\r\n' > $f; done && git add . && git commit -qm 1 && "
        "printf 'one\r\n2\r\n' | tee a.txt > raw && printf 'one\n2\n' > b.txt && printf 'one\ntwo\n' > unix && "
        "git add unix && git commit -qm 2 unix && printf 'one\r\ntwo\r\n' > unix; rm -f /tmp/ran"
    )
    try:
        assert await diff(workspace, "a.txt") == ("one\r\ntwo\r\n", "one\r\n2\r\n")
        assert await diff(workspace, "b.txt") == ("one\ntwo\n", "one\n2\n")
        assert await diff(workspace, "raw") == ("one\r\ntwo\r\n", "one\r\n2\r\n")
        assert await diff(workspace, "unix") == ("one\ntwo\n", "one\r\ntwo\r\n"), "there they are a change"
        assert await workspace.run("ls /tmp | grep -c '^ran$' || true") == "0"
    finally:
        await workspace.run("git config --global --remove-section filter.bad")


@pytest.mark.parametrize(
    "broken",
    [
        "echo '[core' >> .git/config",
        "git config core.repositoryformatversion 99",
        "git config core.repositoryformatversion 1 && git config extensions.unknown 1",
    ],
)
async def test_a_repository_that_git_cannot_use_is_not_shown_as_one_without_commits(
    workspace: Workspace, broken: str
) -> None:
    await workspace.run(f"{MAKE}; git init -q && echo 1 > f && git add . && git commit -qm 1; {broken}")
    for what, query in (("changes", {}), ("log", {}), ("diff", {"path": "f"})):
        response = await workspace.get(f"git/{what}", **query)
        assert response.status_code == 500, response.text
        assert " failed: " in response.json()["error"]


async def test_what_cannot_be_shown_is_said(workspace: Workspace) -> None:
    await workspace.run(
        f"{MAKE}; git init -q && printf 'a\\0b' > bin && head -c 2000000 /dev/zero | tr '\\0' x > big && mkdir dir && "
        "git add . && git commit -qm 1 && printf 'a\\0c' > bin && printf s > big && ln -s /etc out && echo x > dir/x"
    )
    wrong = {
        "bin": 415,
        "big": 413,
        "dir": 400,
        "out/passwd": 403,
        "../x": 403,
        "/etc/passwd": 403,
        "gone": 404,
    }
    for path, status in wrong.items():
        response = await workspace.get("git/diff", path=path)
        assert (response.status_code, list(response.json())) == (status, ["error"]), path
    assert (await workspace.get("git/diff")).status_code == 422
    for path in ("../x", "/etc", "a/../../x"):
        assert (await workspace.get("git/log", path=path)).status_code == 403, path
    assert len((await workspace.get("git/log", path=f"{workspace.root}/bin")).json()["commits"]) == 1
    history = await workspace.get("git/log", repository="big")
    assert (history.status_code, history.json()) == (404, {"error": f"{workspace.root}/big is no folder"})


async def test_what_a_branch_changed_can_be_seen_when_it_is_committed_too(workspace: Workspace) -> None:
    await workspace.run(
        f"{MAKE}; git init -q -b main && for f in same m d dm; do echo 1 > $f; done && git add . && git commit -qm 1; "
        "git checkout -qb work && echo 2 > m && git rm -q d && git rm -q --cached dm && echo n > new && git add m new; "
        "git commit -qm 2 && echo 3 > m && echo u > untracked && touch same"
    )
    assert await changes(workspace) == {"m": "M", "dm": "A", "untracked": "A"}
    since_base = (await workspace.get("git/changes", since="base")).json()
    expected = {"m": "M", "d": "D", "dm": "M", "new": "A", "untracked": "A"}
    assert {one["path"]: one["status"] for one in since_base} == expected
    assert await diff(workspace, "m") == ("2\n", "3\n")
    assert (await workspace.get("git/diff", path="m", since="base")).json() == {"original": "1\n", "modified": "3\n"}
    assert (await workspace.get("git/diff", path="d", since="base")).json() == {"original": "1\n", "modified": ""}
    (repository,) = (await workspace.get("git/status")).json()["repositories"]
    assert (repository["base"]["name"], repository["base"]["commit"]) == (
        "main",
        await workspace.run("git rev-parse main"),
    )
    await workspace.run(f"{MAKE}; git clone -q . copy && cd copy && git commit -q --allow-empty -m 3 && echo c > c")
    copy = (await workspace.get("git/status", since="base")).json()["repositories"][1]
    assert (copy["base"]["name"], copy["changes"]) == ("origin/work", [{"status": "A", "path": "copy/c"}])
    await workspace.run("rm -rf copy; git checkout -qf main")
    (repository,) = (await workspace.get("git/status", since="base")).json()["repositories"]
    assert repository["base"] is None, "main is what branches begin from"
    assert (await workspace.get("git/changes", since="ever")).status_code == 422


async def test_many_changes_are_bounded(workspace: Workspace) -> None:
    await workspace.run("git init -q && seq 2500 | xargs touch")
    assert len(await changes(workspace)) == 2000
    (repository,) = (await workspace.get("git/status")).json()["repositories"]
    assert repository["left_out"] == 500


async def test_nothing_that_a_repository_configures_is_run(workspace: Workspace) -> None:
    await workspace.run(
        f"{MAKE}; git init -q && echo 1 > f && echo 'f diff=bad' > .gitattributes && git add . && git commit -qm 1 && "
        "printf '#!/bin/sh\\necho ran >> %s/ran\\nsleep 60\\n' \"$PWD\" > evil && chmod +x evil && "
        "for name in core.fsmonitor core.pager core.editor diff.external core.sshCommand gpg.program diff.bad.textconv "
        "diff.bad.command core.alternateRefsCommand credential.helper core.askPass pager.log pager.status; "
        'do git config "$name" "$PWD/evil"; done && git config log.showSignature true && '
        "git config core.hooksPath $PWD/h && mkdir h && "
        "for hook in post-index-change post-checkout reference-transaction; do cp evil h/$hook; done; "
        "git config alias.status '!./evil'; git config alias.log '!./evil'; sleep 0.01; touch f; echo 2 > f; rm -f ran"
    )
    assert (await changes(workspace))["f"] == "M"
    assert await diff(workspace, "f") == ("1\n", "2\n")
    assert [one["subject"] for one in (await workspace.get("git/log")).json()["commits"]] == ["1"]
    assert await workspace.run("ls | grep -c '^ran$' || true") == "0"


async def test_no_content_filter_of_a_repository_is_run_and_none_can_fake_what_is_changed(workspace: Workspace) -> None:
    await workspace.run(
        f"{MAKE}; git init -q && echo 1 > f && echo '* filter=bad' > .gitattributes && git add . && git commit -qm 1; "
        "printf '[filter \"bad\"]\nclean = touch $PWD/ran; echo 1\nprocess = false\nrequired = true\n' > own && "
        "git config include.path $PWD/own && echo own > .git/info/exclude; sleep 0.01; touch .gitattributes; echo 2 > f"
    )
    assert await changes(workspace) == {"f": "M"}
    # That of the user is for all repositories, as for large files.
    await workspace.run("git config --unset include.path; git config --global filter.bad.clean 'echo 1'; touch f")
    try:
        assert "f" not in await changes(workspace)
    finally:
        await workspace.run("git config --global --remove-section filter.bad")
    await workspace.run("git config filter.a=b.clean false")
    assert "switched off" in (await workspace.get("git/changes")).json()["error"]


async def test_a_repository_leads_nowhere_else_and_holds_nobody_up(workspace: Workspace) -> None:
    await workspace.run(
        f"{MAKE}; git init -q && echo 1 > f && git add . && git commit -qm 1 && git config core.worktree /"
    )
    assert await changes(workspace) == {}
    assert [one["subject"] for one in (await workspace.get("git/log")).json()["commits"]] == ["1"]
    await workspace.run("mv .git ..git && mkdir linked && echo 'gitdir: ../..git' > linked/.git && cp f linked")
    assert await changes(workspace) == {}, "a repository may have its data elsewhere in the workspace"
    await workspace.run(
        f"{MAKE}; rm -rf linked; mkdir /tmp/elsewhere && git -C /tmp/elsewhere init -q && "
        "git -C /tmp/elsewhere commit -qm hidden --allow-empty && echo 'gitdir: /tmp/elsewhere/.git' > .git"
    )
    for wrong in ("true", "rm .git; ln -s /tmp/elsewhere/.git .git", "rm .git; mkdir .git; echo /tmp > .git/commondir"):
        await workspace.run(wrong)
        for what in ("changes", "log", "diff"):
            query = {"path": "f"} if what == "diff" else {}
            response = await workspace.get(f"git/{what}", **query)
            assert "leads out of the workspace" in response.json()["error"]
    await workspace.run("rm -rf .git /tmp/elsewhere; git init -q; mkfifo .gitignore")
    assert ".gitignore is not a file" in (await workspace.get("git/changes")).json()["error"]
    await workspace.run("rm .gitignore; rm .git/HEAD; mkfifo .git/HEAD")
    assert ".git/HEAD is not a file" in (await workspace.get("git/log")).json()["error"]


async def test_history_is_paged_and_told_with_its_people(workspace: Workspace) -> None:
    await workspace.run(
        f'{MAKE}; git init -q -b main && for n in 1 2 3; do echo $n > f$n; git add .; git commit -qm "nümber $n" '
        "-m 'Why it is so.'; done && git tag v1"
    )
    log: dict[str, Any] = (await workspace.get("git/log", limit=2)).json()
    assert log["has_more"]
    newest, before = log["commits"]
    assert (newest["subject"], newest["body"], newest["author"]) == ("nümber 3", "Why it is so.", "Ann")
    assert (newest["email"], newest["parents"]) == ("ann@example.com", [before["hash"]])
    assert newest["refs"] == ["HEAD -> main", "tag: v1"]
    assert newest["date"].startswith("20")
    rest = (await workspace.get("git/log", limit=2, skip=2)).json()
    assert ([one["subject"] for one in rest["commits"]], rest["has_more"]) == (["nümber 1"], False)
    assert [one["subject"] for one in (await workspace.get("git/log", path="f2")).json()["commits"]] == ["nümber 2"]
    assert (await workspace.get("git/log", limit=0)).status_code == 422


async def test_a_page_of_history_goes_on_where_the_one_before_ended_whatever_is_committed_meanwhile(
    workspace: Workspace,
) -> None:
    commit = "git add . && git commit -qm"
    await workspace.run(
        f"{MAKE}; git init -q -b main && for n in 1 2 3 4; do echo $n > f$n; {commit} $n; done && git switch -qc side"
        f" && echo x > g && {commit} side && git switch -q main && echo 5 > f5 && {commit} 5 && git merge -qm all side"
    )
    whole = [one["subject"] for one in (await workspace.get("git/log")).json()["commits"]]
    page = (await workspace.get("git/log", limit=2)).json()
    seen = [one["subject"] for one in page["commits"]]
    while page["next_page_id"] is not None:
        assert page["has_more"]
        await workspace.run(f"echo again >> f1 && {commit} later")
        page = (await workspace.get("git/log", limit=2, page_id=page["next_page_id"])).json()
        seen += [one["subject"] for one in page["commits"]]
    assert seen == whole
    assert len(whole) == 7
    for bad in ("x", "WyJIRUFEIiwgMV0", "WyItLWFsbCIsIDFd"):
        assert (await workspace.get("git/log", page_id=bad)).status_code == 400


async def test_changes_come_in_pages(workspace: Workspace) -> None:
    await workspace.run(f"{MAKE}; for one in a b; do git init -q $one; touch $one/1 $one/2 $one/3; done")
    whole = (await workspace.get("git/changes")).json()
    response = await workspace.get("git/changes", limit=4)
    assert response.json() == whole[:4]
    await workspace.run("touch a/0 b/4")
    rest = await workspace.client.get(response.links["next"]["url"])
    assert [one["path"] for one in rest.json()] == ["b/2", "b/3", "b/4"]
    assert "link" not in rest.headers


@pytest.mark.parametrize(
    ("command", "branch"),
    [("git checkout -q -b topic", "topic"), ("true; git -c a.b=c switch -qc fix", "fix")],
)
async def test_the_conversation_tells_the_branch_that_a_command_has_changed_to(
    workspace: Workspace, command: str, branch: str
) -> None:
    await workspace.run(f"{MAKE}; git init -q -b main && touch a && git add . && git commit -qm one")
    conversation = f"/api/conversations/{workspace.id}"
    before = (await workspace.client.get(conversation)).json()["selected_branch"]
    for one in ("git switch -q nowhere", command):
        event = {"action": "run", "args": {"command": f"cd {workspace.root} && {one}", "hidden": False}}
        assert (await workspace.client.post(f"{conversation}/events", json=event)).status_code == 200
    async with asyncio.timeout(WAIT_SECONDS):
        while (told := (await workspace.client.get(conversation)).json()["selected_branch"]) != branch:
            assert told == before
            await asyncio.sleep(0.05)
