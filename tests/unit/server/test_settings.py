from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agent_core.events.event import Event
from agent_core.runtime.docker.docker_host import DockerHost, EngineTls
from server.cli import main
from server.cli.settings_reference import render
from server.errors import ConfigurationError
from server.listeners import EventListener
from server.settings.docker_hosts import hosts_of
from server.settings.loading import CLIENT_VARIABLES, load_settings
from server.settings.running_server import CA_VARIABLE, KEY_VARIABLES, URL_VARIABLE
from server.settings.settings import Settings

ROOT = Path(__file__).parents[3]


def test_without_anything_the_defaults_serve_on_loopback_with_the_demo() -> None:
    settings = load_settings()
    assert (settings.host, settings.port, settings.sandbox) == ("127.0.0.1", 3000, "auto")
    assert settings.model_name == "demo/tour"
    assert settings.token is None


def test_options_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "drydock.toml"
    file.write_text('port = 1\nhost = "127.0.0.2"\nsandbox = "local"\n')
    settings = load_settings({"port": 3, "host": None}, {"DRYDOCK_PORT": "2", "DRYDOCK_HOST": "127.0.0.3"}, file)
    assert (settings.port, settings.host, settings.sandbox) == (3, "127.0.0.3", "local")


class FirstListener(EventListener):
    listener_name = "first-of-tests"

    async def on_event(self, conversation_id: str, event: Event) -> None: ...


class SecondListener(FirstListener):
    listener_name = "second-of-tests"


