"""A server whose configuration is a first-generation file does what the file says."""

from __future__ import annotations

from pathlib import Path

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import finish, say
from server.settings.loading import load_settings
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer

FILE = """
[core]
default_agent = "CodeActAgent"
[llm]
model = "openai/strong"
base_url = "{url}"
api_key = "key-of-the-file"
temperature = 0.25
completion_kwargs = {{ metadata = {{}} }}
[llm.cheap]
model = "openai/cheap"
[agent.CodeActAgent]
llm_config = "cheap"
enable_think = false
[security]
confirmation_mode = false
"""


async def test_the_agent_of_the_file_has_its_model_its_options_and_its_tools(
    make_server: MakeServer, tmp_path: Path
) -> None:
    async with ModelServer(lambda request: finish("One.") if request.json.get("tools") else say("Title")) as model:
        file = tmp_path / "config.toml"
        file.write_text(FILE.format(url=model.url))
        file.chmod(0o600)
        loaded = load_settings(config_file=file)
        given = {name: getattr(loaded, name) for name in loaded.model_fields_set}
        async with make_server(generate_titles=False, **given) as server:
            await server.create(initial_user_msg="Begin.")

            async def asked() -> bool:
                return bool(model.requests)

            await server.until(asked, seconds=MODEL_SECONDS)
        request = model.requests[0]
    assert (request.json["model"], request.json["temperature"]) == ("cheap", 0.25)
    assert request.api_key == "key-of-the-file"
    assert "agent:CodeActAgent" in request.json["metadata"]["tags"]
    offered = {tool["function"]["name"] for tool in request.json["tools"]}
    assert "terminal" in offered
    assert "think" not in offered
