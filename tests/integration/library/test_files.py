"""Files and repositories of a library's conversation."""

from __future__ import annotations

import socket
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from agent_core import LLM, Agent, Conversation, GitSetup, LocalWorkspace, Repository
from agent_core.errors import SandboxError, ToolError
from agent_core.runtime.channel.tunnels import PortError
from agent_core.testing.model_turns import finish
from agent_core.tools.terminal import TerminalAction
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
    (source / "same").symlink_to("deep/every")
    (tmp_path / "private").touch()
    (source / "out").symlink_to(tmp_path / "private")
    work = tmp_path / "work"
    with Conversation(agent=Agent(llm=LLM()), workspace=work) as conversation:
        stored = [f"{work}/in/source/{name}" for name in ("empty", "same", "deep/every")]
        assert conversation.upload(source, "in") == stored
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
    workspace = LocalWorkspace(work, network="host-access")  # where the repository's server is
    with Conversation(agent=agent(server), workspace=workspace, git=setup) as conversation:
        conversation.send_message("Look.")
        conversation.run()
        assert (work / "private/file").read_text() == "other\n"
        assert "Say ahoy in this repository." in str(conversation.state.log[:])
        assert TOKEN not in str(conversation.state.log[:])
    assert TOKEN.encode() not in b"".join(one.read_bytes() for one in work.rglob("*") if one.is_file())


SERVE = """
import socketserver, sys, threading
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
        self.request.sendall(b"the end")
socketserver.TCPServer.allow_reuse_address = True
socketserver.TCPServer(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
"""


def test_ports_are_listed_and_can_be_connected_to_while_files_are_moved_and_until_a_run_begins(
    start_model: StartModel, tmp_path: Path
) -> None:
    server = start_model([finish("Done.")])
    work = tmp_path / "work"
    port = free_port()
    own = agent(server)
    with Conversation(agent=own, workspace=work) as conversation:
        (tmp_path / "serve.py").write_text(SERVE)
        conversation.upload(tmp_path / "serve.py")
        serve = f"python3 serve.py {port} > /dev/null 2>&1 & until (: < /dev/tcp/127.0.0.1/{port}); do sleep 0.1; done"
        conversation.execute_tool("terminal", TerminalAction(command=serve))
        (listed,) = [one for one in conversation.list_ports() if one.port == port]
        assert (listed.addresses, listed.process) == (("127.0.0.1",), "python3")
        with conversation.connect_port(port) as line:
            line.settimeout(30)
            sent = EVERY_BYTE[:1_000_000]

            def send() -> None:
                line.sendall(sent)
                line.shutdown(socket.SHUT_WR)

            writing = threading.Thread(target=send)
            writing.start()
            assert conversation.upload(tmp_path / "serve.py", "again")
            got = b""
            while part := line.recv(65536):
                got += part
            writing.join()
            assert got == sent + b"the end"
        with conversation.connect_port(port) as line:
            line.settimeout(30)
            line.sendall(b"x")
            assert line.recv(10) == b"x"
            conversation.send_message("Go.")
            conversation.run()
            assert line.recv(10) == b""
            assert conversation.list_ports() == [listed]
        with pytest.raises(PortError, match="takes no connection"):
            conversation.connect_port(free_port())
        with pytest.raises(ValueError, match="port is 0: give a whole number"):
            conversation.connect_port(0)
        left_open = conversation.connect_port(port)
        left_open.settimeout(30)
    assert left_open.recv(1) == b""
    left_open.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
