from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from agent_core.security.analyzer import LLMSecurityAnalyzer, SecurityAnalyzer
from agent_core.security.analyzers import get_default_analyzer
from agent_core.security.confirmation import AlwaysConfirm, ConfirmationPolicy, ConfirmRisky, NeverConfirm
from agent_core.security.shell_rules import ShellRuleAnalyzer
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.user_settings import StoredSettings
from server.session.agents.git_access import git_setup
from server.session.agents.models import ConversationModels
from server.session.user_settings import (
    ModelChoice,
    OwnLimits,
    SettingsChange,
    choose_model,
    merge_settings,
    merged,
    public_form,
    secret_values,
)
from server.settings.mcp_config import McpConfig, read_config
from server.settings.settings import Settings

STORED = StoredSettings(
    llm_model="openai/gpt-5",
    llm_api_key=SecretStr("user-key"),
    search_api_key=SecretStr("search-key"),
    language="de",
    confirmation_mode=True,
    max_iterations=7,
)


def change(**fields: Any) -> SettingsChange:
    return SettingsChange.model_validate(fields)


def test_a_partial_change_keeps_all_that_it_does_not_name() -> None:
    after = merged(STORED, change(mcp_config={"sse_servers": ["http://x"]}))
    assert after.model_copy(update={"mcp_config": None}) == STORED
    assert after.mcp_config is not None
    assert after.mcp_config["sse_servers"] == [{"url": "http://x", "api_key": None}]


def test_null_keeps_key_model_and_address_and_clears_the_rest() -> None:
    after = merged(STORED, change(llm_api_key=None, llm_model=None, search_api_key=None, language=None))
    assert after == STORED.model_copy(update={"language": None})


def test_an_empty_key_clears_the_models_key_but_not_the_search_key() -> None:
    after = merged(STORED, change(llm_api_key="", search_api_key=""))
    assert public_form(after)["llm_api_key_set"] is False
    assert public_form(after)["search_api_key_set"] is True


def test_the_first_change_starts_from_the_defaults() -> None:
    assert merged(None, change(language="fr", unknown_key=1)) == StoredSettings(language="fr")


def test_the_public_form_has_flags_instead_of_secrets() -> None:
    form = public_form(STORED)
    assert (form["llm_api_key"], form["search_api_key"], form["sandbox_api_key"]) == (None, None, None)
    assert (form["llm_api_key_set"], form["search_api_key_set"]) == (True, True)
    assert form["provider_tokens_set"] == {}
    assert form["secrets_store"] == {"provider_tokens": {}}
    assert form["language"] == "de"
    assert sorted(secret_values(STORED)) == ["search-key", "user-key"]


@pytest.mark.parametrize(
    "fields",
    [
        {"condenser_max_size": 19},
        {"max_iterations": 0},
        {"max_budget_per_task": -1},
        {"llm_model": 5},
        {"confirmation_mode": "perhaps"},
        {"mcp_config": {"unknown": []}},
        {"mcp_config": {"shttp_servers": [{"url": "ftp://x"}]}},
        {"mcp_config": {"stdio_servers": [{"name": "a b", "command": "c"}]}},
        {"mcp_config": {"stdio_servers": [{"name": "a", "command": "c d"}]}},
        {"mcp_config": {"shttp_servers": [{"url": "http://x", "timeout": 3601}]}},
        {"llm_model": "x" * 5000},
    ],
)
def test_values_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        change(**fields)


SERVER = Settings(llm_model="openai/server", llm_api_key=SecretStr("server-key"), llm_base_url="http://server")


def test_without_any_settings_the_demo_runs() -> None:
    assert choose_model(None, Settings()) == ModelChoice("demo/tour")
    assert choose_model(StoredSettings(language="de"), Settings()).is_demo


def test_the_servers_model_serves_who_chose_none() -> None:
    assert choose_model(None, SERVER) == ModelChoice("openai/server", "server-key", "http://server")


def test_another_model_alone_is_reached_the_servers_way() -> None:
    assert choose_model(StoredSettings(llm_model="openai/mine"), SERVER) == ModelChoice(
        "openai/mine", "server-key", "http://server"
    )


def test_the_servers_key_never_goes_to_a_users_address_nor_a_users_key_to_the_servers() -> None:
    own_address = choose_model(StoredSettings(llm_model="openai/m", llm_base_url="http://elsewhere"), SERVER)
    assert own_address == ModelChoice("openai/m", None, "http://elsewhere")
    assert choose_model(STORED, SERVER) == ModelChoice("openai/gpt-5", "user-key", None)


