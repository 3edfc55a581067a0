"""Every code block of the pages is executed, or read as what its page says it is.

Programs run for real: on a folder, against a scripted model and a server, all of a page one after another.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from pydantic import TypeAdapter

from agent_core.mcp.config import McpServer, mcp_servers
from agent_core.runtime.kubernetes.provider import RIGHTS
from agent_core.security.hooks import HookConfig
from agent_core.skills.agent_catalog import agent_from_text
from agent_core.skills.files import skill_from_text
from agent_core.testing.model_server import ModelRequest
from agent_core.testing.model_turns import Turn, finish, say
from server.auth.audit import canonical
from server.cli.parser import parser
from server.routes.conversations.new_conversation import NewConversation
from server.settings.settings import Settings
from tests.integration.library.conftest import RunningServer, StartModel
from tests.integration.server.forks import ROOT, run_program
from tests.kubernetes_fields import unknown_fields
from tests.postgresql import Cluster

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DRAWN = {"architecture.md", "machines.md"}
"""Pages whose blocks without a language are drawings; `tests/architecture` reads what they name."""


class Block(NamedTuple):
    """One block of a page."""

    page: Path
    number: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.stem}-{self.number}"


BLOCKS = [
    Block(page, number, *found) for page in PAGES for number, found in enumerate(BLOCK.findall(page.read_text("utf-8")))
]


PROGRAMS = [page for page in PAGES if "```python" in page.read_text("utf-8")]


def of(language: str) -> list[Any]:
    return [pytest.param(block, id=block.name) for block in BLOCKS if block.language == language]


def test_every_block_has_a_language_that_something_here_executes() -> None:
    known = {"python", "toml", "json", "markdown", "sh", "sql", "yaml", "mermaid"}
    assert not [block.name for block in BLOCKS if block.language not in known and block.page.name not in DRAWN]


@pytest.mark.postgresql
@pytest.mark.parametrize("block", of("sql"))
async def test_statements_are_executed(block: Block, postgresql: Cluster) -> None:
    """Those of the guide to PostgreSQL: a role, and a database of its own."""
    own = block.text.replace("drydock", "of_a_page")  # there is one of that name for the tests
    statements = [one.strip() for one in own.split(";") if one.strip()]
    try:
        await postgresql.run(*statements)
        found = await postgresql.run("SELECT count(*) FROM pg_database WHERE datname = 'of_a_page'")
        assert found[0][0] == 1
    finally:
        await postgresql.run("DROP DATABASE IF EXISTS of_a_page", "DROP ROLE IF EXISTS of_a_page")


@pytest.mark.parametrize("block", of("yaml"))
def test_manifests_are_what_the_client_of_kubernetes_knows_and_give_the_rights_that_are_used(block: Block) -> None:
    manifests = list(yaml.safe_load_all(block.text))
    for one in manifests:
        assert unknown_fields(one, f"V1{one['kind']}") == []
    [role] = [one for one in manifests if one["kind"] == "Role"]
    granted = {
        (group, resource): tuple(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == RIGHTS
    assert {one["metadata"].get("namespace", one["metadata"]["name"]) for one in manifests} == {"drydock-sandboxes"}


PRINTED = {
    "client": ["$ python3 -m unittest", "def to_roman", "Ran 3 tests", "Let me look at the code", "max_iterations "]
}
"""What programs of a page print, among other things, in this order."""

PROGRAM = """
import re, sys, traceback
namespace = {"__name__": "__main__"}
for number, code in enumerate(BLOCKS):
    print("block", number, flush=True)
    exec(compile(code, f"block {number}", "exec", dont_inherit=True), namespace)
print("all done")
"""


QUICK: dict[str, Any] = {"litellm_extra_body": {"pace": 0}}
"""The tour without its pauses, which are for people."""


def answer(request: ModelRequest) -> Turn:
    return finish("Done.") if request.json.get("tools") else say("Hello.")


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that wants no token, as on one's own computer."""
    profiles = {"quick": {"model": "demo/tour", **QUICK}}
    server = RunningServer(
        tmp_path_factory.mktemp("docs") / "data",
        is_open=True,
        DRYDOCK_LLM_PROFILES=json.dumps(profiles),
        DRYDOCK_LLM_PROFILE="quick",
    )
    try:
        server.do(server.process.start())
        yield server
    finally:
        server.close()


