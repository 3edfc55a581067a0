"""A server whose parts are an operator's own classes, each named by its dotted path, and each seen at work."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx
import pytest

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from server.parts import PARTS
from server.settings.settings import Settings
from tests.integration.server.conftest import MakeProcess, clean_environment
from tests.integration.server.forks import ROOT
from tests.waiting import until

MODULE = '''
"""The parts of a house, as an operator writes them: whole, and without anything of the server's own."""
import asyncio
import hashlib
import json
import os
from pathlib import Path

from pydantic import SecretStr

from agent_core.runtime.local.provider import LocalProvider
from agent_core.security.secrets import StaticSecret
from server.auth.identity import Identity
from server.conversation_manager.conversation_manager import ConversationManager
from server.conversation_manager.standalone import StandaloneConversationManager
from server.db.repositories.user_secrets import SecretEntry
from server.db.repositories.user_settings import StoredSettings
from server.listeners import MonitoringListener
from server.session.agents.experiments import ExperimentManager

FOLDER = Path(__file__).parent


def note(*words):
    with FOLDER.joinpath("notes").open("a") as file:
        file.write(json.dumps(words) + "\\n")


class Badges:
    """Everybody shows a badge: a header, or the token of the socket."""
    required = True
    opens_addresses = False

    def __init__(self, settings):
        self.known = {"badge-of-ann": "ann", "badge-of-bob": "bob"}

    def identify(self, headers):
        return self.identify_token(headers.get("x-badge"))

    def identify_token(self, token):
        return Identity(self.known[token]) if token in self.known else None

    def shown(self, headers):
        return headers.get("x-badge")


class Cupboard:
    """Users' settings in a file; entered and left with the server."""

    def __init__(self, settings):
        self.file = settings.data_dir / "cupboard.json"
        self.lock = asyncio.Lock()

    async def __aenter__(self):
        note("cupboard opened")
        return self

    async def __aexit__(self, *error):
        note("cupboard closed")

    def _all(self):
        return json.loads(self.file.read_text()) if self.file.exists() else {}

    async def get(self, user_id=""):
        found = self._all().get(user_id)
        return None if found is None else StoredSettings.model_validate(found)

    async def change(self, make, user_id="", *, sets=()):
        async with self.lock:
            made = make(await self.get(user_id))
            document = made.model_dump(mode="json")
            document["llm_api_key"] = made.llm_api_key.get_secret_value() if made.llm_api_key else None
            self.file.write_text(json.dumps({**self._all(), user_id: document}))


class Vault:
    """Everybody has the same one secret, which lies outside of the server."""

    def __init__(self, settings):
        self.value = os.environ["HOUSE_SECRET"]

    async def names(self, user_id=""):
        return [SecretEntry("HOUSE_KEY", f"of {user_id}")]

    async def values(self, user_id=""):
        return {"HOUSE_KEY": StaticSecret(secret=SecretStr(self.value), description="of the house")}

    async def create(self, name, value, description, user_id=""):
        raise NotImplementedError

    async def change(self, name, *, new_name, description=None, value=None, user_id=""):
        return False

    async def delete(self, name, user_id=""):
        return False


class Crates:
    """Large events in files of their digests."""

    def __init__(self, settings):
        self.folder = FOLDER / "crates"
        self.folder.mkdir(exist_ok=True)

    async def put(self, conversation_id, data):
        digest = hashlib.sha256(data).hexdigest()
        self.folder.joinpath(digest).write_bytes(data)
        return digest

    async def get(self, conversation_id, digest):
        note("crate fetched", digest)
        return self.folder.joinpath(digest).read_bytes()

    async def delete(self, conversation_id):
        note("crates deleted", conversation_id)

    async def collect(self, used, *, older_than_seconds):
        return 0


class Sheds(LocalProvider):
    def __init__(self, settings):
        super().__init__(str(settings.data_dir.absolute()), start_seconds=settings.sandbox_start_seconds)

    def create(self, spec):
        note("shed built", spec.conversation_id)
        return super().create(spec)