def test_a_model_of_the_originals_service_without_a_key_of_the_users_is_none_that_was_chosen() -> None:
    hosted = "openhands/claude-opus-4-5-20251101"
    assert choose_model(StoredSettings(llm_model=hosted, llm_base_url=""), SERVER) == choose_model(None, SERVER)
    assert choose_model(StoredSettings(llm_model=hosted, llm_api_key=SecretStr("key")), SERVER) == ModelChoice(
        hosted, "key", None
    )
    assert choose_model(StoredSettings(llm_model=hosted), Settings()).lacks_key({}), "a server without a model has none"
    own = Settings(llm_model="openhands/x", llm_api_key=SecretStr("key"))
    assert choose_model(StoredSettings(llm_model=hosted), own) == ModelChoice(hosted, "key", None)


@pytest.mark.parametrize(
    ("choice", "environment", "expected"),
    [
        (ModelChoice("openai/gpt-5"), {}, True),
        (ModelChoice("gpt-5"), {}, True),
        (ModelChoice("gpt-5"), {"OPENAI_API_KEY": "k"}, False),
        (ModelChoice("claude-opus-9"), {"OPENAI_API_KEY": "k"}, True),
        (ModelChoice("claude-opus-9"), {"ANTHROPIC_API_KEY": "k"}, False),
        (ModelChoice("gemini-2.5-pro"), {}, False),
        (ModelChoice("gemini/gemini-2.5-pro"), {}, True),
        (ModelChoice("gemini/gemini-2.5-pro"), {"GOOGLE_API_KEY": "k"}, False),
        (ModelChoice("together_ai/x"), {}, False),
        (ModelChoice("nobody-knows-it"), {}, False),
        (ModelChoice("openai/gpt-5", "key"), {}, False),
        (ModelChoice("openai/x", None, "http://localhost:11434/v1"), {}, False),
        (ModelChoice("openai/gpt-5"), {"OPENAI_API_KEY": "k"}, False),
        (ModelChoice("anthropic/claude"), {"OPENAI_API_KEY": "k"}, True),
        (ModelChoice("demo/tour"), {}, False),
        (ModelChoice("ollama/qwen"), {}, False),
        (ModelChoice("bedrock/x"), {}, False),
    ],
)
def test_a_hosted_model_without_any_key_is_noticed(
    choice: ModelChoice, environment: dict[str, str], expected: bool
) -> None:
    assert choice.lacks_key(environment) is expected


@pytest.mark.parametrize(
    ("flat", "base_url", "named", "is_reached"),
    [
        ("claude-opus-4-5", None, "anthropic/claude-haiku-4-5", True),
        ("claude-opus-4-5", None, "claude-of-tomorrow", True),
        ("claude-opus-4-5", None, "openai/gpt-5", False),
        ("claude-opus-4-5", None, "gpt-5", False),
        ("gpt-5", None, "openai/gpt-4o", True),
        ("openai/x", "http://models.example/v1", "claude-haiku-4-5", True),
        ("claude-opus-4-5", "http://models.example/v1", "llama", True),
        ("claude-opus-4-5", "http://models.example/v1", "anthropic/claude-haiku-4-5", False),
    ],
)
def test_a_profile_without_a_way_is_reached_as_the_servers_model_is_where_both_are_of_one_provider(
    flat: str, base_url: str | None, named: str, is_reached: bool
) -> None:
    server = Settings(llm_model=flat, llm_api_key="key", llm_base_url=base_url, llm_profiles={"p": {"model": named}})
    llm = ConversationModels(None, server).load("p")
    assert (llm.api_key is not None, llm.base_url) == (is_reached, base_url if is_reached else None)


def test_the_users_wishes_win_over_the_servers_where_there_are_any() -> None:
    chosen = STORED.model_copy(update={"agent": "Agent", "condenser_max_size": 60})
    options = merge_settings(chosen, Settings(max_iterations=3, max_budget_per_task=2.5, llm_model="ollama/own"))
    assert (options.max_iterations, options.max_budget) == (7, 2.5)
    assert (options.agent_class, options.condenser_max_size) == ("Agent", 60)


BOTH, LLM_WORD, RULES = get_default_analyzer(), LLMSecurityAnalyzer(), ShellRuleAnalyzer()
ASKS = Settings(confirmation_mode=True)
ASKS_BY_RULES = Settings(confirmation_mode=True, security_analyzer="rules")


