from __future__ import annotations

from pathlib import Path

from server.settings.secret_values import server_secrets
from server.settings.settings import Settings

LONG = "four-unusual-words"


def test_every_key_and_every_password_in_an_address_of_the_settings_is_a_secret(tmp_path: Path) -> None:
    given = {
        "token": f"{LONG}-as-a-token",
        "llm_api_key": "key-of-models",
        "llm_base_url": "http://ann:pass@127.0.0.1/v1",
        "search_api_key": "key-of-searching",
        "database_url": f"postgresql://ann:{LONG}-db@host/name",
        "redis_url": f"redis://:{LONG}-redis@host:6379/0",
        "users": "accounts",
        "oidc_issuer": "https://id.example.com",
        "oidc_client_id": "drydock",
        "oidc_client_secret": "key-of-signing-in",
        "default_role": "user",
        "llm_profiles": {"fast": {"model": "openai/x", "api_key": "key-of-a-profile"}},
        "runtime_startup_env_vars": {"A_TOKEN": "key-of-sandboxes", "PLAIN": "word"},
    }
    environment = {
        "HTTPS_PROXY": f"http://ann:{LONG}-proxy@127.0.0.1:9",
        "ANTHROPIC_API_KEY": "key-of-a-provider",
        "HOME_KEY": "short",
        "PATH": "/a/long/path/that/is/no/secret",
    }
    found = server_secrets(Settings.model_validate({"data_dir": tmp_path, **given}), environment)
    kinds = ("models", "searching", "signing-in", "a-profile", "sandboxes", "a-provider")
    words = [
        f"{LONG}-as-a-token",
        f"{LONG}-db",
        f"{LONG}-redis",
        f"{LONG}-proxy",
        "pass",
        *(f"key-of-{one}" for one in kinds),
    ]
    assert sorted(found) == sorted(words)


def test_a_stores_short_password_is_a_word_like_others(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url="postgresql://drydock:drydock@db/drydock")
    assert server_secrets(settings, {}) == []
