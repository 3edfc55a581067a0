"""A configuration of the first generation is read as it is, and says what means nothing here."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import pytest

from agent_core.agent.base import AgentBase
from agent_core.security.confirmation import AlwaysConfirm
from server.cli.doctor import doctor
from server.errors import ConfigurationError
from server.session.agents.models import ConversationModels
from server.session.user_settings import merge_settings
from server.settings.loading import load_settings
from server.settings.settings import Settings

WHOLE = """
[core]
workspace_base = "./workspace"
max_iterations = 42
max_budget_per_task = 1.5
default_agent = "ReadOnlyAgent"
jwt_secret = "a-secret-of-theirs"
file_store = "local"
file_store_path = "/srv/conversations"
run_as_openhands = true
runtime = "docker"
debug = true
enable_browser = false
max_concurrent_conversations = 3
conversation_max_age_seconds = 86400
file_uploads_max_file_size_mb = 7
git_user_name = "Ada"

[llm]
model = "gpt-4o"
custom_llm_provider = "openai"
api_key = "key-of-the-default"
temperature = 0.25
timeout = 0
base_url = ""
num_retries = 2
embedding_model = "local"
completion_kwargs = { metadata = {} }

[llm.cheap]
model = "openai/gpt-4o-mini"

[llm.draft_editor]
model = "openai/drafts"
correct_num = 5

[llm.seeing]
model = "openai/eyes"
for_routing = true

[model_routing]
router_name = "multimodal_router"

[agent]
enable_jupyter = false
codeact_enable_browsing = false
memory_enabled = true

[agent.ReadOnlyAgent]
llm_config = "cheap"

[agent.ReadOnlyAgent.condenser]
type = "recent"
max_events = 40

[agent.CodeActAgent]
condenser = "small"
enable_stuck_detection = true

[condenser]
type = "llm"
llm_config = "cheap"
max_size = 60

[condenser.small]
type = "amortized"
max_size = 30

[sandbox]
base_container_image = "python:3.12"
timeout = 120
user_id = 1000
use_host_network = true
close_delay = 900
remote_runtime_resource_factor = 2
volumes = "/a:/workspace"
platform = "linux/amd64"

[security]
confirmation_mode = true
security_analyzer = "llm"

[mcp]
sse_servers = ["https://a.example/sse"]
stdio_servers = [{ name = "time", command = "uvx", args = ["mcp-server-time"] }]
shttp_servers = [{ url = "https://b.example/mcp", api_key = "k" }]

[kubernetes]
namespace = "default"