@pytest.mark.bubblewrap
@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```python" in page.read_text("utf-8")], ids=lambda p: p.stem
)
def test_the_programs_of_a_page_run_one_after_another(
    page: Path, start_model: StartModel, open_server: RunningServer, tmp_path: Path
) -> None:
    model = start_model(answer)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "sales.json").write_text('{"may": 3, "june": 4}')
    reached = f'model="openai/scripted", base_url="{model.url}", api_key="key-123456"'
    codes = [block.text for block in BLOCKS if block.page == page and block.language == "python"]
    for told, real in (
        ('model="anthropic/claude-sonnet-4-5", api_key="…"', reached),
        ('model="anthropic/claude-sonnet-4-5"', reached),
        ("http://localhost:8000/v1", model.url),
        ('api_key="…"', 'api_key="key-123456"'),
        ('model="demo/tour"', f'model="demo/tour", **{QUICK}'),
        ("http://127.0.0.1:3000", open_server.process.url),
    ):
        codes = [code.replace(told, real) for code in codes]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "DRYDOCK_HOME": str(tmp_path / "home")}
    done = run_program(["-c", f"BLOCKS = {codes!r}\n{PROGRAM}"], environment, tmp_path)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert done.stdout.rstrip().endswith("all done"), done.stdout[-2000:]
    assert re.search(".*".join(map(re.escape, PRINTED.get(page.stem, []))), done.stdout, re.DOTALL), done.stdout
    assert "Traceback" not in done.stderr, done.stderr[-4000:]


@pytest.mark.parametrize("block", of("toml"))
def test_a_configuration_is_read(block: Block, tmp_path: Path) -> None:
    values = tomllib.loads(block.text.replace("…", "x" * 24))  # as long as a token has to be
    assert values
    unknown = values.keys() - Settings.model_fields.keys()
    assert not unknown
    if "modules" in values:  # what they register is of the reader's own
        return
    Settings.model_validate({**values, "data_dir": tmp_path})


@pytest.mark.parametrize("block", of("json"))
def test_data_are_what_the_page_says(block: Block) -> None:
    data = json.loads(block.text)
    if "hooks" in data:
        assert HookConfig.from_json(block.text).hooks
    elif "mcpServers" in data:
        assert TypeAdapter(dict[str, McpServer]).validate_python(mcp_servers(data))
    elif data.keys() & {"agent_options", "sandbox"}:
        assert NewConversation.model_validate(data).model_fields_set == data.keys()
    elif "previous" in data:
        assert canonical(data) == block.text.strip()
    elif "agent_servers" in data:
        (server,) = data["agent_servers"].values()
        check_command([server["command"], *server["args"]])
    else:
        assert data["type"] == "conversation.events", "say here what these data are"
        assert {"timestamp", "webhook_id", "data"} <= data.keys()
    for server in data.get("mcpServers", {}).values():
        if server.get("command") == "drydock":
            check_command([server["command"], *server["args"]])


@pytest.mark.parametrize("block", of("markdown"))
def test_a_file_with_a_header_is_a_skill_or_a_kind_of_sub_agents(block: Block) -> None:
    if "description:" in block.text:
        assert agent_from_text(f"{block.name}.md", block.text, "project").instructions
    else:
        assert skill_from_text(f"{block.name}.md", block.text).content


@pytest.mark.parametrize("block", of("mermaid"))
def test_a_picture_has_only_what_it_names_and_services_that_there_are(block: Block) -> None:
    first, *lines = block.text.splitlines()
    assert first == "flowchart LR"
    node = r"\w+(?:\(\[.+?\]\)|\[\(.+?\)\]|\[\[.+?\]\]|\[.+?\])?"
    several = rf"{node}(?: & {node})*"
    line_of_it = re.compile(rf"subgraph {node}|end|{several}(?: -->(?:\|[^|]+\|)? {several})*")
    assert not [line for line in lines if line_of_it.fullmatch(line.strip()) is None]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    shown = re.findall(r"^    (?:\w+ --> )?\w+\[([\w-]+)(?:: .*)?\]", block.text, re.MULTILINE)
    assert "docker compose" not in block.text or set(shown) <= set(services)


@pytest.mark.bubblewrap
@pytest.mark.parametrize("block", of("sh"))
def test_commands_are_there_with_their_options(block: Block, open_server: RunningServer) -> None:
    script = block.text.replace("\\\n", " ")
    for line in filter(None, map(str.strip, script.splitlines())):
        for part in re.split(r"&&|\|", line):
            words = shlex.split(part.lstrip(" ("), comments=True)
            if words[0] == "curl":
                url = open_server.process.url
                command = [word.replace("http://127.0.0.1:3000", url) for word in words]
                done = subprocess.run([*command, "-sS", "-f"], capture_output=True, text=True, timeout=90)
                assert done.returncode == 0, (part, done.stdout, done.stderr)
            else:
                check_command(words)


def check_command(words: list[str]) -> None:
    """See that there is such a command, and that it knows the options."""
    if variable := re.match(r"(\w+)=", words[0]):  # a line of the file `.env` beside the compose file
        assert f"${{{variable[1]}:-" in (ROOT / "docker-compose.yml").read_text("utf-8"), words
    elif words[0] == "make":
        rules = (ROOT / "Makefile").read_text("utf-8")
        assert all(re.search(rf"^{re.escape(rule)}:", rules, re.MULTILINE) for rule in words[1:]), words
    elif words[0] == "drydock":
        end = next((at for at, word in enumerate(words) if word in ("<", ">")), None)
        parser().parse_args(words[1:end])  # ends where there is no such command, or it takes something else
    elif words[:2] == ["docker", "compose"]:
        if "drydock" in words:  # in a container of the project, whose own tests start those
            check_command(words[words.index("drydock") :])
    elif words[0] == "kubectl":
        assert all((ROOT / words[at + 1]).is_file() for at, word in enumerate(words) if word == "-f"), words
    else:
        assert words[0] in {"git", "cd", "age", "umask", "docker", "systemctl", "journalctl"}, (
            f"say in the test how {words[0]!r} is executed"
        )
