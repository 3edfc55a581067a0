from __future__ import annotations

import asyncio
import io
import re
import shlex
import socket
from pathlib import Path
from typing import Any

import pytest

from agent_core.version import VERSION
from server.cli import TO_DOCTOR, main
from server.cli.commands_reference import render
from server.cli.completion import candidates
from server.cli.doctor import doctor
from server.cli.parser import EXAMPLES, RUN_EXAMPLES, parser
from server.cli.run_outcome import ExitStatus
from server.settings.settings import Settings
from tests.played_engine import GIGABYTE, played_engines

ROOT = Path(__file__).parents[3]


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"drydock {VERSION}\n"


def test_options_without_a_command_are_those_of_serve(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRYDOCK_PROT", "1")  # so that it gets as far as the settings, and no further
    assert main(["--port", "0", "--sandbox", "unconfined"]) == 2
    assert "did you mean DRYDOCK_PORT?" in capsys.readouterr().err
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"drydock {VERSION}\n"
    with pytest.raises(SystemExit):
        main(["--prot", "1"])
    assert "unrecognized arguments: --prot 1" in capsys.readouterr().err
    assert main([]) == 2
    assert "`drydock serve` runs the server" in capsys.readouterr().err


def test_every_page_that_the_product_points_to_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    pointer = re.compile(r"\b(?:docs/\w+|runtime_images/README)\.md\b")
    sources = (path for folder in ("agent_core", "drydock_client", "server") for path in (ROOT / folder).rglob("*.py"))
    named = {found for path in sources for found in pointer.findall(path.read_text("utf-8"))}
    assert {"docs/configuration.md", "docs/doors.md", "runtime_images/README.md"} <= named
    assert main(["docs"]) == 0
    listed = capsys.readouterr().out
    for page in named:
        assert page in listed
        assert main(["docs", page]) == 0
        assert capsys.readouterr().out == (ROOT / page).read_text("utf-8")
    assert main(["docs", "doors"]) == 0
    assert capsys.readouterr().out == (ROOT / "docs/doors.md").read_text("utf-8")
    assert main(["docs", "nothing"]) == 2
    assert "`drydock docs` lists them" in capsys.readouterr().err


def test_the_page_has_all_commands_and_every_status_of_a_task() -> None:
    page = ROOT.joinpath("docs", "command-line.md").read_text("utf-8")
    assert page.endswith(render()), "python -m server.cli.commands_reference prints them; they end the page"
    assert [status.name for status in ExitStatus if f"\n| {status.value} | " not in page] == []
    help_of_run = " ".join(RUN_EXAMPLES.split())
    assert [status.name for status in ExitStatus if f" {status.value} " not in help_of_run] == []


def test_every_example_of_the_help_can_be_typed() -> None:
    shown = [line.strip() for text in EXAMPLES.values() for line in text.splitlines() if line.startswith("  ")]
    commands = [part for line in shown for part in re.split(r"\s{2,}", line)[0].split(" | ")]
    found = [one.removeprefix("drydock ") for one in commands if one.startswith("drydock ") and "COMMAND" not in one]
    assert len(found) > 20
    for line in found:
        assert parser().parse_args(shlex.split(line)).command


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([""], ["serve", "doctor"]),
        (["conversations", "li"], ["list"]),
        (["conversations", "list", "--state", "f"], ["finished", "failed"]),
        (["conversations", "list", "--state", "=", "w"], ["waiting"]),
        (["conversations", "list", "--json", "--j"], []),
        (["run", "--sandbox", "local", "task", "--rep"], ["--repo"]),
        (["run", "--repo", "--b"], []),
        (["plugins", "install", "--r"], ["--ref"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["conversations", "show", "--url", "http://127.0.0.1:9", ""], []),
        (["nonsense", "--nonsense", ""], ["serve", "doctor"]),
    ],
)
def test_what_a_shell_may_complete(words: list[str], found: list[str]) -> None:
    assert [one.word for one in candidates(words, {})][: len(found) or None][:2] == found[:2]


def test_a_bad_setting_is_one_line_and_the_way_to_the_doctor_and_status_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRYDOCK_PROT", "1")
    assert main(["serve"]) == 2
    printed = capsys.readouterr()
    assert printed.err == f"drydock: DRYDOCK_PROT is no setting; did you mean DRYDOCK_PORT?\n{TO_DOCTOR}"
    assert main(["backup", "nowhere"]) == 2
    assert TO_DOCTOR not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["unknown"], ["serve", "--sandbox", "paper"], ["serve", "--port", "x"]])