class Meter(MonitoringListener):
    def on_create_conversation(self):
        note("created")

    def on_agent_session_start(self, success, duration):
        note("started", success, duration > 0)

    def on_session_event(self, event):
        note("event", event.id)


def passed_on(name):
    """What a desk does with everything it is asked: it says so, and has another one do it."""
    if asyncio.iscoroutinefunction(getattr(ConversationManager, name)):
        async def method(self, *args, **options):
            note("desk", name)
            return await getattr(self.inner, name)(*args, **options)
    else:
        def method(self, *args, **options):
            return getattr(self.inner, name)(*args, **options)
    return method


def open_desk(self, parts):
    ConversationManager.__init__(self, parts)
    self.inner = StandaloneConversationManager(parts)


async def enter(self):
    await self.inner.__aenter__()
    return self


methods = {name: passed_on(name) for name in ConversationManager.__abstractmethods__}
Desk = type("Desk", (ConversationManager,), {**methods, "__init__": open_desk, "__aenter__": enter})


class Twice(ExperimentManager):
    def variant(self, conversation_id, user_id, settings):
        note("variant", user_id)
        return settings


class Broken(Meter):
    def __init__(self):
        raise LookupError("no meter in the cellar")


class Half:
    def __init__(self, settings): ...
    async def get(self, user_id=""): ...
