"""What of the server's own settings and environment nobody else should see."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from agent_core.events.masking import MIN_SECRET_LENGTH, secrets_in_address
from server.settings.mcp_config import McpConfig, agent_servers
from server.settings.settings import Settings
from server.settings.text_fields import AUTO_TOKEN, secret_variables

_MIN_PASSWORD: Final = 8
"""A shorter password of a database is likely to be a word of everyday texts."""
_MIN_KEY: Final = 16
_KEY_NAME: Final = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)(?:_ID)?$", re.IGNORECASE)
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")


def server_secrets(settings: Settings, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Every secret of the settings, and what the environment holds of keys (of providers, say) and in proxies."""
    keys = (settings.llm_api_key, settings.search_api_key, settings.token, settings.oidc_client_secret)
    found = [key.get_secret_value() for key in keys if key is not None and key.get_secret_value() != AUTO_TOKEN]
    found += [value for name, value in environment.items() if _KEY_NAME.search(name) and len(value) >= _MIN_KEY]
    proxies = [value for name, value in environment.items() if name.lower() in _PROXIES]
    for address in (settings.llm_base_url, settings.search_url, *proxies):
        found += secrets_in_address(address or "")
    found += [secret for profile in settings.llm_profiles.values() for secret in profile.secrets]
    found += agent_servers(settings.mcp_config, McpConfig()).secrets
    found += secret_variables(settings.runtime_startup_env_vars)
    found += [one for one in secrets_in_address(settings.database_url or "") if len(one) >= _MIN_PASSWORD]
    return [one for one in dict.fromkeys(found) if len(one) >= MIN_SECRET_LENGTH]
