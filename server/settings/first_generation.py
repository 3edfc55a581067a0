"""A first-generation `config.toml`, whose sections are read as settings of this server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent_core.agent.base import AgentBase
from agent_core.agent.system_prompt import PROMPT_DIR
from agent_core.llm.config import LLMConfig
from agent_core.session.settings import AgentOptions
from agent_core.spelling import nearest
from server.errors import ConfigurationError

DEFAULT_PROFILE: Final = "llm"
"""What the profile of the section ``[llm]`` is called."""

_TYPO: Final = 0.8
"""How like a known name one is that is taken for it, misspelled, and refused; others some release may have known."""

_MEGABYTE: Final = 1024 * 1024
_AT_ONCE: Final = 1
"""Seconds: 0 means never."""

_REMOTE: Final = "sandboxes run on this server's Docker engine or host (sandbox)"
_WORKSPACE: Final = (
    "each conversation has a workspace of its own, which begins empty, with a repository or with uploads"
)
_BUILT: Final = "an image is made of runtime_extra_deps alone, once; or build one and name it in sandbox_image"
_TRAJECTORY: Final = "GET /api/conversations/{id}/trajectory gives a conversation's, and replay_json plays one"
_EMBEDDING: Final = "nothing is embedded here: memory is searched by its words"
_PROGRAM: Final = "it is for the original's command line, which is not part of this server"

_CORE: Final[Mapping[str, str]] = {
    "cache_dir": "everything is kept in data_dir",
    "cli_multiline_input": _PROGRAM,
    "disable_color": "the log has no colours",
    "e2b_api_key": _REMOTE,
    "enable_cli_session": _PROGRAM,
    "file_store_web_hook_batch": "webhooks are stored with POST /api/webhooks",
    "file_store_web_hook_headers": "webhooks are stored with POST /api/webhooks",
    "file_store_web_hook_url": "webhooks are stored with POST /api/webhooks",
    "file_uploads_allowed_extensions": "files of every kind may be uploaded, into sandboxes only",
    "file_uploads_restrict_file_types": "files of every kind may be uploaded, into sandboxes only",
    "init_git_in_empty_workspace": "an empty workspace is no repository until somebody makes it one",
    "jwt_secret": "keys are made at the first start and kept in data_dir; token is what clients show",
    "modal_api_token_id": _REMOTE,
    "modal_api_token_secret": _REMOTE,
    "daytona_api_key": _REMOTE,
    "daytona_api_url": _REMOTE,
    "daytona_target": _REMOTE,
    "replay_trajectory_path": _TRAJECTORY,
    "run_as_openhands": "what runs in a sandbox is never root on this host",
    "runloop_api_key": _REMOTE,
    "save_screenshots_in_trajectory": _TRAJECTORY,
    "save_trajectory_path": _TRAJECTORY,
    "workspace_base": _WORKSPACE,
    "workspace_mount_path": _WORKSPACE,
    "workspace_mount_path_in_sandbox": "a workspace is always /workspace",
    "workspace_mount_rewrite": _WORKSPACE,
}
_SANDBOX: Final[Mapping[str, str]] = {
    "additional_networks": "sandbox_network says what sandboxes reach",
    "api_key": _REMOTE,
    "browsergym_eval_env": "nothing is evaluated here",
    "cuda_visible_devices": "sandboxes have no graphics processors",
    "docker_runtime_kwargs": "sandbox_memory_mb, sandbox_cpus, sandbox_processes and sandbox_disk_mb are the limits",
    "enable_auto_lint": "edits are not linted; the agent runs the project's own checks",
    "enable_gpu": "sandboxes have no graphics processors",
    "force_rebuild_runtime": _BUILT,
    "initialize_plugins": "an agent's tools say what its sandbox brings up",
    "local_runtime_url": "a sandbox is reached over a socket, not an address",
    "platform": "the Docker engine chooses the platform; name an image of the right one in sandbox_image",
    "rm_all_containers": "sandboxes whose conversation is gone are removed at the start",
    "runtime_binding_address": "sandboxes publish no ports; what they serve is previewed (preview_domain)",
    "runtime_extra_build_args": _BUILT,
    "selected_repo": "a conversation names its repository when it is made",
    "timeout": "each command has the limit that the agent gives it",
    "trusted_dirs": "hooks and skills of a workspace run in its sandbox only",
    "user_id": "what runs in a sandbox has a user of its own",
    "volumes": _WORKSPACE,
    "vscode_port": "the Code tab is served under the server's own address",
}
_AGENT: Final[Mapping[str, str]] = {
    "classpath": "modules imports your own module, whose agents agent_class can name",
    "enable_stuck_detection": "an agent that only repeats itself is always stopped",
    "extended": "agents of your own (modules) have fields of their own",
    "function_calling": "native_tool_calling is an option of a model",
    "memory_enabled": "an agent's memory is its own to use",
    "memory_max_threads": "an agent's memory is its own to use",
    "micro_agent_name": "skills are told by their triggers",
    "runtime": _REMOTE,
    "system_prompt_filename": "there is no template of that name; system_message_suffix adds to what an agent is told"
    " first, and agent_options.system_prompt replaces it",
}
_LLM: Final[Mapping[str, str]] = {
    "correct_num": "an answer that cannot be read is told to the model until max_iterations",
    "embedding_base_url": _EMBEDDING,
    "embedding_deployment_name": _EMBEDDING,
    "embedding_model": _EMBEDDING,
    "safety_settings": "give them in litellm_extra_body of a profile (llm_profiles)",
}
_SECURITY: Final[Mapping[str, str]] = {
    "enable_security_analyzer": "security_analyzer names one",
}
_ANALYZERS: Final = ("grayswan", "invariant")
"""The original's that this server does not have."""

