"""Writes `docs/configuration.md` from the settings themselves: ``python -m server.cli.settings_reference > FILE``."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from server.settings.loading import CONFIG_VARIABLE, MODEL_VARIABLES, PROTOCOL_VARIABLES, variable_name
from server.settings.settings import Settings

_INTRODUCTION = f"""# Configuration

Every setting has one name. It can be given in four places; the first one that has it wins:

1. an option of `drydock serve`: `--host`, `--port`, `--data-dir`, `--sandbox`, `--page`,
   `--otel`;
2. an environment variable: the name in capitals after `DRYDOCK_`; lists are written with commas. The model's three
   settings are also read from `LLM_MODEL`, `LLM_API_KEY` and `LLM_BASE_URL`. With `_FILE` behind the name, the value
   is what is in that file (`LLM_API_KEY_FILE=/run/secrets/key`), so that a secret is in no environment;
3. a TOML file, named by `--config` or `{CONFIG_VARIABLE}`, with the names as keys;
4. the default.

An empty variable counts as not given. Folders are taken from where the server is started, or with `~` from the
user's own folder. An unknown name or a bad value is refused at start, with the nearest name that exists. What a user
stores on the settings page (model, key, base URL, limits, …) wins over all of these for that user's conversations.

```toml
# drydock.toml
host = "0.0.0.0"
token = "auto"
sandbox = "docker"
sandbox_network = "internal"
allowed_hosts = ["drydock.example.com"]
llm_model = "openai/gpt-5"
```

Times are in seconds. `drydock doctor` says whether what is configured can work here.

A `config.toml` of the first generation (`[core]`, `[llm]`, `[llm.NAME]`, `[agent.NAME]`, `[sandbox]`, …) is read as it
is, given in the same way: its models become profiles (`llm` is the default one), its agents `agent_configs`, the rest
the settings of their meaning. `LLM_MODEL`, `LLM_API_KEY` and `LLM_BASE_URL` count before its `[llm]`.
The log at the start and `drydock doctor` have a line for each key that means nothing here, with what to use instead; a
key that is misspelled and a wrong value are refused.
"""

_MODELS = """### Named models

A profile is a model with all its options under a name of your choice:

```toml
llm_profile = "strong"                # of everybody who chose no model

[llm_profiles.strong]
model = "anthropic/claude-opus-4-5"
api_key = "sk-ant-…"
reasoning_effort = "high"
fallbacks = ["cheap"]                 # asked where this one fails after its retries

[llm_profiles.cheap]
model = "openai/gpt-5-mini"
api_key = "sk-…"
max_output_tokens = 8000
extra_headers = { "X-Team" = "tools" }

[llm_profiles.seeing]                 # a router: images go to one model, the rest to the other
router = "multimodal_router"
models = { primary = "strong", secondary = "cheap" }

[llm_purposes]
condenser = "cheap"
title = "cheap"

[llm_agents]
BrowsingAgent = "seeing"
```

A profile has every option of [`LLM`](library.md#models) by its name there, but for those that only a program can use.
One that names neither a key nor an address is reached as `llm_model` is, if that is of the same provider (the name
before the `/`; models that litellm knows need none), else with the provider's usual variable of the environment.
`fallbacks` and a router's `models` name profiles that are no routers; a router of your own is named by its
`router_name`. A name or a value that cannot be is refused at the start. Users may have profiles of their own, and
choose among all ([protocol.md](protocol.md#named-models)).

Agents name profiles as well, of those that their user can name: the tool `switch_llm` hands the conversation over to
one, an agent whose model sees no images has `inspect_image_with_vision` where a profile does, and a kind of sub-agent
has the one of its `model`. Files in the home of the server's host (`~/.drydock/profiles`) are for programs only.
"""

_GROUPS = (
    ("Modules", "modules"),
    ("Address", "host"),
    ("Access", "token"),
    ("Limits", "max_request_bytes"),
    ("Conversations", "conversation_manager_class"),
    ("Idle conversations and shutdown", "idle_unload_seconds"),
    ("Sandbox", "sandbox"),
    ("Git", "git_hosts"),
    ("Model", "llm_model"),
    ("MCP servers", "mcp_config"),
    ("Web search", "search_api_key"),
    ("Storage", "database_url"),
    ("Log and traces", "log_level"),
)


def render() -> str:
    """The whole page."""
    starts = {first: title for title, first in _GROUPS}
    lines = [_INTRODUCTION]
    names = _in_order([first for _, first in _GROUPS])
    for name in names:
        info = Settings.model_fields[name]
        if name in starts:
            lines += [f"## {starts[name]}", "", "| Setting | Variable | Default | Meaning |", "|---|---|---|---|"]
        lines.append(f"| `{name}` | {_variables(name)} | {_default(info)} | {info.description} |")
        following = names.index(name) + 1
        if following == len(names) or names[following] in starts:
            lines.append("")
        if name == "allow_user_llm_profiles":
            lines.append(_MODELS)
    return "\n".join(lines).rstrip() + "\n"


def _in_order(firsts: list[str]) -> list[str]:
    """The settings, group by group; those of a base class stand before all others by themselves."""
    names = list(Settings.model_fields)
    starts = [*sorted(names.index(first) for first in firsts), len(names)]
    groups = {names[start]: names[start:end] for start, end in pairwise(starts)}
    return [name for first in firsts for name in groups[first]]


def _variables(name: str) -> str:
    short = [variable for variable, field in (MODEL_VARIABLES | PROTOCOL_VARIABLES).items() if field == name]
    return ", ".join(f"`{variable}`" for variable in [variable_name(name), *short])


def _default(info: FieldInfo) -> str:
    value: Any = info.default
    if value is None or value == () or isinstance(value, SecretStr):
        return "–"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    sys.stdout.write(render())