TWO_VALUES: dict[str, tuple[object, object]] = {
    "max_concurrent_conversations": (2, 3),
    "max_working_conversations": (4, 5),
    "max_sandboxes": (6, 7),
    "max_connections": (100, 200),
    "host": ("127.0.0.2", "127.0.0.3"),
    "max_memory_mb": (2000, 3000),
    "port": (4001, 4002),
    "data_dir": ("a", "b"),
    "page": ("a", "b"),
    "base_path": ("/drydock", "/tools/drydock"),
    "tls_certificate": ("a", "b"),
    "tls_key": ("a", "b"),
    "token": ("first-token-of-this-server", "second-token-of-this-server"),
    "preview_domain": ("a.example", "none"),
    "allowed_hosts": (["a.example"], ["b.example", "c.example"]),
    "trusted_proxies": (["127.0.0.1"], ["10.0.0.0/8", "fd00::1"]),
    "otel_told_hosts": (["a.internal"], ["b.internal"]),
    "webhook_hosts": (["a.internal"], ["b.internal", "*"]),
    "mcp_oauth_hosts": (["a.internal"], ["b.internal", "*"]),
    "allowed_origins": (["https://a.example"], ["https://b.example", "http://c.example"]),
    "conversation_manager_class": ("a.A", "b.B"),
    "redis_url": ("redis://:one@10.0.0.1:6379/0", "rediss://:two@10.0.0.1:6379/0"),
    "cluster_url": ("http://10.0.0.1:3000", "http://10.0.0.2:3000"),
    "experiment_manager_class": ("a.E", "b.E"),
    "users": ("accounts", "one"),
    "oidc_issuer": ("https://a.example/", "http://localhost:8080/realms/b"),
    "oidc_client_id": ("a", "b"),
    "oidc_client_secret": ("first-secret", "second-secret"),
    "oidc_scopes": (["openid"], ["openid", "groups"]),
    "oidc_groups_claim": ("roles", "realm_access.roles"),
    "user_header": ("Remote-User", "X-Forwarded-User"),
    "user_groups_header": ("Remote-Groups", "X-Forwarded-Groups"),
    "user_header_from": (["10.0.0.5"], ["10.0.0.6", "fd00::/64"]),
    "group_roles": ('{"a": "user"}', '{"b": "administrator", "c": "viewer"}'),
    "default_role": ("user", "viewer"),
    "authenticator_class": ("a.A", "b.B"),
    "settings_store_class": ("a.A", "b.B"),
    "secrets_store_class": ("a.A", "b.B"),
    "blob_store_class": ("a.A", "b.B"),
    "sandbox_provider_class": ("a.A", "b.B"),
    "monitoring_listener_class": ("a.A", "b.B"),
    "agent_class": ("PlanningAgent", "LocAgent"),
    "modules": (["json"], ["json", "csv"]),
    "event_listeners": (["first-of-tests"], ["first-of-tests", "second-of-tests"]),
    "max_budget_per_task": (1.5, 2.5),
    "sandbox": ("local", "docker"),
    "kubernetes_context": ("a", "b"),
    "kubernetes_namespace": ("a", "b"),
    "kubernetes_storage_class": ("a", "b"),
    "kubernetes_runtime_class": ("gvisor", "kata"),
    "kubernetes_pull_policy": ("Always", "Never"),
    "kubernetes_pull_secrets": (["a"], ["b", "c"]),
    "kubernetes_node_labels": (["a=1"], ["b=2", "c=3"]),
    "kubernetes_destinations": (["203.0.113.0/24"], ["198.51.100.7", "2001:db8::/32"]),
    "docker_hosts": ('{"a": {"url": "unix:///a"}}', '{"b": {"url": "ssh://b", "draining": true}}'),
    "sandbox_image": ("a", "b"),
    "sandbox_network": ("none", "internal"),
    "sandbox_images": (["a:*"], ["b", "c"]),
    "sandbox_network_max": ("full", "host-access"),
    "sandbox_memory_max_mb": (5000, 6000),
    "sandbox_cpus_max": (3, 4.5),
    "sandbox_processes_max": (600, 700),
    "sandbox_disk_max_mb": (0, 20000),
    "sandbox_start_max_seconds": (70, 80),
    "enable_browsing": ("always", "never"),
    "llm_model": ("a/a", "b/b"),
    "llm_api_key": ("first-key", "second-key"),
    "llm_base_url": ("http://a.example", "http://b.example"),
    "llm_profiles": ('{"p": {"model": "a/a"}}', '{"p": {"model": "b/b", "temperature": 0.5}}'),
    "llm_profile": ("one", "two"),
    "llm_purposes": ('{"title": "one"}', '{"title": "two"}'),
    "llm_agents": ('{"LocAgent": "one"}', '{"LocAgent": "two"}'),
    "agent_configs": ('{"LocAgent": {"enable_cmd": false}}', '{"DummyAgent": {"preset": "gpt5"}}'),
    "mcp_config": ('{"sse_servers": ["http://a.example"]}', '{"sse_servers": ["http://b.example"]}'),
    "git_hosts": ('{"github": "https://a.example"}', '{"gitlab": "b.example:8080/git"}'),
    "mcp_programs": ("host", "never"),
    "search_api_key": ("tvly-first", "tvly-second"),
    "search_url": ("http://a.example", "http://b.example"),
    "security_analyzer": ("llm", "rules+llm"),
    "git_user_name": ("Ann", "Bob"),
    "git_user_email": ("ann@example.com", "bob@example.com"),
    "runtime_extra_deps": ("true", "false"),
    "runtime_startup_env_vars": ('{"A": "1"}', '{"B": "2"}'),
    "agent_options": ('{"enable_cmd": false}', '{"preset": "gpt5"}'),
    "system_message_suffix": ("Be brief.", "Be thorough."),
    "user_message_suffix": ("Think first.", "Ask first."),
    "disabled_skills": (["releases"], ["releases", "boats"]),
    "registered_marketplaces": (["/srv/skills"], ["https://git.example/a.git", "/srv/skills"]),
    "marketplace_path": ("a.json", "lists/b.json"),
    "plugins": ([f"https://a.example/a.git#{'a' * 40}"], [f"https://a.example/a.git#{'b' * 40}:deep/folder"]),
    "plugin_hosts": (["a.internal"], ["b.internal", "*"]),
    "database_url": ("sqlite:///a", "sqlite:///b"),
    "database_synchronous": ("NORMAL", "FULL"),
    "log_level": ("debug", "error"),
    "log_format": ("json", "text"),
}
"""Of settings that are neither numbers nor switches."""


