"""What a server's conversation begins with from version control, and the tokens that its commands may use."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import SecretStr

from agent_core.runtime.sandbox import WITH_A_WAY_OUT
from agent_core.security.secrets import StaticSecret
from agent_core.session.repository import GitSetup, Repository
from server.db.conversations import ConversationRecord
from server.db.user_settings import ProviderToken, StoredSettings
from server.git_providers.kinds import KINDS, base_url, chosen_provider, clone_url, credentials, known_tokens
from server.settings import Settings


def git_setup(user: StoredSettings | None, server: Settings, record: ConversationRecord) -> GitSetup:
    """The repository that the conversation was created with, and its user's name and mail address."""
    user = user or StoredSettings()
    name, email = (" ".join((text or "").split()) for text in (user.git_user_name, user.git_user_email))
    return GitSetup(_repository(user.provider_tokens, server, record), name, email)


def provider_secrets(user: StoredSettings | None) -> dict[str, StaticSecret]:
    """The user's tokens by the names under which commands get them, if they name them."""
    tokens = user.provider_tokens if user is not None else {}
    return {
        KINDS[name].variable: StaticSecret(secret=token.token, description=f"Token for the git provider {name}")
        for name, token in known_tokens(tokens).items()
    }


def _repository(tokens: Mapping[str, ProviderToken], server: Settings, record: ConversationRecord) -> Repository | None:
    name = (record.selected_repository or "").strip()
    if not name:
        return None
    provider = chosen_provider(record.git_provider, tokens)
    token = tokens.get(provider)
    username, secret = credentials(provider, token.token if token is not None else None)
    host = (token.host if token is not None else None) or server.git_hosts.get(provider)
    url = clone_url(provider, host, name)
    if name.startswith(("http://", "https://")):
        url = name
        if not url.startswith(f"{base_url(provider, host)}/"):
            username, secret = "", None  # a token goes to its own provider only
    problem = ""
    if server.sandbox_network not in WITH_A_WAY_OUT:
        problem = (
            f"sandboxes of this server have no way out (sandbox_network is {server.sandbox_network!r});"
            " upload the files instead, or let it be 'full'"
        )
    return Repository(
        name=name,
        url=url,
        branch=(record.selected_branch or "").strip(),
        username=username,
        token=SecretStr(secret.get_secret_value()) if secret is not None else None,
        depth=server.git_clone_depth,
        limit_seconds=server.git_clone_seconds,
        problem=problem,
    )