[jupyter]
[extended]
[cli]
vi_mode = true
"""


def load(tmp_path: Path, text: str, **environment: str) -> Settings:
    file = tmp_path / "config.toml"
    file.write_text(text)
    file.chmod(0o600)
    return load_settings(environment={"DRYDOCK_CONFIG": str(file), **environment})


def refusal(tmp_path: Path, text: str, **environment: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text, **environment)
    return str(caught.value)


def test_a_whole_file_becomes_settings(tmp_path: Path) -> None:
    settings = load(tmp_path, WHOLE)
    assert (settings.max_iterations, settings.max_budget_per_task) == (42, 1.5)
    assert (settings.agent_class, settings.sandbox, settings.log_level) == ("ReadOnlyAgent", "docker", "debug")
    assert (str(settings.data_dir), settings.max_concurrent_conversations) == ("/srv/conversations", 3)
    assert (settings.conversation_max_age_seconds, settings.max_upload_bytes) == (86400, 7 * 1024 * 1024)
    assert (settings.enable_browsing, settings.git_user_name) == ("never", "Ada")
    assert (settings.sandbox_image, settings.sandbox_network) == ("python:3.12", "host-access")
    assert (settings.idle_unload_seconds, settings.sandbox_stop_seconds) == (900, 1)
    assert (settings.confirmation_mode, settings.security_analyzer) == (True, "llm")
    servers = settings.mcp_config
    assert servers is not None
    assert [one.url for one in (*servers.sse_servers, *servers.shttp_servers)] == [
        "https://a.example/sse",
        "https://b.example/mcp",
    ]
    assert servers.stdio_servers[0].args == ["mcp-server-time"]


def test_models_are_profiles_that_have_the_options_of_the_default_one(tmp_path: Path) -> None:
    settings = load(tmp_path, WHOLE)
    default, cheap = settings.llm_profiles["llm"], settings.llm_profiles["cheap"]
    assert (default.model, default.temperature, default.num_retries) == ("openai/gpt-4o", 0.25, 2)
    assert default.api_key is not None
    assert default.api_key.get_secret_value() == "key-of-the-default"
    assert default.litellm_extra_body == {"metadata": {}}
    assert "timeout" not in default.model_fields_set, "0 was no limit"
    assert (cheap.model, cheap.temperature, cheap.api_key) == ("openai/gpt-4o-mini", 0.25, default.api_key)
    assert settings.llm_purposes == {"draft_editor": "draft_editor", "condenser": "cheap"}
    assert settings.llm_agents == {"ReadOnlyAgent": "cheap"}
    router = settings.llm_profiles[str(settings.llm_profile)]
    assert (router.router, router.models) == ("multimodal_router", {"primary": "llm", "secondary": "seeing"})


def test_agents_have_their_options_and_condensers(tmp_path: Path) -> None:
    settings = load(tmp_path, WHOLE)
    options = settings.agent_options
    assert options is not None
    assert (options.enable_jupyter, options.enable_browsing) == (False, False)
    assert options.condenser == {"type": "llm", "max_size": 60}
    assert settings.agent_configs["ReadOnlyAgent"].condenser == {"type": "recent", "max_events": 40}
    assert settings.agent_configs["CodeActAgent"].condenser == {"type": "amortized", "max_size": 30}


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("[core] workspace_base", "workspace of its own"),
        ("[core] jwt_secret", "token"),
        ("[core] run_as_openhands", "never root"),
        ("[llm] embedding_model", "searched by its words"),
        ("[llm.draft_editor] correct_num", "max_iterations"),
        ("[agent] memory_enabled", "memory"),
        ("[agent.CodeActAgent] enable_stuck_detection", "always stopped"),
        ("[sandbox] timeout", "limit that the agent gives it"),
        ("[sandbox] user_id", "user of its own"),
        ("[sandbox] remote_runtime_resource_factor", "this server's Docker"),
        ("[sandbox] volumes", "uploads"),
        ("[sandbox] platform", "sandbox_image"),
        ("[kubernetes]", "this server's Docker"),
        ("[jupyter]", "enable_jupyter"),
        ("[extended]", "modules"),
        ("[cli]", "command line"),
    ],
)
def test_what_means_nothing_here_is_told_with_what_to_use(tmp_path: Path, key: str, instead: str) -> None:
    told = [one for one in load(tmp_path, WHOLE).remarks if one.startswith(f"{key} in ")]
    assert len(told) == 1, f"once: {told}"
    assert str(tmp_path / "config.toml") in told[0]
    assert instead in told[0]
    assert "a-secret-of-theirs" not in told[0]


def test_what_has_a_meaning_is_not_told(tmp_path: Path) -> None:
    about = " ".join(load(tmp_path, WHOLE).remarks)
    for key in ("max_iterations", "default_agent", "base_container_image", "confirmation_mode", "llm_config", "[mcp]"):
        assert key not in about.replace("until max_iterations", "")


def test_what_is_installed_in_sandboxes_and_their_variables_are_taken_as_they_are(tmp_path: Path) -> None:
    deps = "apt-get update && apt-get install -y jq"
    text = f"""