NEEDED: dict[str, dict[str, object]] = {
    field: {"llm_profiles": {"one": {"model": "a/a"}, "two": {"model": "b/b"}}}
    for field in ("llm_profile", "llm_purposes", "llm_agents")
}
NEEDED["tls_key"] = {"tls_certificate": "c"}
NEEDED["oidc_issuer"] = {"users": "accounts", "oidc_client_id": "c", "default_role": "user"}
_BY_PROXY: dict[str, object] = {"users": "accounts", "default_role": "user"}
NEEDED["user_header"] = {**_BY_PROXY, "user_header_from": ["10.0.0.5"]}
NEEDED["user_groups_header"] = {**NEEDED["user_header"], "user_header": "X-User"}
NEEDED["user_header_from"] = {**_BY_PROXY, "user_header": "X-User"}
"""Other settings without which some cannot be."""


def two_values(field: str) -> tuple[object, object]:
    default = Settings.model_fields[field].default
    if field in TWO_VALUES:
        return TWO_VALUES[field]
    return (not default, default) if isinstance(default, bool) else (default + 1, default + 2)


def spelled(value: object, join: str) -> str:
    """A value as a variable of the environment carries it."""
    return join.join(map(str, value)) if isinstance(value, list) else str(value)


@pytest.mark.parametrize("field", Settings.model_fields)
def test_every_setting_comes_from_the_file_and_the_environment_wins(tmp_path: Path, field: str) -> None:
    first, second = two_values(field)
    file = tmp_path / "drydock.toml"
    needed = NEEDED.get(field, {})
    plain = {name: value if isinstance(value, str | list) else json.dumps(value) for name, value in needed.items()}
    lines = [f"{name} = {json.dumps(value)}" for name, value in plain.items()]
    file.write_text("\n".join([*lines, f"{field} = {json.dumps(first)}"]))  # what TOML and JSON have in common
    from_file = getattr(load_settings(config_file=file), field)
    assert from_file == getattr(Settings.model_validate({**needed, field: first}), field)
    environment = {f"DRYDOCK_{field.upper()}": spelled(second, ",")}
    from_environment = getattr(load_settings(None, environment, file), field)
    assert from_environment == getattr(Settings.model_validate({**needed, field: second}), field) != from_file


@pytest.mark.parametrize("option", ["host", "port", "data_dir", "sandbox", "page"])
def test_every_option_of_the_command_wins_over_the_environment(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two_values(option)
    monkeypatch.setenv(f"DRYDOCK_{option.upper()}", str(first))
    (tmp_path / "drydock.toml").write_text("")
    seen: list[Settings] = []

    def command(settings: Settings, out: object) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr("server.cli.doctor.doctor", command)
    flag = f"--{option.replace('_', '-')}"
    assert main(["doctor", flag, str(second), "--config", str(tmp_path / "drydock.toml")]) == 0
    assert getattr(seen[0], option) == getattr(Settings.model_validate({option: second}), option)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nan", "should be a finite number"),
        ("inf", "should be a finite number"),
        ("-1", "should be greater than or equal to 0"),
        ("soon", "should be a valid number"),
    ],
)
def test_a_time_is_a_finite_number_of_seconds(value: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"DRYDOCK_IDLE_UNLOAD_SECONDS: '{value}': Input {message}"):
        load_settings(None, {"DRYDOCK_IDLE_UNLOAD_SECONDS": value})


def test_a_folder_may_be_named_from_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    settings = load_settings(None, {"DRYDOCK_DATA_DIR": "~/drydock", "DRYDOCK_PAGE": "~/page"})
    assert (settings.data_dir, settings.page) == (Path("/home/ann/drydock"), Path("/home/ann/page"))


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "drydock.toml"
    file.write_text('allowed_hosts = ["a.example", "b.example"]\n')
    settings = load_settings(None, {"DRYDOCK_CONFIG": str(file)})
    assert settings.allowed_hosts == ("a.example", "b.example")


