"""Small parts of the sandboxes: names, the archive that is put into containers, control groups, advice, folders."""

from __future__ import annotations

import asyncio
import io
import os
import struct
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.runtime import injection, seccomp
from agent_core.runtime.docker import images
from agent_core.runtime.local import launch_order as local_view
from agent_core.runtime.local.cgroups import ControlGroup, find_hierarchies, remove_stale
from agent_core.runtime.local.folder import remove_tree, user_for
from agent_core.runtime.processes import ProcessId, identify, members_of_namespace, wait_gone
from agent_core.runtime.sandbox import SandboxLimits, instance_name, object_name
from agent_core.runtime.seccomp import filter_program

IDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
"""Ids of instances and conversations have no NUL; whoever chooses one is held to that."""


@given(IDS, IDS, IDS, IDS)
def test_names_are_valid_and_differ_for_different_conversations(a: str, b: str, c: str, d: str) -> None:
    first, second = object_name(a, b), object_name(c, d)
    assert (first == second) == ((a, b) == (c, d))
    for name in (first, second, instance_name(a)):
        assert name.startswith("drydock-")
        assert len(name) <= 63
        assert all(letter.isascii() and (letter.isalnum() or letter == "-") for letter in name)


def test_a_name_shows_its_conversation() -> None:
    assert object_name("i", "0123456789ABCDEF").startswith("drydock-0123456789abcdef-")


def test_the_archive_holds_the_runner_read_only_and_folders_of_the_user() -> None:
    with tarfile.open(fileobj=io.BytesIO(injection.runner_archive(1000, 1001, True))) as archive:
        members = {member.name: member for member in archive}
    code = members["runner/wire.py"]
    assert (code.uid, code.mode) == (0, 0o644)
    assert (members["state"].uid, members["state"].gid, members["state"].mode) == (1000, 1001, 0o700)
    assert members["given/workspace"].uid == 1000
    assert members["given/workspace"].mtime > 0
    assert (members["given"].uid, members["given"].mode) == (0, 0o700)
    assert f"runner/__pycache__/wire.{sys.implementation.cache_tag}.pyc" in members


def test_the_archive_for_a_restart_leaves_the_workspace_alone() -> None:
    with tarfile.open(fileobj=io.BytesIO(injection.runner_archive(1000, 1000, False))) as archive:
        assert not [name for name in archive.getnames() if "workspace" in name.split("/")]


@pytest.mark.parametrize(
    ("image", "own"),
    [
        ("drydock/sandbox:base", True),
        ("drydock/sandbox", True),
        ("drydock/sandbox-of-mine:1", False),
        ("python:3.12", False),
        ("registry.example:5000/drydock/sandbox:base", False),
    ],
)
def test_our_own_images_are_told_apart_and_never_pulled(image: str, own: bool) -> None:
    assert images.is_own(image) is own
    error = images.missing_error(image, "why")
    assert error.code == "image_missing"
    assert ("make sandbox-image" in error.fix) is own


def test_the_advice_for_an_image_without_python_is_one_command_that_a_shell_understands() -> None:
    command = images.derive_command("host:5000/team/tool:1.2")
    assert command.endswith("| docker build -t tool-1.2-python -")
    dockerfile = subprocess.run(
        ["sh", "-c", command.rsplit("|", 1)[0]], capture_output=True, text=True, check=True
    ).stdout
    assert dockerfile.splitlines()[0] == "FROM host:5000/team/tool:1.2"
    assert "python3" in dockerfile.splitlines()[2]


def test_hierarchies_of_both_versions_are_found() -> None:
    table = [
        "tmpfs /sys/fs/cgroup tmpfs rw 0 0",
        "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0",
        "cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0",
        "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0",
        "short line",
    ]
    assert find_hierarchies(table) == {
        "cpu": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "pids": Path("/sys/fs/cgroup/pids"),
        "unified": Path("/sys/fs/cgroup/unified"),
    }