[sandbox]
runtime_container_image = "mine:1"
runtime_extra_deps = "{deps}"
runtime_startup_env_vars = {{ COLOUR = "blue" }}
force_rebuild_runtime = true
"""
    settings = load(tmp_path, text)
    assert (settings.sandbox_image, settings.runtime_extra_deps) == ("mine:1", deps)
    assert settings.runtime_startup_env_vars["COLOUR"].get_secret_value() == "blue"
    [remark] = settings.remarks
    assert "[sandbox] force_rebuild_runtime in " in remark
    assert "runtime_extra_deps" in remark


def test_the_doctor_tells_it_too(tmp_path: Path) -> None:
    settings = load(
        tmp_path, f'[core]\ncache_dir = "/tmp/cache"\nfile_store_path = "{tmp_path}/data"\nruntime = "local"\n'
    )
    out = io.StringIO()
    doctor(settings, out)
    assert "--   config      [core] cache_dir in " in out.getvalue()


def test_nothing_of_it_is_logged_for_a_file_of_our_own(tmp_path: Path) -> None:
    assert load(tmp_path, 'llm_model = "openai/x"\n[agent_options]\nenable_jupyter = false\n').remarks == ()


@pytest.mark.parametrize("kind", ["noop", "observation_masking", "recent", "llm", "amortized", "llm_attention"])
def test_each_condenser_can_be_chosen(tmp_path: Path, kind: str) -> None:
    options = load(tmp_path, f'[condenser]\ntype = "{kind}"\n').agent_options
    assert options is not None
    assert options.condenser == {"type": kind}


@pytest.mark.parametrize("kind", ["structured", "browser_output_masking", "conversation_window"])
def test_a_pipeline_of_condensers_can_be_chosen(tmp_path: Path, kind: str) -> None:
    text = f'[llm.c]\nmodel = "openai/x"\n[condenser]\ntype = "pipeline"\n[[condenser.condensers]]\ntype = "{kind}"\n'
    settings = load(tmp_path, text + 'llm_config = "c"\n')
    options = settings.agent_options
    assert options is not None
    assert options.condenser == {"type": "pipeline", "condensers": [{"type": kind}]}
    assert settings.llm_purposes == {"condenser": "c"}


def test_the_environment_and_options_count_before_the_file(tmp_path: Path) -> None:
    assert load(tmp_path, "[core]\nmax_iterations = 4", DRYDOCK_MAX_ITERATIONS="9").max_iterations == 9


def test_the_environments_model_counts_before_the_files(tmp_path: Path) -> None:
    text = """
[llm]
model = "openai/of-the-file"
api_key = "key-of-the-file"
temperature = 0.5
[llm.other]
model = "openai/other"
"""
    given = {"LLM_MODEL": "anthropic/given", "LLM_API_KEY": "given-key", "LLM_BASE_URL": "http://given.example/v1"}
    settings = load(tmp_path, text, **given)
    llm = ConversationModels(None, settings).present()
    assert (llm.model, llm.base_url, llm.temperature) == ("anthropic/given", "http://given.example/v1", 0.5)
    assert llm.secrets == ["given-key"]
    assert settings.llm_profiles["other"].secrets == ["key-of-the-file"]
    assert load(tmp_path, text, DRYDOCK_LLM_PROFILES='{"a": {"model": "openai/a"}}', DRYDOCK_LLM_PROFILE="a")


def test_a_key_of_the_environment_is_for_the_files_models_of_its_provider(tmp_path: Path) -> None:
    text = '[llm]\nmodel = "gpt-a"\n[llm.b]\nmodel = "openai/b"\n[llm.c]\nmodel = "anthropic/c"\n'
    models = ConversationModels(None, load(tmp_path, text, LLM_API_KEY="given-key"))
    assert [models.llm(name).secrets for name in ("llm", "b", "c")] == [["given-key"], ["given-key"], []]


def test_routers_of_the_file_and_of_its_agents_are_profiles_over_the_models_of_each(tmp_path: Path) -> None:
    text = """
