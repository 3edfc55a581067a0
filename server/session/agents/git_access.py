"""What git is told in a conversation's sandbox: its repository, who commits, and the tokens of providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import SecretStr

from agent_core.memory.memory import name_of_remote
from agent_core.runtime.sandbox import WITH_A_WAY_OUT
from agent_core.security.secrets import StaticSecret
from agent_core.session.repository import GitSetup, Repository
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.user_settings import ProviderToken, StoredSettings
from server.git_providers.kinds import (
    KINDS,
    base_url,
    chosen_provider,
    clone_url,
    credentials,
    known_tokens,
    repository_in,
    shared_repository,
)
from server.session.agents.agent_context import chosen
from server.session.sandbox_choice import network_of, stored_choice
from server.settings.settings import Settings


def git_setup(user: StoredSettings | None, server: Settings, record: ConversationRecord) -> GitSetup:
    """The repository that the conversation was created with, and its user's name and mail address."""
    user = user or StoredSettings()
    name, email = (" ".join((text or "").split()) for text in (user.git_user_name, user.git_user_email))
    repository = _repository(user.provider_tokens, server, record)
    return GitSetup(
        repository,
        name or server.git_user_name or "",
        email or server.git_user_email or "",
        _organization(repository, user, server, record),
    )


def provider_secrets(user: StoredSettings | None) -> dict[str, StaticSecret]:
    """The user's git tokens by the names of the variables that commands may ask for."""
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
        url, base = name, base_url(provider, host)
        if not url.startswith(f"{base}/"):
            username, secret = "", None  # a token goes to its own provider only
        name = repository_in(provider, base, url) or name_of_remote(url)
    problem = ""
    network = network_of(stored_choice(record), server)
    if network not in WITH_A_WAY_OUT:
        problem = (
            f"the sandbox of this conversation has no way out (its network is {network!r}, the server's sandbox_network"
            f" {server.sandbox_network!r}); upload the files instead, or let it be 'full'"
        )
    return Repository(
        name=name,
        url=url,
        branch=(record.selected_branch or "").strip(),
        username=username,
        token=SecretStr(secret.get_secret_value()) if secret is not None else None,
        depth=server.git_clone_depth,
        limit_seconds=server.git_clone_seconds,
        setup_seconds=server.repository_setup_seconds,
        problem=problem,
    )


def _organization(
    repository: Repository | None, user: StoredSettings, server: Settings, record: ConversationRecord
) -> Repository | None:
    """The repository with the skills of the organisation that the conversation's repository belongs to."""
    if repository is None or not chosen(user.load_org_skills, server.load_org_skills):
        return None
    provider = chosen_provider(record.git_provider, user.provider_tokens)
    token = user.provider_tokens.get(provider)
    host = (token.host if token is not None else None) or server.git_hosts.get(provider)
    name = repository_in(provider, base_url(provider, host), repository.url)
    if name is None:
        return None  # an address elsewhere: nobody knows whose it is
    shared = shared_repository(provider, name)
    return replace(repository, name=shared, url=clone_url(provider, host, shared), branch="")