def test_a_unified_hierarchy_gets_its_limits(tmp_path: Path) -> None:
    group = tmp_path / "drydock" / "name"
    group.mkdir(parents=True)
    for name in ("cgroup.procs", "pids.max", "memory.max", "memory.swap.max", "cpu.max", "cgroup.freeze"):
        (group / name).touch()
    control = ControlGroup("name", {"unified": tmp_path})
    joins, limited = control.make(SandboxLimits(processes=7, memory=10**9, cpus=1.5))
    assert joins == [str(group / "cgroup.procs")]
    assert limited == {"pids", "memory", "cpu"}
    assert (group / "pids.max").read_text() == "7"
    assert (group / "memory.max").read_text() == "1000000000"
    assert (group / "cpu.max").read_text() == "150000 100000"
    assert control.freeze(True)
    assert (group / "cgroup.freeze").read_text() == "1"


def test_a_controller_that_is_not_to_be_had_is_not_counted(tmp_path: Path) -> None:
    group = tmp_path / "drydock" / "name"
    group.mkdir(parents=True)
    (group / "cgroup.procs").touch()
    (group / "pids.max").touch()
    assert ControlGroup("name", {"unified": tmp_path}).make(SandboxLimits())[1] == {"pids"}
    assert not ControlGroup("name", {}).freeze(True)


def test_groups_in_a_place_of_others_are_left_to_them_at_once(tmp_path: Path) -> None:
    (tmp_path / "drydock" / "name").mkdir(parents=True)
    (tmp_path / "drydock").chmod(0)
    me = os.geteuid()
    os.seteuid(me or 12345)  # root may everything
    try:
        control = ControlGroup("name", {"pids": tmp_path})
        assert control.make(SandboxLimits()) == ([], frozenset())
        control.remove()
    finally:
        os.seteuid(me)
        (tmp_path / "drydock").chmod(0o700)
    assert (tmp_path / "drydock" / "name").is_dir()


def test_only_old_and_empty_groups_are_swept(tmp_path: Path) -> None:
    for name in ("drydock-old", "drydock-used", "drydock-new", "other"):
        (tmp_path / "drydock" / name).mkdir(parents=True)
    (tmp_path / "drydock" / "drydock-used" / "in-use").touch()
    for name in ("drydock-old", "drydock-used", "other"):
        os.utime(tmp_path / "drydock" / name, (0, 0))
    remove_stale(60, {"pids": tmp_path, "memory": tmp_path})
    assert sorted(path.name for path in (tmp_path / "drydock").iterdir()) == ["drydock-new", "drydock-used", "other"]


def test_a_group_of_before_is_not_taken_away_from_a_sandbox_that_starts_anew(tmp_path: Path) -> None:
    folder = tmp_path / "drydock" / "drydock-first-1"
    folder.mkdir(parents=True)
    os.utime(folder, (1, 1))
    ControlGroup("drydock-first-1", {"pids": tmp_path}).make(SandboxLimits())
    remove_stale(60, {"pids": tmp_path})
    assert folder.is_dir()


def test_a_tree_is_removed_whatever_its_modes_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "file").touch()
    (tree / "link").symlink_to(outside)
    os.chmod(tree / "a" / "b", 0o000)
    os.chmod(tree / "a", 0o500)
    remove_tree(tree)
    assert not tree.exists()
    assert (outside / "kept").exists()
    remove_tree(tree)


def test_what_vanishes_while_its_tree_is_removed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    (tree / "cache").mkdir(parents=True)
    (tree / "file").touch()
    real = os.open

    def open_late(path: str, flags: int, **options: Any) -> int:
        if path == "cache":
            (tree / "cache").rmdir()
        return real(path, flags, **options)

    monkeypatch.setattr(os, "open", open_late)
    remove_tree(tree)
    assert not tree.exists()


def test_the_processes_of_our_own_namespace_are_never_taken_for_a_sandbox() -> None:
    assert members_of_namespace(os.getpid()) == []
    assert members_of_namespace(2**22 + 1) == []


