"""A user's accounts at providers, and what is asked of all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from pydantic import SecretStr

from server.db.repositories.user_settings import ProviderToken, StoredSettings
from server.errors import GitProviderError
from server.git_providers.azure_devops import AzureDevOps
from server.git_providers.bitbucket import Bitbucket
from server.git_providers.forgejo import Forgejo
from server.git_providers.github import GitHub
from server.git_providers.gitlab import GitLab
from server.git_providers.http import HttpPool
from server.git_providers.kinds import base_url, host_lacks, known_tokens, repository_in
from server.git_providers.model import (
    AccessRefusedError,
    CreatedRequest,
    MissingError,
    PageWish,
    Repository,
    RequestWish,
    SuggestedTask,
    TokenMissingError,
    TokenRefusedError,
    User,
)
from server.git_providers.provider import GitProvider, what_works
from server.settings.git_hosts import Provider

T = TypeVar("T")

CHECK_SECONDS = 5.0
"""How long a provider may take to say whether it knows a token, or has a repository, before it counts as silent."""

_PAGE_SIZE = 100
_MAX_PAGES = 10

_MAX_LISTED = 500

_CLASSES: dict[Provider, Callable[[HttpPool, Provider, str, SecretStr], GitProvider]] = {
    "github": GitHub,
    "gitlab": GitLab,
    "bitbucket": Bitbucket,
    "enterprise_sso": GitHub,
    "azure_devops": AzureDevOps,
    "forgejo": Forgejo,
}


class GitAccounts:
    """The accounts of one user. Each method asks providers, and raises what `GitProvider` says."""

    def __init__(self, providers: Mapping[Provider, GitProvider], bases: Mapping[Provider, str]) -> None:
        self._providers = providers
        self._bases = bases

    def __bool__(self) -> bool:
        return bool(self._providers)

    def has(self, provider: Provider) -> bool:
        return provider in self._providers

    def account(self, provider: Provider) -> GitProvider:
        found = self._providers.get(provider)
        if found is None:
            raise TokenMissingError(provider if self._providers else None)
        return found

    async def user(self) -> User:
        failures: list[GitProviderError] = []
        for account in self._chosen(None):
            try:
                return await account.user()
            except GitProviderError as error:
                failures.append(error)
        raise failures[0]

    async def repositories(
        self, provider: Provider | None, wish: PageWish | None, *, sort: str, installation: str | None
    ) -> list[Repository]:
        if provider is None:
            lists = await what_works(_latest(account, sort) for account in self._chosen(None))
            return [one for found in lists for one in found]
        account = self.account(provider)
        try:
            page = await account.repositories(wish or PageWish(1, 30), sort=sort, installation=installation)
        except MissingError as error:
            if installation is None:
                raise
            raise AccessRefusedError(f"installation {installation[:100]}") from error
        return [one.model_copy(update={"link_header": page.link}) for one in page.items]

    async def search_repositories(
        self, provider: Provider | None, query: str, *, limit: int, sort: str, order: str
    ) -> list[Repository]:
        text = query.strip()
        if not text:
            return []

        async def search(account: GitProvider) -> list[Repository]:
            named = repository_in(account.name, self._bases[account.name], text)
            try:
                if named is not None:
                    return [await account.repository(named)]
                if text.startswith(("http://", "https://")):
                    return []
                return await account.search_repositories(text, limit=limit, sort=sort, order=order)
            except MissingError:  # no such repository, or no such owner
                return []

        lists = await what_works(search(account) for account in self._chosen(provider))
        return [one for found in lists for one in found]

    async def suggested_tasks(self) -> list[SuggestedTask]:
        lists = await what_works(account.suggested_tasks() for account in self._chosen(None))
        return [task for tasks in lists for task in tasks]

    async def of_repository(
        self, provider: Provider | None, repository: str, ask: Callable[[GitProvider], Awaitable[T]]
    ) -> T:
        """What `ask` gives for the first account that has the repository, `provider`'s first."""
        failures: list[GitProviderError] = []
        for account in sorted(self._chosen(None), key=lambda one: one.name != provider):
            try:
                return await ask(account)
            except MissingError:
                continue
            except GitProviderError as error:
                failures.append(error)
        raise failures[0] if failures else AccessRefusedError(f"repo {repository}")

    async def found(self, provider: Provider | None, repository: str) -> Provider | None:
        """Which account has the repository, by name or address; None: unknown for now. AccessRefusedError: none has."""
        is_address = repository.startswith(("http://", "https://"))
        was_queried = False
        for account in self._providers.values():
            name = repository_in(account.name, self._bases[account.name], repository) if is_address else repository
            if name is None or provider not in {None, account.name}:
                continue
            was_queried = True
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await account.repository(name)
            except (MissingError, TokenRefusedError):
                continue
            except (GitProviderError, TimeoutError):
                return None
            return account.name
        if was_queried:
            raise AccessRefusedError(f"repo {repository}")
        return None

    async def is_request_open(self, provider: Provider | None, repository: str, number: int) -> bool:
        """Whether a request waits to be merged; also true where that cannot be said now."""
        for account in self._providers.values():
            if provider in {None, account.name}:
                try:
                    async with asyncio.timeout(CHECK_SECONDS):
                        return await account.is_request_open(repository, number)
                except MissingError:
                    continue
                except (GitProviderError, TimeoutError):
                    return True
        return True

    async def create_request(self, provider: Provider, repository: str, wish: RequestWish) -> CreatedRequest:
        """Make a request in the repository (named in full, or by address); AccessRefusedError: it is not there."""
        account = self.account(provider)
        is_address = repository.startswith(("http://", "https://"))
        name = repository_in(provider, self._bases[provider], repository) if is_address else repository
        try:
            if name is None:
                raise MissingError(f"{provider}: not found")
            return await account.create_request(name, wish)
        except MissingError as error:
            raise AccessRefusedError(f"repo {repository} at {provider}") from error

    def _chosen(self, provider: Provider | None) -> list[GitProvider]:
        if provider is not None:
            return [self.account(provider)]
        if not self._providers:
            raise TokenMissingError
        return list(self._providers.values())