_SECTIONS: Final[Mapping[str, str]] = {
    "cli": _PROGRAM,
    "evaluation": "nothing is evaluated here",
    "eval": "nothing is evaluated here",
    "extended": "a module of your own (modules) reads its configuration itself",
    "jupyter": "the kernel needs no configuration; agent_options.enable_jupyter turns it off",
    "kubernetes": _REMOTE,
    "router_config": "llm_profiles, with fallbacks and routers, are the models (docs/configuration.md)",
}
"""Sections that mean nothing here, and what to use instead."""

_READ: Final = ("core", "llm", "agent", "sandbox", "security", "condenser", "mcp", "model_routing")
_RUNTIMES: Final = {"docker": "docker", "eventstream": "docker", "local": "local", "cli": "local"}
_OLD_FLAGS: Final = {
    "codeact_enable_browsing": "enable_browsing",
    "codeact_enable_jupyter": "enable_jupyter",
    "codeact_enable_llm_editor": "enable_llm_editor",
}
_CONDENSERS: Final = (
    *("noop", "observation_masking", "recent", "llm", "amortized", "llm_attention", "structured"),
    *("browser_output_masking", "conversation_window", "pipeline"),
)


def is_first_generation(data: Mapping[str, Any]) -> bool:
    """Whether this is a configuration of the first generation: it has one of its sections, well written or not."""
    return any(isinstance(value, dict | list) and name in (*_READ, *_SECTIONS) for name, value in data.items())


