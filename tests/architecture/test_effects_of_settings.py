"""Every setting acts: each field of the server's and of the users' settings has a test that shows what it does.

What it does to a conversation, or to the server: not that it is stored and comes back.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from server.session.user_settings import SettingsChange
from server.settings.settings import Settings

TESTS = Path(__file__).parents[1]

HERE = "contract/rest/test_effects_of_settings.py"
LIMIT = f"{HERE}::test_a_limit_of_the_settings_is_that_of_each_sandbox"
OWN_MODULES = "integration/server/test_own_modules.py"
MCP = "contract/rest/test_mcp.py"
TRACES = "integration/server/test_traces.py"
RETENTION = "unit/server/test_retention.py"
WAITING = "contract/rest/test_waiting.py"
MANAGER = "unit/server/test_manager.py"
ASKING = "contract/rest/test_asking_before_acting.py"
CONTEXT = "contract/rest/test_agent_context.py"
PLUGINS = "contract/rest/test_plugins.py"
PROFILES = "contract/rest/test_llm_profiles.py"
MIDWAY = "contract/rest/test_settings_midway.py"
SIGN_ON = "contract/rest/test_single_sign_on.py"
CHOICE = "contract/rest/test_sandbox_choice.py"
NUMBERS = "unit/server/test_sandbox_choice.py::"
NUMBERS += "test_a_number_may_be_less_than_usual_and_more_only_up_to_the_operators_maximum"
OWN_PARTS = "integration/server/test_own_parts.py::test_every_part_of_a_server_can_be_a_class_of_ones_own"
SEARCH = "contract/rest/test_web_search.py"
NEAREST = f"{PROFILES}::test_the_users_choices_go_before_the_servers_and_purposes_of_the_server_before_none"
FOR_CLIENTS = f"{HERE}::test_what_is_kept_for_clients_is_said_to_be_and_comes_back"

OF_THE_SERVER: dict[str, str] = {
    "modules": f"{OWN_MODULES}::test_what_a_module_registers_is_named_in_settings_and_acts",
    "event_listeners": f"{OWN_MODULES}::test_what_a_module_registers_is_named_in_settings_and_acts",
    "host": "integration/server/test_process.py::test_listening_to_others_without_a_token_is_refused",
    "port": "integration/server/test_process.py::test_a_taken_port_is_told_with_what_to_do",
    "data_dir": "integration/server/test_process.py::test_a_second_server_on_the_same_data_is_refused",
    "page": "contract/rest/test_page.py::test_scripts_within_another_clients_page_run",
    "tls_certificate": "integration/server/test_tls.py::test_clients_and_commands_talk_to_a_server_with_a_certificate",
    "tls_key": "integration/server/test_tls.py::test_clients_and_commands_talk_to_a_server_with_a_certificate",
    "base_path": "contract/rest/test_base_path.py::test_all_that_a_client_is_told_lies_below_it",
    "token": "integration/server/test_process.py::test_a_made_token_is_in_the_address_and_opens_rest_and_sockets",
    "allowed_hosts": "unit/server/test_origin.py::test_configured_hosts_are_ours",
    "allowed_origins": "contract/rest/test_page.py::test_pages_of_an_allowed_origin_may_call_the_api",
    "trusted_proxies": "integration/server/test_process.py::"
    "test_whom_a_client_says_it_asks_for_means_nothing_but_from_a_trusted_proxy",
    "webhook_hosts": "contract/webhooks/test_routes.py::"
    "test_webhooks_go_to_the_webhook_hosts_and_to_no_other_that_is_not_public",
    "mcp_oauth_hosts": f"{HERE}::test_signing_in_leads_to_the_mcp_oauth_hosts_and_to_no_other_that_is_not_public",
    "preview_domain": "contract/rest/test_ports.py::"
    "test_previews_are_where_the_preview_domain_says_and_the_page_may_show_them",
    "max_request_bytes": "integration/server/test_process.py::test_an_oversized_body_is_refused_and_the_server_lives",
    "max_upload_bytes": "contract/workspace/test_files.py::test_what_is_no_form_or_too_large_is_refused_in_words",
    "max_message_bytes": "contract/rest/test_strict_json.py::test_a_message_over_the_limit_is_refused_over_http_too",
    "requests_per_second": "unit/server/test_gate.py::test_too_many_requests_get_429_with_a_time_to_come_back",
    "max_concurrent_conversations": f"{WAITING}::test_who_waits_is_third_in_line_and_says_so",
    "max_working_conversations": f"{WAITING}::test_users_take_turns_within_the_limit_of_all",
    "warm_sandboxes": "contract/rest/test_warm_sandboxes.py::"
    "test_a_conversation_has_the_sandbox_that_was_ready_and_a_server_may_keep_none",
    "docker_hosts": "integration/server/test_docker_hosts.py::"
    "test_conversations_on_two_hosts_of_which_one_is_lost_and_comes_back",
    "max_sandboxes": f"{WAITING}::test_what_rests_makes_room_without_a_word_and_comes_back_with_its_next_message",
    "max_connections": "integration/server/test_many_connections.py::"
    "test_who_comes_beyond_the_limit_is_told_so_and_counted_with_one_line",
    "max_live_logs": "contract/rest/test_live_logs.py::test_more_of_them_than_a_user_may_have_are_a_429_until_one_ends",
    "max_feed_buffer_bytes": f"{HERE}::test_a_feed_waits_when_its_client_has_max_feed_buffer_bytes_to_read",
    "conversation_manager_class": OWN_PARTS,
    "cluster_url": "integration/server/test_cluster.py::test_other_servers_ask_at_the_address_that_is_set",
    "redis_url": "unit/server/test_clustered.py::"
    "test_live_output_goes_over_redis_and_over_postgresql_while_that_is_away",
    "cluster_lease_seconds": "integration/server/test_cluster.py::test_a_frozen_server_writes_nothing_when_it_goes_on",
    "experiment_manager_class": "contract/rest/test_settings_and_options.py::"
    "test_an_experiment_may_give_a_conversation_another_configuration",
    "agent_class": f"{HERE}::test_a_conversation_has_the_agent_class_of_the_server_where_its_user_chose_none",
    "max_iterations": f"{HERE}::test_the_servers_own_limits_count_where_its_user_has_none",
    "max_budget_per_task": f"{HERE}::test_the_servers_own_limits_count_where_its_user_has_none",
    "confirmation_mode": f"{ASKING}::test_a_server_that_asks_for_its_users_asks_about_every_command",
    "security_analyzer": f"{OWN_MODULES}::test_what_a_module_registers_is_named_in_settings_and_acts",
    "agent_options": "contract/rest/test_agent_options.py::"
    "test_a_conversation_its_user_and_the_server_choose_tools_and_the_nearest_counts",
    "agent_configs": f"{HERE}::test_an_agent_class_has_the_agent_configs_of_the_server",
    "system_message_suffix": f"{CONTEXT}::"
    "test_texts_of_the_server_and_then_of_the_user_end_the_system_message_and_follow_each_message",
    "user_message_suffix": f"{CONTEXT}::"
    "test_texts_of_the_server_and_then_of_the_user_end_the_system_message_and_follow_each_message",
    "disabled_skills": f"{CONTEXT}::test_of_skills_that_the_server_or_the_user_has_disabled_no_agent_is_told",
    "load_org_skills": f"{CONTEXT}::"
    "test_whether_an_organisations_skills_are_asked_for_is_the_servers_choice_and_then_the_users",
    "load_public_skills": f"{HERE}::test_public_skills_are_told_where_load_public_skills_of_the_server_says_so",
    "registered_marketplaces": f"{CONTEXT}::test_skills_of_registered_marketplaces_are_told_as_their_list_says",
    "marketplace_path": f"{CONTEXT}::test_skills_of_registered_marketplaces_are_told_as_their_list_says",
    "load_project_skills": f"{CONTEXT}::"
    "test_skills_of_the_workspace_are_left_out_where_the_server_or_its_user_wants_that",
    "plugins": "contract/rest/test_plugins.py::test_the_operators_plugins_are_everybodys_at_the_commit_that_is_set",
    "required_plugins": f"{PLUGINS}::test_a_user_switches_an_operators_plugin_off_unless_it_is_required",
    "user_plugins": "contract/rest/test_plugins.py::"
    "test_where_users_may_have_no_plugins_none_is_installed_and_none_is_used",
    "plugin_hosts": f"{HERE}::test_plugins_come_from_the_plugin_hosts_and_from_no_other_that_is_not_public",
    "enable_browsing": "unit/server/test_sandboxes.py::test_agents_get_a_browser_where_their_sandbox_may_have_one",
    "enable_snapshots": f"{HERE}::test_files_are_kept_only_where_enable_snapshots_says_so",
    "enable_sub_agents": "contract/rest/test_agent_options.py::"
    "test_a_conversation_its_user_and_the_server_choose_tools_and_the_nearest_counts",
    "allow_set_conversation_id": "contract/rest/test_strict_json.py::"
    "test_a_wrong_field_is_named_with_its_problem_and_what_to_do",
    "conversation_max_age_seconds": f"{HERE}::test_conversations_over_the_conversation_max_age_seconds_are_not_listed",
    "resume_on_start": f"{MANAGER}::test_a_restart_resumes_what_was_at_work_and_nothing_else",
    "held_back_seconds": f"{MANAGER}::test_what_is_held_back_waits_for_its_user_or_for_its_time",
    "resume_concurrency": f"{HERE}::test_no_more_than_resume_concurrency_start_at_a_time",
    "generate_titles": f"{HERE}::test_a_model_is_asked_for_a_title_where_generate_titles_says_so",
    "retention_days": f"{RETENTION}::test_what_is_in_use_stays_and_the_rest_goes_with_everything",
    "retention_user_conversations": f"{RETENTION}::test_many_go_in_rounds_of_bounded_size",
    "retention_user_mb": f"{RETENTION}::test_sizes_of_users_and_in_all_count_logs_with_payloads_and_sub_agents",
    "retention_total_mb": f"{RETENTION}::test_sizes_of_users_and_in_all_count_logs_with_payloads_and_sub_agents",
    "retention_interval_seconds": f"{RETENTION}::test_many_go_in_rounds_of_bounded_size",
    "idle_unload_seconds": f"{MANAGER}::"
    "test_an_idle_conversation_is_unloaded_as_it_is_and_its_sandbox_paused_then_stopped",
    "sandbox_stop_seconds": f"{MANAGER}::"
    "test_an_idle_conversation_is_unloaded_as_it_is_and_its_sandbox_paused_then_stopped",
    "cull_interval_seconds": f"{MANAGER}::test_a_message_at_the_very_moment_of_unloading_is_not_left_alone",
    "shutdown_seconds": f"{MANAGER}::test_a_slow_end_of_a_conversation_does_not_hold_up_the_server_for_long",
    "sandbox": f"{HERE}::test_conversations_run_in_the_sandbox_of_the_settings",
    **dict.fromkeys(
        (
            *("kubernetes_context", "kubernetes_namespace", "kubernetes_storage_class", "kubernetes_runtime_class"),
            *("kubernetes_pull_policy", "kubernetes_pull_secrets", "kubernetes_node_labels", "kubernetes_destinations"),
        ),
        "unit/runtime/test_kubernetes_manifests.py::test_settings_shape_the_objects",
    ),
    "sandbox_image": f"{HERE}::test_the_image_and_the_network_of_the_settings_are_those_of_each_sandbox",
    "sandbox_network": f"{HERE}::test_the_image_and_the_network_of_the_settings_are_those_of_each_sandbox",
    "sandbox_memory_mb": LIMIT,
    "sandbox_cpus": LIMIT,
    "sandbox_processes": LIMIT,
    "sandbox_tmp_mb": LIMIT,
    "sandbox_disk_mb": LIMIT,
    "sandbox_inodes": LIMIT,
    "sandbox_read_only": LIMIT,
    "sandbox_start_seconds": "integration/server/test_process.py::"
    "test_the_sandbox_with_which_it_looks_what_works_may_take_as_long_as_any_other",
    "sandbox_grace_seconds": LIMIT,
    "git_hosts": "contract/rest/test_git_accounts.py::"
    "test_addresses_of_the_servers_own_configuration_count_where_users_name_none",
    "git_user_name": "contract/rest/test_git_providers.py::"
    "test_the_servers_name_stands_on_commits_of_users_who_gave_none",
    "git_user_email": "contract/rest/test_git_providers.py::"
    "test_the_servers_name_stands_on_commits_of_users_who_gave_none",
    "git_clone_seconds": f"{HERE}::test_a_clone_has_the_git_clone_depth_and_the_git_clone_seconds_of_the_settings",
    "git_clone_depth": f"{HERE}::test_a_clone_has_the_git_clone_depth_and_the_git_clone_seconds_of_the_settings",
    "verify_git_tokens": "contract/rest/test_new_from_repositories.py::"
    "test_a_provider_that_is_not_asked_or_does_not_say_decides_nothing",
    "llm_model": f"{HERE}::test_the_model_of_the_server_is_asked_with_its_key_at_its_address",
    "llm_api_key": f"{HERE}::test_the_model_of_the_server_is_asked_with_its_key_at_its_address",
    "llm_base_url": f"{HERE}::test_the_model_of_the_server_is_asked_with_its_key_at_its_address",
    "llm_profiles": f"{PROFILES}::test_a_fallback_is_asked_where_a_profile_fails",
    "llm_profile": f"{PROFILES}::test_the_servers_default_profile_answers_with_its_own_key",
    "llm_purposes": f"{PROFILES}::test_titles_are_written_by_the_model_for_titles",
    "llm_agents": f"{PROFILES}::test_an_agent_class_has_its_own_profile",
    "allow_user_llm_profiles": f"{PROFILES}::"
    "test_where_the_operator_forbids_it_nobody_has_profiles_and_stored_ones_count_no_more",
    **dict.fromkeys(
        ("oidc_issuer", "oidc_client_id", "oidc_client_secret", "oidc_scopes", "group_roles"),
        f"{SIGN_ON}::test_people_sign_in_and_are_what_their_groups_say",
    ),
    "oidc_groups_claim": f"{SIGN_ON}::test_groups_are_in_the_claim_that_the_settings_name",
    "oidc_sign_in_hours": f"{SIGN_ON}::"
    "test_a_sign_in_lasts_for_the_stated_time_and_is_refused_to_who_is_disabled_there",
    **dict.fromkeys(
        ("user_header", "user_groups_header", "user_header_from"),
        f"{SIGN_ON}::test_the_proxys_users_are_let_in_and_nobody_elses",
    ),
    "default_role": f"{SIGN_ON}::test_who_looks_like_another_is_somebody_else",
    "create_users": f"{SIGN_ON}::test_who_is_in_no_group_or_has_no_account_is_told_so",
    "users": "contract/rest/test_accounts.py::"
    "test_the_first_administrator_comes_by_the_link_of_the_start_and_has_what_was_there",
    **dict.fromkeys(
        (
            *("authenticator_class", "monitoring_listener_class", "sandbox_provider_class"),
            *("settings_store_class", "secrets_store_class", "blob_store_class"),
        ),
        OWN_PARTS,
    ),
    "sandbox_images": f"{CHOICE}::test_more_than_the_server_grants_is_a_400_and_nothing_is_begun",
    "sandbox_network_max": "unit/server/test_sandbox_choice.py::"
    "test_a_network_may_be_narrower_than_usual_and_wider_only_up_to_the_operators_maximum",
    **dict.fromkeys(
        (
            *("sandbox_memory_max_mb", "sandbox_cpus_max", "sandbox_processes_max"),
            *("sandbox_disk_max_mb", "sandbox_start_max_seconds"),
        ),
        NUMBERS,
    ),
    "runtime_extra_deps": f"{CHOICE}::"
    "test_commands_of_server_and_user_reach_the_sandbox_and_stay_with_the_conversation",
    "runtime_extra_deps_seconds": f"{CHOICE}::"
    "test_commands_of_server_and_user_reach_the_sandbox_and_stay_with_the_conversation",
    "runtime_startup_env_vars": f"{CHOICE}::test_variables_of_the_user_go_before_those_of_the_server",
    "users_set_up_sandboxes": f"{CHOICE}::test_where_users_may_not_set_up_sandboxes_their_variables_are_refused",
    "search_api_key": f"{SEARCH}::"
    "test_without_a_key_no_search_is_offered_and_the_servers_key_counts_where_the_user_has_none",
    "search_url": f"{SEARCH}::test_with_a_key_the_agent_searches_at_the_service_with_it_and_it_is_shown_nowhere",
    "verify_search_key": f"{SEARCH}::test_a_key_that_the_service_refuses_is_not_stored_and_begins_no_conversation",
    "repository_setup_seconds": "contract/workspace/test_cloning.py::"
    "test_a_setup_script_that_fails_is_told_and_the_conversation_goes_on",
    "mcp_config": f"{MCP}::test_the_servers_of_the_whole_server_come_first_and_without_their_secrets",
    "mcp_programs": f"{MCP}::test_programs_of_users_can_be_refused_and_the_servers_own_are_not",
    "database_url": f"{HERE}::test_the_database_is_where_the_database_url_says",
    "database_synchronous": f"{HERE}::test_the_database_writes_as_database_synchronous_says",
    "disk_reserve_mb": "contract/rest/test_disk_reserve.py::"
    "test_below_the_reserve_nothing_starts_what_runs_is_frozen_and_it_goes_on_by_itself",
    "max_memory_mb": "contract/rest/test_memory_ceiling.py::"
    "test_above_the_ceiling_nothing_begins_what_is_idle_goes_and_all_goes_on_by_itself",
    "log_level": f"{HERE}::test_the_log_has_the_log_format_and_the_log_level_of_the_settings",
    "log_format": f"{HERE}::test_the_log_has_the_log_format_and_the_log_level_of_the_settings",
    "log_all_events": f"{HERE}::test_every_event_is_logged_where_log_all_events_says_so",
    "otel": f"{TRACES}::test_a_trace_leads_from_the_message_through_the_model_to_the_command",
    "otel_told_hosts": f"{TRACES}::test_a_trace_leads_from_the_message_through_the_model_to_the_command",
}

OF_USERS: dict[str, str] = {
    **dict.fromkeys(
        (
            *("language", "email", "email_verified", "user_consents_to_analytics", "enable_sound_notifications"),
            *("enable_proactive_conversation_starters", "enable_solvability_analysis"),
        ),
        FOR_CLIENTS,
    ),
    "agent": f"{HERE}::test_the_agent_of_a_user_is_that_of_their_conversations",
    "max_iterations": f"{HERE}::test_an_agent_stops_after_the_max_iterations_of_its_user",
    "max_budget_per_task": f"{HERE}::test_an_agent_stops_at_the_max_budget_per_task_of_its_user",
    "security_analyzer": f"{ASKING}::test_with_an_analyzer_what_it_calls_harmless_runs_at_once",
    "confirmation_mode": f"{ASKING}::test_without_a_known_analyzer_a_command_waits_whatever_the_model_says_of_it",
    "llm_model": f"{MIDWAY}::test_a_loop_that_runs_keeps_its_model_and_the_next_start_goes_on_with_the_new_one",
    "llm_api_key": f"{MIDWAY}::test_a_loop_that_runs_keeps_its_model_and_the_next_start_goes_on_with_the_new_one",
    "llm_base_url": f"{MIDWAY}::test_a_loop_that_runs_keeps_its_model_and_the_next_start_goes_on_with_the_new_one",
    "enable_default_condenser": f"{HERE}::test_without_the_default_condenser_nothing_is_summed_up",
    "condenser_max_size": f"{HERE}::test_a_history_over_the_condenser_max_size_is_summed_up",
    "llm_profile": NEAREST,
    "llm_purposes": NEAREST,
    "llm_agents": NEAREST,
    "remote_runtime_resource_factor": f"{CHOICE}::"
    "test_what_the_user_has_set_reaches_the_sandboxes_of_their_conversations",
    "sandbox_base_container_image": f"{CHOICE}::"
    "test_what_the_user_has_set_reaches_the_sandboxes_of_their_conversations",
    "sandbox_runtime_container_image": f"{CHOICE}::"
    "test_what_the_user_has_set_reaches_the_sandboxes_of_their_conversations",
    "sandbox_api_key": f"{CHOICE}::test_settings_that_the_server_does_not_grant_are_not_stored",
    "runtime_extra_deps": f"{CHOICE}::"
    "test_commands_of_server_and_user_reach_the_sandbox_and_stay_with_the_conversation",
    "runtime_startup_env_vars": f"{CHOICE}::test_variables_of_the_user_go_before_those_of_the_server",
    "search_api_key": f"{SEARCH}::test_with_a_key_the_agent_searches_at_the_service_with_it_and_it_is_shown_nowhere",
    "mcp_config": f"{MCP}::test_the_servers_of_a_user_serve_their_conversations",
    "git_user_name": "contract/workspace/test_cloning.py::"
    "test_a_private_repository_is_there_when_the_conversation_starts_and_its_token_nowhere",
    "git_user_email": "contract/workspace/test_cloning.py::"
    "test_a_private_repository_is_there_when_the_conversation_starts_and_its_token_nowhere",
    "agent_options": f"{MIDWAY}::test_a_loop_that_runs_keeps_its_tools_and_the_next_start_has_the_new_ones",
    "system_message_suffix": f"{CONTEXT}::"
    "test_texts_of_the_server_and_then_of_the_user_end_the_system_message_and_follow_each_message",
    "user_message_suffix": f"{CONTEXT}::"
    "test_texts_of_the_server_and_then_of_the_user_end_the_system_message_and_follow_each_message",
    "load_org_skills": f"{CONTEXT}::"
    "test_whether_an_organisations_skills_are_asked_for_is_the_servers_choice_and_then_the_users",
    "load_public_skills": f"{CONTEXT}::test_public_skills_are_told_where_the_server_or_its_user_wants_them",
    "load_project_skills": f"{CONTEXT}::"
    "test_skills_of_the_workspace_are_left_out_where_the_server_or_its_user_wants_that",
    "disabled_skills": f"{CONTEXT}::test_of_skills_that_the_server_or_the_user_has_disabled_no_agent_is_told",
    "disabled_plugins": f"{PLUGINS}::test_a_user_switches_an_operators_plugin_off_unless_it_is_required",
}


@cache
def named_parts(path: Path) -> dict[str, str]:
    """The source of each function, class and constant of a module, by its name."""
    source = path.read_text("utf-8")
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [one.id for one in targets if isinstance(one, ast.Name)]
        for name in names:
            decorators = getattr(node, "decorator_list", [])
            pieces = [ast.get_source_segment(source, one) or "" for one in (*decorators, node)]
            found.setdefault(name, "\n".join(pieces))
    return found


def text_of(test: str) -> str:
    """The source of a test with what it uses of its module and of the fixtures beside it."""
    place, _, name = test.partition("::")
    path = (TESTS / place).resolve()
    assert path.is_file(), f"there is no {place}"
    parts = named_parts(path)
    assert name in parts, f"{place} has no {name}"
    beside = path.with_name("conftest.py")
    known = {**(named_parts(beside) if beside.is_file() else {}), **parts}
    taken, waiting = {name: parts[name]}, [name]
    while waiting:
        for word in set(re.findall(r"\w+", known[waiting.pop()])) & (known.keys() - taken.keys()):
            taken[word] = known[word]
            waiting.append(word)
    return "\n".join(taken.values())


REGISTRIES: list[tuple[type[BaseModel], dict[str, str]]] = [(Settings, OF_THE_SERVER), (SettingsChange, OF_USERS)]


@pytest.mark.parametrize(("model", "effects"), REGISTRIES, ids=lambda value: getattr(value, "__name__", ""))
def test_every_setting_has_a_test_of_what_it_does(model: type[BaseModel], effects: dict[str, Any]) -> None:
    missing = sorted(model.model_fields.keys() - effects.keys())
    assert not missing, f"write a test that shows what each of these does, and name it here: {missing}"
    assert not (gone := sorted(effects.keys() - model.model_fields.keys())), f"there is no such setting: {gone}"


@pytest.mark.parametrize(
    ("setting", "test"),
    [pair for _, effects in REGISTRIES for pair in effects.items()],
    ids=lambda value: value[-60:],
)
def test_the_test_of_a_setting_is_there_and_gives_it(setting: str, test: str) -> None:
    words = f"{setting}|{setting.upper()}"
    assert re.search(rf"(?<!\w)(?:DRYDOCK_)?(?:{words})(?!\w)", text_of(test)), f"{test} does not name {setting}"