def test_each_sandbox_has_a_user_of_its_own_within_the_namespaces_reach() -> None:
    whole, some = "0 0 4294967295", "0 100000 65536"
    names = [object_name("instance", str(number)) for number in range(100)]
    assert len({user_for(name, whole) for name in names}) == 100
    assert all(1_900_000_000 <= user_for(name, whole) < 2**31 for name in names)
    assert all(50_000 <= user_for(name, some) < 60_000 for name in names)


@pytest.mark.parametrize(("machine", "audit"), [("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)])
def test_the_filter_refuses_its_list_and_lets_all_else_pass(machine: str, audit: int) -> None:
    program = filter_program(machine)
    steps = [struct.unpack("=HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]

    def verdict(number: int, on: int, *arguments: int) -> int:
        words = {0: number, 4: on, **{16 + 8 * place: value for place, value in enumerate(arguments)}}
        at, held = 0, 0
        while True:
            code, met, unmet, value = steps[at]
            if code == 0x06:
                return int(value)
            if code == 0x20:
                held = words[value]
                at += 1
            else:
                at += 1 + (met if (held == value if code == 0x15 else held >= value) else unmet)

    refused_always = sorted(seccomp._MACHINES[machine].refused.values())
    sockets = seccomp._MACHINES[machine].sockets
    refused = [number for number in range(467) if verdict(number, audit, 1, 1, 0) == 0x50001]
    assert refused == refused_always
    assert all(verdict(number, audit, 1, 1, 0) == 0x7FFF0000 for number in range(467) if number not in refused)
    assert verdict(1, 0x40000003) == 0x50026
    assert verdict(467, audit) == verdict(0x40000001, audit) == verdict(2**32 - 1, audit) == 0x50026
    for number in sockets:
        let_pass = [family for family in range(60) if verdict(number, audit, family, 1, 0) == 0x7FFF0000]
        assert let_pass == [1, 2, 10, 16]
        assert [protocol for protocol in range(30) if verdict(number, audit, 16, 3, protocol) == 0x7FFF0000] == [0, 4]


def test_an_unknown_machine_has_no_filter() -> None:
    assert filter_program("pdp11") == b""


async def test_a_process_is_known_by_its_start_and_its_end_is_noticed() -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-c", "import sys; sys.stdin.read()", stdin=subprocess.PIPE
    )
    process = identify(child.pid)
    assert process is not None
    assert process.alive
    assert not ProcessId(process.pid, process.start + 1).alive
    assert not await wait_gone(process, 0.01)
    await child.communicate(b"")
    assert await wait_gone(process, 5)


def test_the_environment_of_a_sandbox_has_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    assert set(local_view.environment("/home/agent", {"MINE": "1"}, confined=True)) == {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "MINE",
    }


def test_libraries_that_others_cannot_read_are_left_out_of_roots_sandboxes_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As an installation with a strict umask leaves them: no sandbox could start with them."""
    (tmp_path / "package").mkdir()
    (tmp_path / "module.py").touch()
    shown = local_view.Shown("VARIABLE", "/place", str(tmp_path), ("package", "module.py"))
    monkeypatch.setattr(local_view, "shown_libraries", lambda: (shown,))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for path, mode in ((tmp_path, 0o700), (tmp_path / "package", 0o700), (tmp_path / "module.py", 0o600)):
        for each, usual in ((tmp_path, 0o755), (tmp_path / "package", 0o755), (tmp_path / "module.py", 0o644)):
            each.chmod(usual)
        local_view._open_libraries.cache_clear()
        assert local_view._open_libraries() == (shown,)
        path.chmod(mode)
        local_view._open_libraries.cache_clear()
        assert local_view._open_libraries() == ()
        assert caplog.messages[-1].startswith(f"{path} can be read by root alone")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    local_view._open_libraries.cache_clear()
    assert local_view._open_libraries() == (shown,)
    local_view._open_libraries.cache_clear()