def test_the_models_common_variables_are_read_and_the_prefixed_ones_win() -> None:
    environment = {"LLM_MODEL": "openai/a", "LLM_API_KEY": "key-1", "LLM_BASE_URL": "", "DRYDOCK_LLM_MODEL": "openai/b"}
    settings = load_settings(None, environment)
    assert settings.llm_model == "openai/b"
    assert settings.llm_base_url is None
    assert settings.llm_api_key is not None
    assert settings.llm_api_key.get_secret_value() == "key-1"


def test_an_address_that_cannot_be_is_told_by_its_variable_and_without_the_password_in_it() -> None:
    with pytest.raises(ConfigurationError, match=r"LLM_BASE_URL: the port is a number") as refused:
        load_settings(None, {"LLM_BASE_URL": "http://user:do-not-tell@a.example:0"})
    assert "do-not-tell" not in str(refused.value)


def test_the_protocols_own_variables_are_read() -> None:
    environment = {
        "SESSION_API_KEY": "a-token-that-is-long-enough",
        "ALLOW_SET_CONVERSATION_ID": "1",
        "PERMITTED_CORS_ORIGINS": "http://localhost:3001",
        "LOG_ALL_EVENTS": "true",
    }
    settings = load_settings(None, environment)
    assert settings.token is not None
    assert settings.token.get_secret_value() == "a-token-that-is-long-enough"
    assert settings.allow_set_conversation_id
    assert settings.allowed_origins == ("http://localhost:3001",)
    assert settings.log_all_events
    assert load_settings(None, {"LOG_ALL_EVENTS": "1"}).log_all_events
    with pytest.raises(ConfigurationError, match="LOG_ALL_EVENTS: 'often': Input should be a valid boolean"):
        load_settings(None, {"LOG_ALL_EVENTS": "often"})


def test_a_key_without_its_certificate_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"DRYDOCK_TLS_KEY.*set tls_certificate, too"):
        load_settings(None, {"DRYDOCK_TLS_KEY": "key.pem"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"users": "one"}, "oidc_issuer.*set users = .accounts., too"),
        ({"oidc_issuer": "http://sign-in.example.com"}, "oidc_issuer.*: .*over https alone"),
        ({"oidc_issuer": "https://ann:pw@a.example"}, "oidc_issuer.*: an issuer is an address without a password"),
        ({"oidc_issuer": "https://a.example/.well-known/openid-configuration"}, "oidc_issuer.*: an issuer"),
        ({"oidc_client_id": ""}, "oidc_client_id.*: is missing"),
        ({"group_roles": {}}, "default_role.*: nobody could sign in by oidc_issuer"),
        ({"group_roles": {"a": "root"}}, "group_roles"),
        ({"user_header": "Remote-User"}, "user_header_from.*: is missing"),
        ({"user_header": "Remote-User", "user_header_from": ["0.0.0.0/0"]}, "is everybody"),
        ({"user_header": "Remote-User", "user_header_from": ["::/0"]}, "is everybody"),
        ({"user_header": "Remote_User", "user_header_from": ["10.0.0.5"]}, "is no name of a header"),
        ({"user_header": "Cookie", "user_header_from": ["10.0.0.5"]}, "means something else already"),
        ({"user_header": "X-Forwarded-For", "user_header_from": ["10.0.0.5"]}, "means something else already"),
        ({"user_header_from": ["10.0.0.5"]}, "of no use without user_header"),
        ({"user_groups_header": "Remote-Groups"}, "of no use without user_header"),
        (
            {"user_header": "Remote-User", "user_groups_header": "remote-user", "user_header_from": ["10.0.0.5"]},
            "is the header that names users",
        ),
    ],
)
def test_ways_to_sign_in_elsewhere_that_cannot_be_are_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    usual = {"users": "accounts", "oidc_issuer": "https://a.example", "oidc_client_id": "drydock"}
    chosen = {**usual, "group_roles": {"a": "user"}, **changes}
    plain = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in chosen.items()}
    file = tmp_path / "drydock.toml"
    file.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in plain.items()))
    with pytest.raises(ConfigurationError, match=message) as refused:
        load_settings(config_file=file)
    assert ":pw@" not in str(refused.value)