@dataclass(slots=True)
class ConfigurationFile:
    """The settings in a file.

    `places` says where each was found, or a part of it (by the names that lead there), if that is not its name.
    `remarks` are about what means nothing here: a line for each, with what to use instead.
    """

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[tuple[str, ...], str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def read_first_generation(
    data: Mapping[str, Any], known: Mapping[str, object], where: str, given: Mapping[str, Any]
) -> ConfigurationFile:
    """The settings (of which `known` are all) in a first-generation file.

    What is `given` beside it of the model (`llm_model`, …) counts before its section ``[llm]``.

    Raises `ConfigurationError` for a section or key that is like one that there is, and for settings of ours beside the
    sections; wrong values are left to the settings.
    """
    return _Reader(data, known, where, given).read()


class _Reader:
    """Reads one file."""

    def __init__(
        self, data: Mapping[str, Any], known: Mapping[str, object], where: str, given: Mapping[str, Any]
    ) -> None:
        self._data = data
        self._given = given
        self._known = known
        self._where = where
        self._found = ConfigurationFile()

    def read(self) -> ConfigurationFile:
        for name, value in self._data.items():
            if name in _SECTIONS:
                self._found.remarks.append(f"[{name}] in {self._where} means nothing here: {_SECTIONS[name]}")
            elif name not in _READ:
                if name in self._known:
                    problem = f"{name!r} is a setting of this server, and [section]s are the first generation's"
                    raise ConfigurationError(
                        f"{self._where}: {problem}: use one form or the other, in files of its own"
                    )
                self._unknown(name, (*_READ, *_SECTIONS), "[{}]")
            elif not isinstance(value, dict):
                raise ConfigurationError(f"{name} in {self._where}: it is a section, so write [{name}]")
        self._core(self._section("core"))
        self._sandbox(self._section("sandbox"))
        self._security(self._section("security"))
        self._models(self._section("llm"))
        self._agents(self._section("agent"))
        self._set("mcp_config", self._section("mcp") or None, "[mcp]")
        return self._found

    def _section(self, name: str) -> dict[str, Any]:
        return dict(self._data.get(name) or {})

    def _table(self, value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ConfigurationError(f"{place} in {self._where}: it is a table, so write it in braces or as a section")
        return dict(value)

    def _set(self, setting: str, value: Any, place: str) -> None:
        if value is None or value == "":
            return
        self._found.values[setting] = value
        self._found.places[setting,] = place

    def _place(self, at: tuple[str, ...], names: Iterable[str], section: str, given: Mapping[str, Any]) -> None:
        """Say of what is read `at` a setting under these names that it is `given` in this section."""
        for name in names:
            written = name if name in given else _WRITTEN.get(name, name)
            self._found.places[(*at, name)] = f"[{section}] {written}"

    def _flag(self, section: str, given: dict[str, Any], key: str, *, default: bool = False) -> bool:
        """Take a key that is true or false."""
        value = given.pop(key, default)
        if not isinstance(value, bool):
            raise ConfigurationError(f"[{section}] {key} in {self._where}: {value!r}: write true or false")
        return value

    def _name(self, section: str, given: dict[str, Any], key: str) -> str:
        """Take a key that names something; empty where it is not there."""
        value = given.pop(key, "")
        if not isinstance(value, str):
            raise ConfigurationError(f"[{section}] {key} in {self._where}: it is a name, so write it in quotes")
        return value

    def _means_nothing(self, section: str, key: str, word: str) -> None:
        self._found.remarks.append(f"[{section}] {key} in {self._where} means nothing here: {word}")

    def _unknown(self, name: str, known: tuple[str, ...], form: str) -> None:
        if (one := nearest(name, known, likeness=_TYPO)) is not None:
            problem = f"there is no {form.format(name)}; did you mean {form.format(one)!r}?"
            raise ConfigurationError(f"{self._where}: {problem}")
        self._found.remarks.append(f"{form.format(name)} in {self._where} is not known here, and means nothing")

    def _rest(self, section: str, left: Mapping[str, Any], words: Mapping[str, str], read: tuple[str, ...]) -> None:
        """Say of what is left of a section what it means."""
        for key in left:
            if key in words:
                self._means_nothing(section, key, words[key])
            else:
                self._unknown(key, (*words, *read), f"[{section}] {{}}")

    def _core(self, core: dict[str, Any]) -> None:
        same = (
            *("max_iterations", "max_concurrent_conversations", "conversation_max_age_seconds"),
            *("git_user_name", "git_user_email", "search_api_key"),
        )
        changed: dict[str, tuple[str, Callable[[Any], Any]]] = {
            "default_agent": ("agent_class", _as_it_is),
            "debug": ("log_level", lambda value: "debug" if value is True else None if value is False else value),
            "file_store_path": ("data_dir", _as_it_is),
            "file_uploads_max_file_size_mb": ("max_upload_bytes", lambda value: _times(value, _MEGABYTE)),
            "max_budget_per_task": ("max_budget_per_task", lambda value: None if value == 0 else value),
        }
        read = (*same, *changed, "file_store", "runtime", "enable_browser", "enable_default_condenser")
        if not self._flag("core", core, "enable_browser", default=True):
            self._set("enable_browsing", "never", "[core] enable_browser")
        self._pass("core", core, {name: (name, _as_it_is) for name in same} | changed)
        store = core.pop("file_store", "local")
        if store != "local":
            word = "what is kept is in the database and in data_dir (blob_store_class for a place of your own)"
            self._means_nothing("core", "file_store", word)
        runtime = core.pop("runtime", "")
        if not isinstance(runtime, str) or runtime in _RUNTIMES:  # what is no name is refused with the settings
            self._set("sandbox", _RUNTIMES.get(str(runtime), runtime), "[core] runtime")
        elif runtime:
            self._means_nothing("core", "runtime", _REMOTE)
        if not self._flag("core", core, "enable_default_condenser", default=True):
            self._set("agent_options", {"condenser": {"type": "noop"}}, "[core] enable_default_condenser")
        self._rest("core", core, _CORE, read)

    def _pass(self, section: str, given: dict[str, Any], taken: Mapping[str, tuple[str, Callable[[Any], Any]]]) -> None:
        """Take these keys as settings, with their values changed."""
        for key, (setting, change) in taken.items():
            if key in given:
                self._set(setting, change(given.pop(key)), f"[{section}] {key}")

    def _sandbox(self, sandbox: dict[str, Any]) -> None:
        taken: dict[str, tuple[str, Callable[[Any], Any]]] = {
            "base_container_image": ("sandbox_image", _as_it_is),
            "runtime_container_image": ("sandbox_image", _as_it_is),
            "runtime_extra_deps": ("runtime_extra_deps", _as_it_is),
            "runtime_startup_env_vars": ("runtime_startup_env_vars", lambda value: value or None),
            "close_delay": ("idle_unload_seconds", _as_it_is),
        }
        flags = ("pause_closed_runtimes", "keep_runtime_alive", "use_host_network")
        is_paused, is_kept, is_in_hosts_network = (self._flag("sandbox", sandbox, key) for key in flags)
        if is_kept:
            self._set("sandbox_stop_seconds", 0, "[sandbox] keep_runtime_alive")
        elif "close_delay" in sandbox and not is_paused:  # what is closed has no sandbox any more
            self._set("sandbox_stop_seconds", _AT_ONCE, "[sandbox] close_delay")
        if is_in_hosts_network:
            self._set("sandbox_network", "host-access", "[sandbox] use_host_network")
        self._pass("sandbox", sandbox, taken)
        for key in [key for key in sandbox if key.startswith("remote_runtime_")]:
            del sandbox[key]
            self._means_nothing("sandbox", key, _REMOTE)
        self._rest("sandbox", sandbox, _SANDBOX, (*taken, *flags))

    def _security(self, security: dict[str, Any]) -> None:
        same = ("confirmation_mode", "security_analyzer")
        if (theirs := security.get("security_analyzer")) in _ANALYZERS:
            del security["security_analyzer"]
            word = f"{theirs} is not here; llm, rules and rules+llm are, and without one confirmation_mode asks always"
            self._means_nothing("security", "security_analyzer", word)
        self._pass("security", security, {name: (name, _as_it_is) for name in same})
        self._rest("security", security, _SECURITY, same)

    def _models(self, section: dict[str, Any]) -> None:
        named = {key: value for key, value in section.items() if isinstance(value, dict) and key not in _TABLES}
        base = {key: value for key, value in section.items() if key not in named}
        profiles = {}
        own = self._profile("llm", dict(base))
        self._place(("llm_profiles", DEFAULT_PROFILE), own, "llm", base)
        if own.get("model"):
            told = {name: str(self._given.get(f"llm_{name}") or "").strip() for name in _GIVEN}
            before = {name: text for name, text in told.items() if text}
            profiles[DEFAULT_PROFILE] = own | before
            # Where the setting is given is where its value is.
            self._found.places.update({("llm_profiles", DEFAULT_PROFILE, key): f"llm_{key}" for key in before})
            self._set("llm_profile", DEFAULT_PROFILE, "[llm]")
            if before:  # a key is for other models of its provider, too
                self._set("llm_model", profiles[DEFAULT_PROFILE]["model"], "[llm] model")
        else:
            for key, setting in (("api_key", "llm_api_key"), ("base_url", "llm_base_url")):
                self._set(setting, own.get(key), f"[llm] {key}")
        for name, given in named.items():
            of_this = self._profile(f"llm.{name}", dict(given))
            self._found.places["llm_profiles", name] = f"[llm.{name}]"
            self._place(("llm_profiles", name), own, "llm", base)
            self._place(("llm_profiles", name), of_this, f"llm.{name}", given)
            profile = {**own, **of_this}
            if not profile.get("model"):
                raise ConfigurationError(f"[llm.{name}] in {self._where}: it names no model, and neither does [llm]")
            profiles[name] = profile
            if self._flag(f"llm.{name}", dict(given), "for_routing"):
                self._secondary = name
        if "draft_editor" in profiles:
            self._purpose("draft_editor", "draft_editor", "[llm.draft_editor]")
        if draft := self._name("llm", dict(base), "draft_editor"):
            self._purpose("draft_editor", draft, "[llm] draft_editor")
        self._set("llm_profiles", profiles or None, "[llm]")

    _secondary = ""

    def _profile(self, section: str, given: dict[str, Any]) -> dict[str, Any]:
        """The options of a model, in the form of a profile."""
        for name in ("for_routing", "draft_editor"):
            given.pop(name, None)
        found = {name: given.pop(name) for name in tuple(given) if name in LLMConfig.model_fields}
        found = {name: value for name, value in found.items() if value != ""}
        for name in ("timeout", "max_input_tokens", "max_output_tokens"):
            if found.get(name) == 0:
                del found[name]
        provider = self._name(section, given, "custom_llm_provider")
        if provider and isinstance(found.get("model"), str) and not found["model"].startswith(f"{provider}/"):
            found["model"] = f"{provider}/{found['model']}"
        if isinstance(top_k := found.get("top_k"), float) and top_k.is_integer():
            found["top_k"] = int(top_k)  # it could be either
        extra, body = given.pop("completion_kwargs", None), found.get("litellm_extra_body", {})
        if extra and isinstance(body, dict):  # what is no table is refused with the settings
            found["litellm_extra_body"] = {**extra, **body} if isinstance(extra, dict) else extra
        self._rest(section, given, _LLM, tuple(LLMConfig.model_fields))
        return found

    def _purpose(self, purpose: str, profile: str, place: str) -> None:
        purposes = dict(self._found.values.get("llm_purposes", {}))
        if purposes.setdefault(purpose, profile) != profile:
            self._found.remarks.append(
                f"{place} in {self._where} means nothing here: llm_purposes has one model for {purpose}, and it is"
                f" {purposes[purpose]!r}"
            )
        self._set("llm_purposes", purposes, place)
        self._found.places["llm_purposes", purpose] = place

    def _routing(self, section: str, routing: dict[str, Any], primary: Any) -> str:
        """The name of the router's profile that this section makes; empty where it wants none."""
        kind = self._name(section, routing, "router_name")
        models = self._table(routing.pop("llms_for_routing", {}), f"[{section}] llms_for_routing")
        if self._secondary:
            models = {"secondary": self._secondary, **models}
        self._rest(section, routing, {}, ("router_name", "llms_for_routing"))
        if kind in ("", "noop_router"):
            return ""
        profiles = self._found.values.get("llm_profiles", {})
        renamed = {"secondary" if key == "secondary_model" else key: name for key, name in models.items()}
        named = {"primary": primary, **renamed}
        for key in tuple(named):
            self._name(section, dict(named), key)
        if named["primary"] not in profiles:
            raise ConfigurationError(f"[{section}] in {self._where}: a router needs the model of [llm]; name one there")
        name = next(one for one in map("routed{}".format, ("", *range(2, len(profiles) + 3))) if one not in profiles)
        self._found.values["llm_profiles"] = {**profiles, name: {"router": kind, "models": named}}
        at = ("llm_profiles", name)
        self._found.places |= {at: f"[{section}]", (*at, "router"): f"[{section}] router_name"}
        for key in renamed:
            self._found.places[(*at, "models", key)] = f"[{section}] llms_for_routing.{key}"
        return name

    def _agents(self, section: dict[str, Any]) -> None:
        named = self._section("condenser")
        own = {key: value for key, value in named.items() if not isinstance(value, dict)}
        others = {key: value for key, value in named.items() if isinstance(value, dict)}
        options = dict(self._found.values.get("agent_options", {}))
        if own:
            options["condenser"] = self._condenser("condenser", own, ("agent_options",))
        base = {key: value for key, value in section.items() if not isinstance(value, dict) or key in _AGENT_TABLES}
        options |= self._options("agent", base, others, ("agent_options",))
        if profile := options.pop("llm_config", None):
            self._set("llm_profile", profile, "[agent] llm_config")
        self._set("agent_options", options or None, "[agent]")
        configs = {}
        models = {}
        for name, given in section.items():
            if name in base:
                continue
            if name not in AgentBase.agents:
                if "classpath" in given:
                    self._means_nothing(f"agent.{name}", "classpath", _AGENT["classpath"])
                else:
                    self._unknown(name, tuple(AgentBase.agents), "[agent.{}]")
                continue
            table = self._table(given, f"[agent.{name}]")
            configs[name] = self._options(f"agent.{name}", table, others, ("agent_configs", name))
            if profile := configs[name].pop("llm_config", None):
                models[name] = profile
                self._found.places["llm_agents", name] = f"[agent.{name}] llm_config"
        self._set("agent_configs", {name: one for name, one in configs.items() if one} or None, "[agent]")
        self._set("llm_agents", models or None, "[agent]")

    def _options(
        self, section: str, given: Mapping[str, Any], condensers: Mapping[str, Any], at: tuple[str, ...]
    ) -> dict[str, Any]:
        """The options of an agent, which are read `at` a setting, and `llm_config` beside them."""
        found = {_OLD_FLAGS.get(name, name): value for name, value in given.items()}
        template = found.get("system_prompt_filename")
        theirs = isinstance(template, str) and not (PROMPT_DIR / template).is_file()
        taken = AgentOptions.model_fields.keys() - ({"system_prompt_filename"} if theirs else set())
        options = {name: found.pop(name) for name in tuple(found) if name in taken}
        self._place(at, options, section, given)
        place = f"{section}.condenser"
        if isinstance(name := options.get("condenser"), str):
            if name not in condensers:
                there = ", ".join(condensers) or "none"
                raise ConfigurationError(
                    f"[{section}] condenser in {self._where}: there is no [condenser.{name}]; there are: {there}"
                )
            options["condenser"], place = dict(condensers[name]), f"condenser.{name}"
        if isinstance(options.get("condenser"), dict):
            options["condenser"] = self._condenser(place, dict(options["condenser"]), at)
        llm = found.pop("llm_config", "")
        if llm and self._is_model(llm, section):
            options["llm_config"] = llm
        place = f"{section}.model_routing"
        routing = self._table(found.pop("model_routing", {}), f"[{place}]")
        if section == "agent" and not routing:
            place, routing = "model_routing", self._section("model_routing")
        if router := self._routing(place, routing, options.get("llm_config", DEFAULT_PROFILE)):
            options["llm_config"] = router
        self._rest(section, found, _AGENT, (*AgentOptions.model_fields, "llm_config", "model_routing"))
        return options

    def _is_model(self, name: Any, section: str) -> bool:
        """Whether there is such a model; as in the first generation, else the default one is asked, which is told."""
        if not isinstance(name, str) or name in self._found.values.get("llm_profiles", {}):
            return True  # what is no name is refused with the settings
        self._unknown(name, tuple(self._found.values.get("llm_profiles", {})), f"[{section}] llm_config: a [llm.{{}}]")
        return False

    def _condenser(self, section: str, given: dict[str, Any], at: tuple[str, ...]) -> dict[str, Any]:
        self._found.places[(*at, "condenser")] = f"[{section}]"
        if (kind := given.get("type", "noop")) not in _CONDENSERS:
            there = ", ".join(_CONDENSERS)
            raise ConfigurationError(f"[{section}] type in {self._where}: there is no {kind!r}; there are: {there}")
        llm = given.pop("llm_config", "")
        if llm and self._is_model(llm, section):
            self._purpose("condenser", llm, f"[{section}] llm_config")
        found = {"type": kind, **given}
        if isinstance(parts := given.get("condensers"), list):
            found["condensers"] = [
                self._condenser(section, self._table(one, f"[{section}] condensers"), at) for one in parts
            ]
        return found


_GIVEN: Final = ("model", "api_key", "base_url")
_TABLES: Final = ("completion_kwargs", "extra_headers", "litellm_extra_body", "safety_settings", "capability_overrides")
_WRITTEN: Final = {**{new: old for old, new in _OLD_FLAGS.items()}, "litellm_extra_body": "completion_kwargs"}
_AGENT_TABLES: Final = ("condenser", "model_routing", "extended")


def _as_it_is(value: Any) -> Any:
    return value


def _times(value: Any, factor: int) -> Any:
    """So many of them; 0 is no limit, for which there is the default, and what is no number is left to be refused."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    return value * factor or None
