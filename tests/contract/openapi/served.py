"""A real server for whoever goes through the OpenAPI document: on a port, with a token, in a thread of its own.

Its sandboxes are in memory, its model answers at once, and its git provider is played on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from agent_core.testing.fake_sandbox import FakeProvider
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import say
from server.app import create_app
from server.doors.chat.requests import MODEL
from server.session.sandboxes import SandboxSelection
from server.settings.settings import Settings
from tests.contract.openapi.sandboxes import HANDLERS
from tests.contract.rest.played.github import PlayedGitHub
from tests.contract.rest.played.world import TOKEN as GIT_TOKEN
from tests.serving import serving as serving_app

TOKEN = "token-0123456789abcdef0123"
LIMIT = 60.0
CONVERSATION = "prepared"
"""The id of a conversation that is there, and runs."""
SECRET = "PREPARED"
"""The name of a secret that is there."""
PLUGIN = "tools"
"""The name of a plugin that is there."""
SKILL = "boats"
"""The name of a user's skill that is there."""
REPOSITORY = "ann/boat"
"""A repository that the git provider has."""


class Served:
    """The running server, asked without much ado."""

    def __init__(self, url: str, git_host: str) -> None:
        self.url = url
        self.git_host = git_host
        self._prepared = ""
        self._times = 0
        self.there = {
            "conversation_id": CONVERSATION,
            "secret_id": SECRET,
            "skill_name": SKILL,
            "plugin_name": PLUGIN,
            "repository": REPOSITORY,
            "model": MODEL,
            "call_id": "0",
            "webhook_id": "",
        }
        """Values of parameters in paths that name something that is there."""

        self.session = requests.Session()
        self.session.headers["X-Session-API-Key"] = TOKEN

    def ask(self, method: str, path: str, *statuses: int, **options: Any) -> Any:
        """The answer's JSON; its status is one of these (200 if none is given)."""
        response = self.session.request(method, self.url + path, timeout=LIMIT, **options)
        assert response.status_code in (statuses or (200,)), f"{method} {path}: {response.status_code} {response.text}"
        return response.json()

    def prepare_once(self, name: str) -> int:
        """The same, the first time for each name in a row; returns which time in the row it is, from 1."""
        if name != self._prepared:
            self._prepared, self._times = name, 0
            self.prepare()
        self._times += 1
        return self._times

    def prepare(self) -> None:
        """Settings, a token of the git provider and a running conversation are there, whatever went on before."""
        settings: dict[str, Any] = {
            "llm_model": None,
            "mcp_config": {},
            "confirmation_mode": False,
            "agent_options": None,
            "system_message_suffix": None,
            "user_message_suffix": None,
            "disabled_skills": None,
            "load_public_skills": None,
            "load_org_skills": None,
            "load_project_skills": None,
            "disabled_plugins": None,
        }
        self.ask("POST", "/api/settings", json=settings)
        self.ask("POST", "/api/unset-provider-tokens")
        tokens = {"github": {"token": GIT_TOKEN, "host": self.git_host}}
        self.ask("POST", "/api/add-git-providers", json={"provider_tokens": tokens})
        self.ask("POST", "/api/secrets", 201, 400, json={"name": SECRET, "value": "the tide is out"})
        self.ask("PUT", f"/api/skills/{SKILL}", 200, 201, json={"content": "Boats float."})
        webhooks = self.ask("GET", "/api/webhooks")["results"]
        if not any(one["id"] == self.there["webhook_id"] for one in webhooks):
            body = {"url": "http://127.0.0.1:9/", "conversation_id": None}
            self.there["webhook_id"] = self.ask("POST", "/api/webhooks", 201, json=body)["id"]
            self.ask("PATCH", f"/api/webhooks/{self.there['webhook_id']}", json={"active": False})
        if self.ask("GET", f"/api/conversations/{CONVERSATION}") is None:
            self.ask("POST", "/api/conversations", json={"conversation_id": CONVERSATION})
        self.ask("POST", f"/api/conversations/{CONVERSATION}/start", json={})
        for _ in range(int(LIMIT / 0.02)):
            if self.ask("GET", f"/api/conversations/{CONVERSATION}/files", 200, 404).get("entries"):
                return
            threading.Event().wait(0.02)
        raise AssertionError("the conversation does not run")


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """The server with its data in this folder."""
    found: list[Served | BaseException] = []
    is_ready = threading.Event()
    loop = asyncio.new_event_loop()
    end = asyncio.Event()

    async def serve() -> None:
        try:
            async with _server(folder) as served:
                found.append(served)
                is_ready.set()
                await end.wait()
        except BaseException as error:
            found.append(error)
            raise
        finally:
            is_ready.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="served")
    thread.start()
    try:
        assert is_ready.wait(LIMIT)
        served = found[0]
        if isinstance(served, BaseException):
            raise served
        with served.session:
            yield served
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(LIMIT)
        loop.close()


@contextlib.asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[Served]:
    provider = FakeProvider(handlers=dict(HANDLERS))

    async def choose() -> SandboxSelection:
        return SandboxSelection(provider, "fake sandboxes for tests")

    async with ModelServer(lambda request: say("Hello.")) as model, PlayedGitHub() as git:
        values: dict[str, Any] = {
            "llm_model": "openai/scripted",
            "llm_base_url": model.url,
            "llm_api_key": "sk-x",
            "token": TOKEN,
        }
        values |= {
            "token": TOKEN,
            "requests_per_second": 0,
            "verify_search_key": False,
            "generate_titles": False,
            "allow_set_conversation_id": True,
            "max_concurrent_conversations": 10_000,
        }
        settings = Settings.model_validate({"data_dir": folder, **values})
        with pytest.MonkeyPatch.context() as patched:  # what is sent has many wrong tokens, and none is to be a 429
            for name in ("WRONG_AT_ONCE", "WRONG_IN_ALL"):
                patched.setattr(f"server.auth.doorkeeper.{name}", 1_000_000)
            app = create_app(settings, choose=choose)
        async with serving_app(app, log_level="critical", ws="none", timeout_graceful_shutdown=2) as port:
            yield Served(f"http://127.0.0.1:{port}", git.host)