def test_a_wrong_command_line_says_how_to_use_it(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: drydock" in capsys.readouterr().err


PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy")


def test_the_doctor_says_what_goes_through_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", ".internal")
    out = io.StringIO()
    assert doctor(Settings(data_dir=tmp_path / "data", sandbox="unconfined", port=0), out) == 0
    (line,) = [line for line in out.getvalue().splitlines() if " proxy " in line]
    assert "through http://proxy.example:3128 (https), but for .internal (NO_PROXY); models of this machine" in line


def test_the_doctor_names_everything_that_it_looked_at_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    out = io.StringIO()
    settings = Settings(data_dir=tmp_path / "data", sandbox="unconfined", port=0)
    assert doctor(settings, out) == 0
    lines = out.getvalue().splitlines()
    assert [line[7:18].strip() for line in lines[1:-1]] == [
        "python",
        "git",
        "data folder",
        "storage",
        "backup",
        "retention",
        "disk",
        "memory",
        "capacity",
        "access",
        "docker",
        "image",
        "bubblewrap",
        "network",
        "page",
        "model",
    ]
    assert any("none configured" in line and "--" in line for line in lines)
    assert any("-- network" in " ".join(line.split()) and "this host's own network" in line for line in lines)
    assert lines[-1] == "Everything that is needed is there."


def test_the_doctor_tells_how_many_may_be_at_work_and_why(tmp_path: Path) -> None:
    out = io.StringIO()
    settings = Settings(data_dir=tmp_path / "data", sandbox="unconfined", port=0)
    doctor(settings.model_copy(update={"max_working_conversations": 5, "max_concurrent_conversations": 3}), out)
    (line,) = [line for line in out.getvalue().splitlines() if line[7:18].strip() == "capacity"]
    assert "5 conversations at work at a time, 3 of each user; the rest wait." in line
    assert "sandboxes by memory: 256 MiB for each sandbox" in line


async def test_the_doctor_counts_the_sandboxes_that_docker_hosts_may_have(tmp_path: Path) -> None:
    out = io.StringIO()
    async with played_engines(tmp_path, "a", "b") as engines:
        engines[1].memory = 4 * GIGABYTE
        hosts = {engine.path.name: {"url": engine.url} for engine in engines}
        values = {"data_dir": tmp_path / "data", "sandbox": "unconfined", "port": 0, "docker_hosts": hosts}
        await asyncio.to_thread(doctor, Settings.model_validate(values), out)
    (line,) = [line for line in out.getvalue().splitlines() if line[7:18].strip() == "capacity"]
    assert f" {60 + 12} sandboxes, 0 of them" in line, "of 256 MiB each, 1 GiB kept on each host"


def test_the_doctor_counts_a_page_that_was_named_and_is_not_there(tmp_path: Path) -> None:
    out = io.StringIO()
    assert doctor(Settings(data_dir=tmp_path / "data", sandbox="unconfined", port=0, page=tmp_path / "page"), out) == 1
    assert f"no index.html in {tmp_path / 'page'}" in out.getvalue()


def test_the_doctor_counts_what_keeps_the_server_from_running(tmp_path: Path) -> None:
    out = io.StringIO()
    (tmp_path / "file").write_text("")
    settings = Settings(data_dir=tmp_path / "file", sandbox="unconfined", host="192.0.2.1")
    assert doctor(settings, out) == 1
    text = out.getvalue()
    assert "MISS data folder" in text
    assert "MISS access" in text
    assert "DRYDOCK_TOKEN" in text
    assert "MISS port        cannot listen on 192.0.2.1 port 3000" in text
    assert "3 to mend" in text


def test_the_doctor_says_who_has_the_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        out = io.StringIO()
        assert doctor(Settings(data_dir=tmp_path / "data", sandbox="unconfined", port=port), out) == 1
    text = f"MISS port        cannot listen on 127.0.0.1 port {port}: Address already in use; another program has it"
    assert text in out.getvalue()


@pytest.mark.parametrize(
    ("values", "name", "told"),
    [
        ({"host": "*", "token": "auto"}, "access", "names belong into allowed_hosts"),
        ({"llm_model": "ollama/x", "llm_base_url": "http://127.0.0.1:9"}, "model", "nothing answers there"),
        (
            {"conversation_manager_class": "server.conversation_manager.clustered.ClusteredConversationManager"},
            "cluster",
            "name its address in cluster_url",
        ),
        ({"redis_url": "redis://:hidden@127.0.0.1:9/0"}, "redis", "see that redis_url names a Redis that runs"),
    ],
)
def test_the_doctor_sees_what_commonly_goes_wrong(tmp_path: Path, values: dict[str, Any], name: str, told: str) -> None:
    out = io.StringIO()
    doctor(Settings(data_dir=tmp_path / "data", sandbox="unconfined", port=0, **values), out)
    (line,) = [line for line in out.getvalue().splitlines() if line[7:18].strip() == name]
    assert told in line
