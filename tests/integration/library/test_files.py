"""Files and repositories of a library's conversation."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from agent_core import LLM, Agent, Conversation, GitSetup, Repository
from agent_core.errors import SandboxError, ToolError
from agent_core.testing.model_turns import finish
from tests.contract.workspace.git_server import TOKEN, GitServer
from tests.integration.library.conftest import StartModel
from tests.integration.library.test_conversation import agent

pytestmark = pytest.mark.bubblewrap

TOKEN_SECRET = SecretStr(TOKEN)
EVERY_BYTE = bytes(range(256)) * 20_000


@pytest.fixture
def git_server(tmp_path: Path) -> Iterator[GitServer]:
    server = GitServer(tmp_path / "repositories")
    server.make("ann/private")
    yield server
    server.close()


def test_files_and_folders_go_in_and_out_byte_for_byte(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep/every").write_bytes(EVERY_BYTE)
    (source / "empty").touch()
    (source / "loop").symlink_to(source)
    work = tmp_path / "work"
    with Conversation(agent=Agent(llm=LLM()), workspace=work) as conversation:
        assert conversation.upload(source, "in") == [f"{work}/in/source/empty", f"{work}/in/source/deep/every"]
        assert conversation.upload(source / "deep/every") == [f"{work}/every"]
        assert (work / "in/source/deep/every").read_bytes() == EVERY_BYTE
        assert conversation.download("every", tmp_path / "back") == tmp_path / "back"
        assert (tmp_path / "back").read_bytes() == EVERY_BYTE
        packed = conversation.download("in", tmp_path)
        assert packed == tmp_path / "in.zip"
        assert zipfile.ZipFile(packed).read("source/deep/every") == EVERY_BYTE
        for path in ("../source/empty", "/etc/passwd"):
            with pytest.raises(SandboxError, match="out of the workspace"):
                conversation.download(path, tmp_path / "stolen")
        with pytest.raises(ToolError, match="does not exist"):
            conversation.download("missing", tmp_path / "stolen")
        with pytest.raises(SandboxError, match="out of the workspace"):
            conversation.upload(source / "empty", "../..")
        with pytest.raises(FileNotFoundError):
            conversation.upload(source / "missing")
    assert not (tmp_path / "stolen").exists()
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_a_conversation_may_begin_with_a_repository(
    start_model: StartModel, tmp_path: Path, git_server: GitServer
) -> None:
    server = start_model([finish("Done.")])
    url = f"{git_server.url}/ann/private.git"
    repository = Repository("ann/private", url, branch="other", username="x-access-token", token=TOKEN_SECRET)
    work = tmp_path / "work"
    setup = GitSetup(repository, "Ann", "ann@example.com")
    with Conversation(agent=agent(server), workspace=work, git=setup) as conversation:
        conversation.send_message("Look.")
        conversation.run()
        assert (work / "private/file").read_text() == "other\n"
        assert "Say ahoy in this repository." in str(conversation.state.log[:])
        assert TOKEN not in str(conversation.state.log[:])
    assert TOKEN.encode() not in b"".join(one.read_bytes() for one in work.rglob("*") if one.is_file())