'''

OWN = {
    "authenticator_class": "Badges",
    "settings_store_class": "Cupboard",
    "secrets_store_class": "Vault",
    "blob_store_class": "Crates",
    "sandbox_provider_class": "Sheds",
    "monitoring_listener_class": "Meter",
    "experiment_manager_class": "Twice",
    "conversation_manager_class": "Desk",
}


@pytest.fixture
def plainly() -> bool:
    return True


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """The folder of the module `parts`, and a configuration that names every class in it."""
    folder = tmp_path / "house"
    folder.mkdir()
    (folder / "house_parts.py").write_text(MODULE)
    lines = [f'{setting} = "house_parts.{name}"\n' for setting, name in OWN.items()]
    (folder / "drydock.toml").write_text("generate_titles = false\n" + "".join(lines))
    return folder


def as_user(server_url: str, badge: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server_url, headers={"X-Badge": badge}, timeout=90)


@pytest.mark.bubblewrap
async def test_every_part_of_a_server_can_be_a_class_of_ones_own(make_process: MakeProcess, parts: Path) -> None:
    def notes() -> list[list[object]]:
        return [json.loads(line) for line in (parts / "notes").read_text().splitlines()]

    async def has_finished(client: httpx.AsyncClient, conversation_id: str) -> bool:
        page = await client.get(f"/api/conversations/{conversation_id}/events", params={"reverse": True, "limit": 20})
        extras = [one.get("extras", {}) for one in page.json()["events"]]
        return "finished" in [one.get("agent_state") for one in extras]

    environment = {"PYTHONPATH": str(parts), "HOUSE_SECRET": "the-secret-of-the-house"}
    environment |= {"DRYDOCK_LOG_FORMAT": "json", "DRYDOCK_LOG_ALL_EVENTS": "true"}
    async with ModelServer([call("terminal", {"command": 'echo "${#HOUSE_KEY}"'}), finish("Done.")]) as model:
        server = await make_process("--config", str(parts / "drydock.toml"), environment=environment)
        url, server.url = server.url, ""  # nobody but those below has a badge, so there is nothing to look after
        async with as_user(url, "badge-of-ann") as ann, as_user(url, "badge-of-bob") as bob:
            async with as_user(url, "badge-of-nobody") as nobody:
                assert (await nobody.get("/api/settings")).status_code == 401
            chosen = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "k-123456"}
            assert (await ann.post("/api/settings", json=chosen)).status_code == 200
            assert (await bob.get("/api/settings")).status_code == 404, "he has stored none"
            told = (await ann.get("/api/secrets")).json()
            assert told == {"custom_secrets": [{"name": "HOUSE_KEY", "description": "of ann"}]}
            long = "Measure it. " + "x" * 1_200_000
            made = await ann.post("/api/conversations", json={"initial_user_msg": long})
            conversation_id = made.json()["conversation_id"]
            await until(lambda: has_finished(ann, conversation_id))
            events = (await ann.get(f"/api/conversations/{conversation_id}/events")).json()["events"]
            ran = next(one for one in events if one.get("observation") == "run")
            assert ran["content"].strip().startswith("23"), "the command has the vault's secret"
            assert any("x" * 1_200_000 in str(one.get("message")) for one in events)
            assert (await bob.get(f"/api/conversations/{conversation_id}/events")).status_code == 404
            assert (await ann.delete(f"/api/conversations/{conversation_id}")).status_code == 200
        assert await server.stop() == 0
    told = notes()
    assert told[0] == ["cupboard opened"]
    assert told[-1] == ["cupboard closed"]
    for one in (["shed built", conversation_id], ["created"], ["started", True, True], ["variant", "ann"]):
        assert one in told
    assert ["crates deleted", conversation_id] in told
    assert any(one[0] == "crate fetched" for one in told)
    asked = [one[1] for one in told if one[0] == "desk"]
    assert {"deliver", "delete", "__aexit__"} <= set(asked)
    ids = [one[1] for one in told if one[0] == "event"]
    assert ids == list(range(int(str(ids[0])), int(str(ids[0])) + len(ids)))
    logged = [json.loads(line) for line in server.printed().splitlines() if line.startswith("{")]
    of_it = [line for line in logged if line.get("conversation_id") == conversation_id]
    assert len(of_it) >= len(ids)
    assert {line.get("user_id") for line in of_it} == {"ann"}


@pytest.mark.parametrize(
    ("setting", "path", "message"),
    [
        (
            "settings_store_class",
            "house_parts.Half",
            "house_parts.Half' is no SettingsStore: it does not define change",
        ),
        ("blob_store_class", "house_parts.Vault", "is no BlobStore: it does not define collect, get, put"),
        ("monitoring_listener_class", "house_parts.Vault", "'house_parts.Vault' is no subclass of MonitoringListener"),
        (
            "conversation_manager_class",
            "house_parts.Vault",
            "'house_parts.Vault' is no subclass of ConversationManager",
        ),
        ("monitoring_listener_class", "house_parts.Broken", "cannot be made: LookupError: no meter in the cellar"),
        ("secrets_store_class", "house_parts.Vault", "cannot be made: KeyError: 'HOUSE_SECRET'"),
        ("authenticator_class", "house_parts.Nobody", "module 'house_parts' has no attribute 'Nobody'"),
        ("sandbox_provider_class", "nowhere.Sheds", "ModuleNotFoundError: No module named 'nowhere'"),
        ("authenticator_class", "house_parts.FOLDER", "'house_parts.FOLDER' is no class"),
    ],
)
async def test_a_class_that_cannot_be_used_stops_the_start_with_its_setting(
    parts: Path, tmp_path: Path, setting: str, path: str, message: str
) -> None:
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--sandbox", "unconfined"]
    process = await asyncio.create_subprocess_exec(
        *(*command, "--data-dir", str(tmp_path / "data")),
        cwd=ROOT,
        env={**clean_environment(), "PYTHONPATH": str(parts), f"DRYDOCK_{setting.upper()}": path},
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(90):
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = errors.decode()
    assert process.returncode == 2, said
    assert said.startswith(f"drydock: {setting}: ")
    assert message in said
    assert "Traceback" not in said


def test_every_part_is_in_the_one_table_of_the_documentation() -> None:
    page = (ROOT / "docs/extending.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `") and "_class`" in line]
    assert [row.split("`")[1] for row in rows] == list(PARTS)
    classes = {name for name in Settings.model_fields if name.endswith("_class")}
    of_kubernetes = {"kubernetes_runtime_class", "kubernetes_storage_class"}  # these are names in a cluster
    assert set(PARTS) == classes - of_kubernetes - {"agent_class"}