[llm]
model = "openai/x"
[llm.large]
model = "openai/large"
[llm.small]
model = "openai/small"
for_routing = true
[model_routing]
router_name = "multimodal_router"
[agent]
llm_config = "large"
"""
    agents = ("BrowsingAgent", "CodeActAgent", "DummyAgent", "LocAgent")
    routed = "".join(f'[agent.{name}.model_routing]\nrouter_name = "random_router"\n' for name in agents)
    settings = load(tmp_path, text + routed)
    default = settings.llm_profiles[str(settings.llm_profile)]
    assert (default.router, default.models) == ("multimodal_router", {"primary": "large", "secondary": "small"})
    of_agents = [settings.llm_profiles[settings.llm_agents[name]] for name in agents]
    assert {(one.router, one.models["primary"]) for one in of_agents} == {("random_router", "llm")}


def test_what_two_keys_say_of_the_body_is_joined_and_whole_numbers_may_be_written_as_others(tmp_path: Path) -> None:
    text = '[llm]\nmodel = "x"\ntop_k = 40.0\nlitellm_extra_body = {a = 1, c = 1}\ncompletion_kwargs = {b = 2, c = 2}\n'
    profile = load(tmp_path, text).llm_profiles["llm"]
    assert (profile.top_k, profile.litellm_extra_body) == (40, {"a": 1, "b": 2, "c": 1})


@pytest.mark.parametrize(
    ("keys", "unloads", "stops"),
    [
        ("close_delay = 300", 300, 1),
        ("close_delay = 0", 0, 1),
        ("close_delay = 300\nkeep_runtime_alive = true", 300, 0),
        ("close_delay = 300\npause_closed_runtimes = true", 300, 3600),
        ("keep_runtime_alive = true", 3600, 0),
        ("keep_runtime_alive = false\npause_closed_runtimes = false", 3600, 3600),
    ],
)
def test_an_idle_conversation_is_closed_with_its_sandbox(tmp_path: Path, keys: str, unloads: int, stops: int) -> None:
    settings = load(tmp_path, f"[sandbox]\n{keys}\n")
    assert (settings.idle_unload_seconds, settings.sandbox_stop_seconds, settings.remarks) == (unloads, stops, ())


def test_agents_of_a_module_that_the_environment_names_have_their_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sailing_agents.py").write_text(
        "from agent_core.agent.codeact import CodeActAgent\nclass SailingAgent(CodeActAgent):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(AgentBase, "agents", dict(AgentBase.agents))
    text = "[agent.SailingAgent]\nenable_jupyter = false\n"
    settings = load(tmp_path, text, DRYDOCK_MODULES="sailing_agents")
    assert settings.agent_configs["SailingAgent"].enable_jupyter is False
    assert settings.remarks == ()
    told = refusal(tmp_path, text, DRYDOCK_MODULES="no_such_module")
    assert "DRYDOCK_MODULES" in told
    assert "no_such_module" in told


def test_a_class_of_the_files_own_agent_is_told_where_to_go(tmp_path: Path) -> None:
    told = load(tmp_path, '[agent.MyAgent]\nclasspath = "mine.MyAgent"\n').remarks
    assert any("[agent.MyAgent] classpath in " in one and "modules" in one for one in told)


def test_a_key_without_a_model_belongs_to_the_servers_own(tmp_path: Path) -> None:
    settings = load(tmp_path, '[llm]\napi_key = "k"\nbase_url = "http://127.0.0.1:1/v1"\n', LLM_MODEL="openai/x")
    assert settings.llm_api_key is not None
    assert (settings.llm_base_url, settings.llm_profiles) == ("http://127.0.0.1:1/v1", {})


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("[core]\nmax_iterations = -1", "[core] max_iterations in", "-1"),
        ('[core]\nmax_iterations = "many"', "[core] max_iterations in", "many"),
        ('[core]\ndefault_agent = "Nobody"', "[core] default_agent in", "Nobody"),
        ('[security]\nsecurity_analyzer = "oracle"', "[security] security_analyzer in", "oracle"),
        ('[llm]\nmodel = "x"\ntemperature = "hot"', "[llm] temperature in", "number"),
        ('[llm]\nmodel = "x"\nbase_url = "nowhere"', "[llm] base_url in", "address"),
        ('[agent]\nenable_jupyter = "yes"', "[agent] enable_jupyter in", "boolean"),
        ('[agent]\ncodeact_enable_jupyter = "yes"', "[agent] codeact_enable_jupyter in", "boolean"),
        ('[agent.CodeActAgent]\nenable_cmd = "yes"', "[agent.CodeActAgent] enable_cmd in", "boolean"),
        ('[llm."gpt-4.1"]\nmodel = "x"\ntop_p = "x"', "[llm.gpt-4.1] top_p in", "number"),
        ('[llm]\nmodel = "x"\ncompletion_kwargs = 4', "[llm] completion_kwargs in", "dictionary"),
        ('[llm."a b"]\nmodel = "x"', "[llm.a b] in", "cannot name a profile"),
        ('[llm]\nmodel = "x"\ndraft_editor = "y"', "[llm] draft_editor in", "no profile 'y'"),
        ('[llm]\nmodel = "x"\ncustom_llm_provider = 3', "[llm] custom_llm_provider in", "in quotes"),
        ('[llm.a]\nmodel = "x"\nfor_routing = "yes"', "[llm.a] for_routing in", "true or false"),
        ('[core]\nenable_browser = "no"', "[core] enable_browser in", "true or false"),
        ('[sandbox]\nuse_host_network = "yes"', "[sandbox] use_host_network in", "true or false"),
        ('[[llm]]\nmodel = "x"', "llm in", "write [llm]"),
        ('[llm.cheap]\nmodel = "x"\n[agent.CodeActAgent]\nllm_config = "cheep"', "llm_config", "[llm.cheap]"),
        ("[agent.CodeActAgnt]\nenable_cmd = true", "[agent.CodeActAgnt]", "[agent.CodeActAgent]"),
        ('[condenser]\ntype = "magic"', "[condenser] type in", "amortized"),
        ('[agent.CodeActAgent]\ncondenser = "gone"', "[agent.CodeActAgent] condenser in", "gone"),
        ("[llm.cheap]\ntemperature = 0.1", "[llm.cheap] in", "names no model"),
        ('[condenser]\ntype = "llm"\nmax_sze = 9', "[condenser] max_sze in", "did you mean 'max_size'?"),
        ('[mcp]\nsse_servers = [{ur = "https://a.example"}]', "[mcp] sse_servers.0.ur in", "sse_servers.0.url"),
        ('[model_routing]\nrouter_name = "random_router"', "[model_routing] in", "model of [llm]"),
        (
            '[llm]\nmodel = "x"\ntop_k = 0.5\n[model_routing]\nrouter_name = "random_router"',
            "[llm] top_k in",
            "integer",
        ),
        (
            '[llm]\nmodel = "x"\n[model_routing]\nrouter_name = "random"',
            "[model_routing] router_name in",
            "'random' is no router",
        ),
        (
            '[llm]\nmodel = "x"\n[model_routing]\nrouter_name = "random_router"\nllms_for_routing = {a = "y"}',
            "[model_routing] llms_for_routing.a in",
            "no profile 'y'",
        ),
        (
            '[condenser.small]\ntype = "llm"\nmax_size = "x"\n[agent.CodeActAgent]\ncondenser = "small"',
            "[condenser.small] max_size in",
            "integer",
        ),
        ("[core]\nmax_iteratons = 3", "[core] max_iteratons", "[core] max_iterations"),
        ("[sandbx]\ntimeout = 3\n[core]\n", "[sandbx]", "[sandbox]"),
        ('[llm]\nmodl = "x"', "[llm] modl", "[llm] model"),
        ("port = 3\n[core]\nmax_iterations = 3", "'port' is a setting of this server", "one form or the other"),
        ('core = 3\n[llm]\nmodel = "x"', "core in", "write [core]"),
    ],
)
def test_a_wrong_value_or_a_misspelled_key_is_refused_with_its_place(
    tmp_path: Path, text: str, place: str, problem: str
) -> None:
    told = refusal(tmp_path, text)
    assert place in told
    assert problem in told
    assert "config.toml" in told


def test_a_wrong_value_is_told_once_where_it_stands_whoever_inherits_it(tmp_path: Path) -> None:
    told = refusal(tmp_path, '[llm]\nmodel = "x"\ntemperature = "hot"\n[llm.a]\nmodel = "a"\n[llm.b]\nmodel = "b"\n')
    assert told == f"[llm] temperature in {tmp_path / 'config.toml'}: Input should be a valid number"
    given = refusal(tmp_path, '[llm]\nmodel = "x"\nbase_url = "http://a.example"\n', LLM_BASE_URL="nowhere")
    assert given.startswith("LLM_BASE_URL: ")
    assert "[llm]" not in given


def test_what_nobody_knows_is_told_and_means_nothing(tmp_path: Path) -> None:
    settings = load(tmp_path, "[core]\nzzzzzzzz = 1\n[qqqqqqqq]\na = 1\n")
    assert [one.partition(" in ")[0] for one in settings.remarks] == ["[qqqqqqqq]", "[core] zzzzzzzz"]


def test_a_prompt_of_the_originals_is_told_and_one_that_is_here_counts(tmp_path: Path) -> None:
    text = '[agent]\nsystem_prompt_filename = "system_prompt_interactive.j2"\n[agent.CodeActAgent]\n'
    settings = load(tmp_path, text + 'system_prompt_filename = "system_prompt_long_horizon.j2"\n')
    assert settings.agent_options is None
    assert settings.agent_configs["CodeActAgent"].system_prompt_filename == "system_prompt_long_horizon.j2"
    [told] = settings.remarks
    assert told.startswith("[agent] system_prompt_filename in ")
    assert "agent_options.system_prompt replaces it" in told


@pytest.mark.parametrize("name", ["invariant", "grayswan"])
def test_an_analyzer_of_the_originals_is_told_and_everything_is_asked_about(tmp_path: Path, name: str) -> None:
    settings = load(tmp_path, f'[security]\nconfirmation_mode = true\nsecurity_analyzer = "{name}"\n')
    assert merge_settings(None, settings).policy == AlwaysConfirm()
    [told] = settings.remarks
    assert f"means nothing here: {name} is not here; llm, rules and rules+llm are" in told


def test_a_key_in_a_file_that_everybody_reads_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[llm]\nmodel = "x"\napi_key = "sk-secret-of-mine"\n')
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        load_settings(config_file=file)
    assert "chmod 600" in caplog.text
    assert "sk-secret" not in caplog.text


def test_no_secret_is_repeated(tmp_path: Path) -> None:
    told = refusal(tmp_path, '[llm]\nmodel = "x"\napi_key = "sk-se\\ncret"\n')
    assert "sk-se" not in told


def test_tables_that_are_none_are_refused_and_end_nothing(tmp_path: Path) -> None:
    values: list[Any] = [
        "[agent]\ncondenser = 3",
        '[core]\nruntime = ["docker"]',
        '[llm]\nmodel = "x"\ncompletion_kwargs = {a = 1}\nlitellm_extra_body = 4',
        '[llm]\nmodel = "x"\n[model_routing]\nrouter_name = ["random_router"]',
        '[llm]\nmodel = "x"\n[agent]\nllm_config = ["x"]\n[model_routing]\nrouter_name = "random_router"',
        "[model_routing]\nllms_for_routing = 3",
        '[condenser]\ntype = "pipeline"\ncondensers = [3]',
    ]
    for text in values:
        with pytest.raises(ConfigurationError):
            load(tmp_path, text)


PUBLISHED = """
[core]
workspace_base = "./workspace"
[llm]
api_key = "your-api-key"
model = "gpt-4o"
[llm.gpt4o-mini]
api_key = "your-api-key"
model = "gpt-4o"
[agent]
[agent.RepoExplorerAgent]
llm_config = "gpt3"
[sandbox]
[security]
[condenser]
type = "noop"
"""
"""What stands in the published example without a sign before it: an agent and a model that there are not, too."""


def test_the_published_example_is_read_and_what_it_names_in_vain_is_told(tmp_path: Path) -> None:
    settings = load(tmp_path, PUBLISHED)
    assert sorted(settings.llm_profiles) == ["gpt4o-mini", "llm"]
    assert [one.partition(" in ")[0] for one in settings.remarks] == [
        "[core] workspace_base",
        "[agent.RepoExplorerAgent]",
    ]
    named = load(tmp_path, '[llm]\nmodel = "x"\n[agent.CodeActAgent]\nllm_config = "qqq"\n')
    assert "[agent.CodeActAgent] llm_config: a [llm.qqq] in " in named.remarks[0]
    assert named.llm_agents == {}
