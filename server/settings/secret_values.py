"""What of the server's own settings and environment nobody else should see."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from pydantic import SecretStr

from agent_core.events.masking import MIN_SECRET_LENGTH, secrets_in_address
from server.settings.mcp_config import McpConfig, agent_servers
from server.settings.settings import Settings
from server.settings.text_fields import AUTO_TOKEN, secret_variables

_STORES: Final = frozenset({"database_url", "redis_url"})
_MIN_PASSWORD: Final = 8
"""A shorter password of one of `_STORES` is likely to be a word of everyday texts."""
_MIN_KEY: Final = 16
_KEY_NAME: Final = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)(?:_ID)?$", re.IGNORECASE)
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")


def server_secrets(settings: Settings, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Every secret of the settings, and what the environment holds of keys (of providers, say) and in proxies."""
    found = [value for name, value in environment.items() if _KEY_NAME.search(name) and len(value) >= _MIN_KEY]
    proxies = [value for name, value in environment.items() if name.lower() in _PROXIES]
    found += [secret for address in proxies for secret in secrets_in_address(address)]
    for name, value in settings:
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        if isinstance(value, SecretStr) and name not in _STORES and text != AUTO_TOKEN:
            found.append(text)
        elif isinstance(text, str):
            least = _MIN_PASSWORD if name in _STORES else MIN_SECRET_LENGTH
            found += [secret for secret in secrets_in_address(text) if len(secret) >= least]
    found += [secret for profile in settings.llm_profiles.values() for secret in profile.secrets]
    found += agent_servers(settings.mcp_config, McpConfig()).secrets
    found += secret_variables(settings.runtime_startup_env_vars)
    return [one for one in dict.fromkeys(found) if len(one) >= MIN_SECRET_LENGTH]