class GitAccess:
    """Makes the accounts of users, with `hosts` where they name none; owns the connections to providers."""

    def __init__(self, hosts: Mapping[str, str], pool: HttpPool | None = None) -> None:
        self._hosts = hosts
        self._pool = pool or HttpPool()

    def accounts(self, user: StoredSettings | None) -> GitAccounts:
        tokens = known_tokens(user.provider_tokens if user is not None else {})
        bases = {name: self.base(name, token) for name, token in tokens.items()}
        return GitAccounts({name: self._account(name, token) for name, token in tokens.items()}, bases)

    def base(self, provider: Provider, token: ProviderToken) -> str:
        return base_url(provider, token.host or self._hosts.get(provider))

    def host_lacks(self, provider: Provider, host: str | None) -> str | None:
        return host_lacks(provider, host or self._hosts.get(provider))

    async def is_refused(self, provider: Provider, token: ProviderToken) -> bool:
        """Whether the provider says that the token is none of its own; one that cannot be asked refuses nothing."""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._account(provider, token).user()
        except TokenRefusedError:
            return True
        except (GitProviderError, TimeoutError):
            return False
        return False

    async def aclose(self) -> None:
        await self._pool.aclose()

    def _account(self, provider: Provider, token: ProviderToken) -> GitProvider:
        return _CLASSES[provider](self._pool, provider, self.base(provider, token), token.token)


async def _latest(account: GitProvider, sort: str) -> list[Repository]:
    found: list[Repository] = []
    for number in range(1, _MAX_PAGES + 1):
        page = await account.repositories(PageWish(number, _PAGE_SIZE), sort=sort, installation=None)
        found += page.items
        if not page.has_next or len(found) >= _MAX_LISTED:
            break
    return found[:_MAX_LISTED]