def test_lists_are_written_with_commas_in_the_environment() -> None:
    settings = load_settings(None, {"DRYDOCK_ALLOWED_ORIGINS": "https://A.example/, http://b.example:8080"})
    assert settings.allowed_origins == ("https://a.example", "http://b.example:8080")


def test_what_a_running_server_is_found_by_is_no_setting_and_no_mistake() -> None:
    known = {URL_VARIABLE: "http://h:1", KEY_VARIABLES[0]: "k", CA_VARIABLE: "authority.pem"}
    assert tuple(known) == CLIENT_VARIABLES
    assert load_settings(environment=known) == load_settings(environment={})


def test_the_home_that_programs_share_is_no_setting_and_no_mistake() -> None:
    assert load_settings(environment={"DRYDOCK_HOME": "/home/ann/models"}) == load_settings(environment={})


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"DRYDOCK_PROT": "1"}, "DRYDOCK_PROT is no setting; did you mean DRYDOCK_PORT?"),
        ({"DRYDOCK_PORT": "many"}, "DRYDOCK_PORT: 'many': Input should be a valid integer"),
        ({"DRYDOCK_SANDBOX": "dokcer"}, "DRYDOCK_SANDBOX: 'dokcer': Input should be 'auto', 'docker', 'local'"),
        ({"DRYDOCK_ALLOWED_ORIGINS": "a.example"}, "write it with its scheme"),
        (
            {"DRYDOCK_TOKEN": "short"},
            "DRYDOCK_TOKEN: a token has at least 24 printable ASCII characters; `auto` makes a good one",
        ),
        ({"DRYDOCK_TOKEN": "short" + " " * 30}, "a token has at least 24 printable ASCII characters"),
        ({"DRYDOCK_TRUSTED_PROXIES": "proxy.example"}, "is no address and no network"),
        (
            {"DRYDOCK_SANDBOX": "local", "DRYDOCK_RUNTIME_EXTRA_DEPS": "true"},
            "DRYDOCK_RUNTIME_EXTRA_DEPS: 'true': local sandboxes have no image to install in; leave it out",
        ),
        ({"DRYDOCK_CONFIG": "/does/not/exist.toml"}, "cannot read the configuration file /does/not/exist.toml"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_name_and_the_fix(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(None, environment)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1\n", "there is no setting 'prot'; did you mean port?"),
        ("something_else_altogether = 1\n", "docs/configuration.md lists all settings"),
        ("port = \n", "is not valid TOML"),
        ("port = [1]\n", "port in "),
        ("sandbox_images = 3\n", ": 3: Input should be a list"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "drydock.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(config_file=file)
    assert message in str(caught.value)


@pytest.mark.parametrize("variable", ["LLM_API_KEY", "DRYDOCK_SEARCH_API_KEY"])
def test_a_key_that_no_header_takes_is_refused_and_the_end_of_a_line_is_none_of_it(variable: str) -> None:
    with pytest.raises(ConfigurationError, match="a key is one line") as caught:
        load_settings(None, {variable: "sk-do\nnot-tell"})
    assert variable in str(caught.value)
    assert "not-tell" not in str(caught.value)
    settings = load_settings(None, {variable: " sk-key\n"})
    assert "sk-key" in [key.get_secret_value() for key in (settings.llm_api_key, settings.search_api_key) if key]


def test_a_refused_secret_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(None, {"DRYDOCK_TOKEN": "sécret-tökén-of-enough-characters"})
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    "environment",
    [
        {"DRYDOCK_PLUGINS": f"https://user:do-not-tell@host.example/a/b.git#{'a' * 40}"},
        {"DRYDOCK_AGENT_OPTIONS": '{"critic": {"kind": "Nope", "api_key": "do-not-tell"}}'},
        {"DRYDOCK_GIT_HOSTS": '{"github": "https://user:do-not-tell@git.example"}'},
    ],
)
def test_what_may_hold_a_secret_is_not_repeated_whatever_the_setting(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(environment=environment)
    assert next(iter(environment)) in str(caught.value)
    assert "do-not-tell" not in str(caught.value)


def test_what_is_nested_without_end_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="DRYDOCK_LLM_PROFILES: is not valid JSON"):
        load_settings(environment={"DRYDOCK_LLM_PROFILES": "[" * 100_000})
    file = tmp_path / "deep.toml"
    file.write_text("a = " + "[" * 5_000)
    with pytest.raises(ConfigurationError, match="is nested too deeply"):
        load_settings(config_file=file)


def test_secrets_do_not_show_when_settings_are_printed() -> None:
    settings = load_settings(None, {"DRYDOCK_TOKEN": "hidden-token-of-24-or-more", "LLM_API_KEY": "hidden-key"})
    assert "hidden" not in repr(settings)


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.port = 1  # type: ignore[misc] # that is what is tried


def test_every_setting_is_described_and_the_reference_page_is_up_to_date() -> None:
    assert [name for name, info in Settings.model_fields.items() if not info.description] == []
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    assert page == render(), "write it anew: .venv/bin/python -m server.cli.settings_reference > docs/configuration.md"


def test_a_value_may_be_in_a_file_that_the_environment_names(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hidden-token-of-24-or-more\n")
    (tmp_path / "key").write_text("hidden-key")
    named = {"DRYDOCK_TOKEN_FILE": str(tmp_path / "token"), "LLM_API_KEY_FILE": str(tmp_path / "key")}
    settings = load_settings(None, {**named, "DRYDOCK_PORT_FILE": "", "OTHER_FILE": "/none"})
    assert settings.token is not None
    assert settings.token.get_secret_value() == "hidden-token-of-24-or-more"
    assert settings.llm_api_key is not None
    assert settings.llm_api_key.get_secret_value() == "hidden-key"
    with pytest.raises(ConfigurationError, match="LLM_API_KEY and LLM_API_KEY_FILE are both set"):
        load_settings(None, {**named, "LLM_API_KEY": "another"})
    with pytest.raises(ConfigurationError, match="DRYDOCK_TOKEN_FILE: cannot read /none: No such file"):
        load_settings(None, {"DRYDOCK_TOKEN_FILE": "/none"})
    with pytest.raises(ConfigurationError, match="DRYDOCK_PROT_FILE is no setting"):
        load_settings(None, {"DRYDOCK_PROT_FILE": "/none"})


def test_the_environment_of_other_programs_is_left_alone() -> None:
    assert load_settings(None, {"PORT": "1", "HOST": "h", "HOME": "/", "LLM_MODEL_PATH": "x"}).port == 3000


@pytest.mark.parametrize(
    ("text", "mode", "named"),
    [
        ('llm_api_key = "sk-of-somebody"', 0o644, "llm_api_key"),
        ('token = "a token of twenty-four characters"', 0o604, "token"),
        ('llm_api_key = "sk-of-somebody"', 0o600, ""),
        ('llm_api_key = "sk-of-somebody"', 0o640, ""),
        ('host = "127.0.0.1"', 0o644, ""),
    ],
)
def test_a_file_with_a_key_that_everybody_can_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, mode: int, named: str
) -> None:
    path = tmp_path / "drydock.toml"
    path.write_text(text)
    path.chmod(mode)
    load_settings(config_file=path)
    assert len(caplog.messages) == bool(named)
    assert all(str(path) in message and f"holds {named}:" in message for message in caplog.messages)
    assert "sk-of" not in caplog.text


@pytest.mark.parametrize(
    ("toml", "place", "meant"),
    [
        (
            '[[mcp_config.sse_servers]]\nur = "https://a/b"',
            "mcp_config.sse_servers.0.ur in {file}",
            "mcp_config.sse_servers.0.url",
        ),
        (
            "[agent_options]\nenable_brwsing = false",
            "agent_options.enable_brwsing in {file}",
            "agent_options.enable_browsing",
        ),
        (
            'agent_options = {tools = [{nam = "grep"}]}',
            "agent_options.tools.0.nam in {file}",
            "agent_options.tools.0.name",
        ),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_one_at_every_depth(
    tmp_path: Path, toml: str, place: str, meant: str
) -> None:
    file = tmp_path / "drydock.toml"
    file.write_text(toml)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(config_file=file)
    assert f"{place.format(file=file)}: there is no such setting; did you mean {meant!r}?" in str(caught.value)


@pytest.mark.parametrize(
    ("toml", "place", "meant"),
    [
        ('[llm_profiles.a]\nmodle = "openai/a"', "llm_profiles.a.modle in {file}", "'model'"),
        ('[llm_profiles.a]\nmodel = "x/a"\nfallbacks = ["aa"]', "llm_profiles.a.fallbacks in {file}", "'a'"),
        (
            '[llm_profiles.a]\nmodel = "x/a"\n[llm_profiles.r]\nrouter = "random_router"\nmodels = {b = "ab"}',
            "llm_profiles.r.models.b in {file}",
            "'a'",
        ),
        ('[llm_profiles.aa]\nmodel = "x/a"\n[llm_purposes]\ntitle = "a"', "llm_purposes.title in {file}", "'aa'"),
        (
            '[llm_profiles.a]\nmodel = "x/a"\n[llm_agents]\nLocAgnt = "a"',
            "llm_agents.LocAgnt in {file}",
            "'LocAgent'",
        ),
        ("[agent_configs.LocAgnt]\nenable_cmd = true", "agent_configs.LocAgnt in {file}", "'LocAgent'"),
    ],
)
def test_a_wrong_name_of_a_model_is_refused_where_it_stands_with_the_nearest_one(
    tmp_path: Path, toml: str, place: str, meant: str
) -> None:
    file = tmp_path / "drydock.toml"
    file.write_text(toml)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(config_file=file)
    assert str(caught.value).startswith(f"{place.format(file=file)}: ")
    assert f"did you mean {meant}?" in str(caught.value)


def test_a_class_of_sandboxes_of_ones_own_may_have_images_whatever_the_usual_kind_is() -> None:
    chosen: dict[str, Any] = {"sandbox": "local", "runtime_extra_deps": "apt-get install -y jq"}
    assert Settings(**chosen, sandbox_provider_class="mine.Provider").runtime_extra_deps
    with pytest.raises(ValidationError, match="have no image to install in"):
        Settings(**chosen)


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ({"url": "http://a"}, "is no address of an engine; write it as unix:///var/run/docker.sock"),
        ({"url": "tcp://10.0.0.1"}, "is no address of an engine"),
        ({"url": "tcp://10.0.0.1:2375"}, "tcp:// without TLS lets everybody who reaches it be root there"),
        ({"url": "tcp://10.0.0.1:2376", "tls_cert": "a"}, "tls_cert and tls_key belong together"),
        ({"url": "unix:///a", "tls_ca": "a"}, "tls_ca: only for tcp://"),
        ({"url": "unix:///a", "ssh_config": "a"}, "ssh_config: only for ssh://"),
        ({"url": "ssh://me:secret@a"}, "has a password"),
        ({"url": "unix:///a", "drained": True}, "drained"),
        ({"url": "unix:///a", "max_sandboxes": 0}, "max_sandboxes"),
    ],
)
def test_a_docker_host_that_cannot_be_or_is_not_safe_is_refused(host: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings({}, {"DRYDOCK_DOCKER_HOSTS": json.dumps({"far": host})})
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def test_docker_hosts_are_what_the_file_says_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / "drydock.toml"
    file.write_text(
        '[docker_hosts.here]\nurl = "unix:///var/run/docker.sock"\n'
        '[docker_hosts.big]\nurl = "tcp://10.0.0.5:2376"\ntls_ca = "ca"\ntls_cert = "c"\ntls_key = "k"\n'
        'max_sandboxes = 4\n[docker_hosts.far]\nurl = "ssh://me@far:2222"\nssh_config = "f"\ndraining = true\n'
    )
    assert hosts_of(load_settings({}, {}, file).docker_hosts) == [
        DockerHost("here", "unix:///var/run/docker.sock"),
        DockerHost("big", "tcp://10.0.0.5:2376", EngineTls("ca", "c", "k"), max_sandboxes=4),
        DockerHost("far", "ssh://me@far:2222", ssh_config="f", draining=True),
    ]