@pytest.mark.parametrize(
    ("user", "server", "policy", "analyzer"),
    [
        (None, Settings(), NeverConfirm(), BOTH),
        (None, ASKS, AlwaysConfirm(), BOTH),
        (StoredSettings(), ASKS, AlwaysConfirm(), BOTH),
        (StoredSettings(confirmation_mode=False), ASKS, NeverConfirm(), BOTH),
        (StoredSettings(confirmation_mode=True), Settings(), AlwaysConfirm(), BOTH),
        *(
            (StoredSettings(confirmation_mode=True, security_analyzer=name), Settings(), AlwaysConfirm(), BOTH)
            for name in (None, "", "none", "invariant", "LLM", " llm")
        ),
        (StoredSettings(confirmation_mode=True, security_analyzer="llm"), Settings(), ConfirmRisky(), LLM_WORD),
        (StoredSettings(confirmation_mode=True, security_analyzer="rules"), Settings(), ConfirmRisky(), RULES),
        (StoredSettings(confirmation_mode=True, security_analyzer="rules+llm"), Settings(), ConfirmRisky(), BOTH),
        (StoredSettings(security_analyzer="llm"), ASKS, ConfirmRisky(), LLM_WORD),
        (StoredSettings(confirmation_mode=False, security_analyzer="llm"), ASKS, NeverConfirm(), LLM_WORD),
        (None, ASKS_BY_RULES, ConfirmRisky(), RULES),
        (StoredSettings(), ASKS_BY_RULES, ConfirmRisky(), RULES),
        (StoredSettings(security_analyzer="llm"), ASKS_BY_RULES, ConfirmRisky(), LLM_WORD),
        (StoredSettings(security_analyzer=""), ASKS_BY_RULES, AlwaysConfirm(), BOTH),
    ],
)
def test_who_is_asked_where_an_analyzer_is_chosen_or_not(
    user: StoredSettings | None, server: Settings, policy: ConfirmationPolicy, analyzer: SecurityAnalyzer
) -> None:
    options = merge_settings(user, server)
    assert (options.policy, options.security_analyzer) == (policy, analyzer)


def test_an_agent_that_does_not_exist_here_is_replaced_by_the_servers() -> None:
    assert merge_settings(StoredSettings(agent="BoatAgent"), Settings()).agent_class == "CodeActAgent"


def test_of_stored_servers_only_those_are_left_out_that_cannot_be_read_any_more() -> None:
    good = {"url": "https://a.example", "api_key": "key"}
    stored = {"sse_servers": [{"url": "https://"}, good, good, 7], "stdio_servers": 7, "shttp_servers": ["http://b"]}
    assert read_config(stored) == McpConfig.model_validate({"sse_servers": [good], "shttp_servers": ["http://b"]})
    assert read_config(None) == McpConfig()


@pytest.mark.parametrize(
    ("hosts", "asked", "name"),
    [
        ({}, "ann/boat", "ann/boat"),
        ({}, "https://github.com/ann/boat.git", "ann/boat"),
        ({"github": "https://git.example.com/git"}, "https://git.example.com/git/ann/boat.git", "ann/boat"),
        ({}, "https://elsewhere.example/ann/boat", "ann/boat"),
    ],
)
def test_a_repository_is_called_by_owner_and_name_however_it_was_named(
    hosts: dict[str, str], asked: str, name: str
) -> None:
    record = ConversationRecord(id="c", selected_repository=asked, git_provider="github")
    repository = git_setup(None, Settings(git_hosts=hosts), record).repository
    assert repository is not None
    assert (repository.name, repository.folder) == (name, "boat")


def test_a_router_over_profiles_that_are_gone_names_the_first_of_them() -> None:
    router = {"router": "random_router", "models": {"one": "gone", "other": "lost"}}
    models = ConversationModels(StoredSettings(llm_profiles={"mine": router}), Settings())
    assert "there is no profile 'gone'" in str(models.problem_of("mine"))


def test_what_a_conversation_chooses_itself_wins_over_its_users_settings() -> None:
    user = STORED.model_copy(update={"confirmation_mode": True})
    limits = OwnLimits(max_iterations=5, max_budget_per_task=0.5, confirmation_mode=False)
    options = merge_settings(user, Settings(max_iterations=3), limits)
    assert (options.max_iterations, options.max_budget, options.policy) == (5, 0.5, NeverConfirm())
    options = merge_settings(user, Settings(), OwnLimits(max_budget_per_task=1))
    assert (options.max_iterations, options.max_budget, options.policy) == (7, 1.0, AlwaysConfirm())
