"""The functions that cells find ready to use: which there are, and what they say when something is missing."""

from __future__ import annotations

import builtins
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from runtime_images.runner.agent_skills import available, documents, files

ALWAYS = (
    "open_file goto_line scroll_down scroll_up search_dir search_file find_file"
    " parse_pdf parse_docx parse_latex parse_pptx"
)
CODE = "search_code_snippets get_entity_contents explore_tree_structure file_editor"


def test_they_stand_in_their_order_and_those_that_need_a_key_only_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert list(available()) == f"{ALWAYS} {CODE}".split()
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    assert list(available()) == f"{ALWAYS} parse_audio parse_video parse_image {CODE}".split()
    assert all(function.__doc__ for function in available().values())


def test_without_its_library_a_pdf_file_is_not_read_and_the_fix_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("pypdf"):
            raise ImportError(name)
        return usual(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    documents.parse_pdf(str(tmp_path / "a.pdf"))
    assert "Install it with: %pip install pypdf" in capsys.readouterr().out


def test_what_cannot_be_opened_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.open_file(str(tmp_path))
    documents.parse_docx(str(tmp_path / "none.docx"))
    (tmp_path / "empty").touch()
    files.open_file(str(tmp_path / "empty"))
    said = capsys.readouterr().out
    assert f"ERROR: {tmp_path} is a folder." in said
    assert f"ERROR: There is no file {tmp_path}/none.docx." in said
    assert "empty (0 lines total)]\n(this is the beginning of the file)\n(this is the end of the file)\n" in said


class _Service(BaseHTTPRequestHandler):
    asked: list[tuple[str, bytes]] = []  # noqa: RUF012 - emptied by the fixture

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.path, body))
        heard = {"text": "Hello"} if "audio" in self.path else {"choices": [{"message": {"content": "A boat"}}]}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(heard).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Service]]:
    _Service.asked.clear()
    server = HTTPServer(("127.0.0.1", 0), _Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    yield _Service
    server.shutdown()
    thread.join()
    server.server_close()


def test_pictures_and_recordings_are_put_into_words_by_a_service(
    service: type[_Service], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_bytes(b"picture")
    (tmp_path / "a.wav").write_bytes(b"sound")
    documents.parse_image(str(tmp_path / "a.png"), "What is it?")
    documents.parse_audio(str(tmp_path / "a.wav"))
    documents.parse_image(str(tmp_path / "none.png"))
    assert capsys.readouterr().out == f"A boat\nHello\nERROR: There is no file {tmp_path}/none.png.\n"
    (looked, seen), (listened, heard) = service.asked
    assert (looked, listened) == ("/v1/chat/completions", "/v1/audio/transcriptions")
    assert json.loads(seen)["messages"][0]["content"][0] == {"type": "text", "text": "What is it?"}
    assert b"sound" in heard
