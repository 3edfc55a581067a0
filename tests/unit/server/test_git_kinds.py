"""What is known of git providers without asking them, and the addresses of the public ones' APIs."""

from __future__ import annotations

from operator import not_

import httpx
import pytest
from pydantic import SecretStr

from server.db.repositories.user_settings import ProviderToken, StoredSettings
from server.errors import GitProviderError
from server.git_providers.accounts import GitAccess
from server.git_providers.http import MAX_VALUES, At, Form, HttpPool, message, read
from server.git_providers.kinds import KINDS, clone_url, credentials, host_lacks, repository_in
from server.git_providers.model import Repository
from server.settings.git_hosts import PROVIDERS, Provider


class Recording(HttpPool):
    """Hears what is asked, and answers everything with a refusal."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[httpx.Request] = []

    async def client(self) -> httpx.AsyncClient:
        def refuse(request: httpx.Request) -> httpx.Response:
            self.asked.append(request)
            return httpx.Response(401)

        return httpx.AsyncClient(transport=httpx.MockTransport(refuse))


def test_every_provider_is_known_by_its_kind() -> None:
    assert set(KINDS) == set(PROVIDERS)


@pytest.mark.parametrize(
    ("provider", "host", "address", "authorization"),
    [
        ("github", None, "https://api.github.com/user", "Bearer a:b"),
        ("enterprise_sso", None, "https://api.github.com/user", "Bearer a:b"),
        ("github", "acme.ghe.com", "https://api.acme.ghe.com/user", "Bearer a:b"),
        ("github", "git.example.com", "https://git.example.com/api/v3/user", "Bearer a:b"),
        ("github", "GitHub.com", "https://api.github.com/user", "Bearer a:b"),
        ("github", "http://www.github.com/", "https://api.github.com/user", "Bearer a:b"),
        ("github", "https://api.github.com:443", "https://api.github.com/user", "Bearer a:b"),
        ("gitlab", None, "https://gitlab.com/api/v4/user", "Bearer a:b"),
        ("gitlab", "http://gitlab.com", "https://gitlab.com/api/v4/user", "Bearer a:b"),
        ("bitbucket", "api.bitbucket.org", "https://api.bitbucket.org/2.0/user", "Basic YTpi"),
        ("gitlab", "http://git.example.com/lab/", "http://git.example.com/lab/api/v4/user", "Bearer a:b"),
        ("bitbucket", None, "https://api.bitbucket.org/2.0/user", "Basic YTpi"),
        ("forgejo", None, "https://codeberg.org/api/v1/user", "token a:b"),
        (
            "azure_devops",
            "http://Dev.Azure.com/acme/",
            "https://dev.azure.com/acme/_apis/connectionData",
            "Basic OmE6Yg==",
        ),
        ("azure_devops", "dev.azure.com/acme", "https://dev.azure.com/acme/_apis/connectionData", "Basic OmE6Yg=="),
    ],
)
async def test_a_token_is_shown_where_the_provider_has_its_api(
    provider: Provider, host: str | None, address: str, authorization: str
) -> None:
    pool = Recording()
    token = ProviderToken(token=SecretStr("a:b"), host=host)
    assert await GitAccess({}, pool).is_refused(provider, token)
    (request,) = pool.asked
    assert (str(request.url), request.headers["authorization"]) == (address, authorization)


def test_a_token_for_a_provider_of_a_newer_version_makes_no_account() -> None:
    stored = StoredSettings(provider_tokens={"sourcehut": ProviderToken(token=SecretStr("x"))})
    assert not GitAccess({}).accounts(stored)
    assert not GitAccess({}).accounts(None)


@pytest.mark.parametrize(
    ("provider", "host", "repository", "url"),
    [
        ("github", None, "ann/boat", "https://github.com/ann/boat.git"),
        ("gitlab", "git.example.com", "a/b/my boat.git", "https://git.example.com/a/b/my%20boat.git"),
        ("forgejo", None, "ann/boat", "https://codeberg.org/ann/boat.git"),
        ("azure_devops", "dev.azure.com/acme", "acme/my sea/boat", "https://dev.azure.com/acme/my%20sea/_git/boat"),
        ("azure_devops", "dev.azure.com/acme", "sea/boat", "https://dev.azure.com/acme/sea/_git/boat"),
        ("azure_devops", "dev.azure.com/acme", "boat", "https://dev.azure.com/acme/boat/_git/boat"),
        ("azure_devops", None, "acme/sea/boat", "https://dev.azure.com/acme/sea/_git/boat"),
        (
            "azure_devops",
            "https://acme.visualstudio.com",
            "acme/sea/boat",
            "https://acme.visualstudio.com/sea/_git/boat",
        ),
    ],
)
def test_git_finds_a_repository_at_its_address(provider: Provider, host: str | None, repository: str, url: str) -> None:
    assert clone_url(provider, host, repository) == url


ACME = "https://dev.azure.com/acme"


@pytest.mark.parametrize(
    ("provider", "base", "address", "repository"),
    [
        ("github", "https://github.com", "https://github.com/ann/boat", "ann/boat"),
        ("github", "https://github.com", "https://github.com/ann/boat.git", "ann/boat"),
        ("github", "https://github.com", "https://github.com/ann/boat/pull/7?x=1#top", "ann/boat"),
        ("github", "https://github.com", "https://github.com/ann", None),
        ("github", "https://github.com", "https://github.com.example.com/ann/boat", None),
        ("gitlab", "https://gitlab.com", "https://gitlab.com/a/b/boat/-/issues/3", "a/b/boat"),
        (
            "azure_devops",
            "https://dev.azure.com/acme",
            "https://dev.azure.com/acme/my%20sea/_git/boat",
            "acme/my sea/boat",
        ),
        ("azure_devops", ACME, f"{ACME}/_git/boat", "acme/boat/boat"),
        ("azure_devops", ACME, f"{ACME}/sea", None),
    ],
)
def test_a_web_page_tells_its_repository(provider: Provider, base: str, address: str, repository: str | None) -> None:
    assert repository_in(provider, base, address) == repository


def test_git_is_given_the_name_that_a_provider_wants_beside_a_token() -> None:
    assert credentials("forgejo", SecretStr("tok")).username == "oauth2"
    given = credentials("bitbucket", SecretStr("ann@example.com:tok:en"))
    assert (given.username, given.token) == ("x-bitbucket-api-token-auth", SecretStr("tok:en"))
    assert credentials("bitbucket", SecretStr("ann:tok")).username == "ann"
    assert credentials("github", None) == ("", None)


def test_only_azure_devops_needs_more_than_a_host() -> None:
    assert [one for one in PROVIDERS if host_lacks(one, None)] == ["azure_devops"]
    assert host_lacks("azure_devops", "dev.azure.com/acme") is None
    assert host_lacks("azure_devops", "acme.visualstudio.com") is None
    assert "organisation" in (host_lacks("azure_devops", "tfs.example.com") or "")


def test_an_answer_whose_parsing_would_hold_up_everybody_is_refused() -> None:
    body = b"[" + b"0," * MAX_VALUES + b"0]"
    with pytest.raises(GitProviderError, match="GitHub answers with more than 100000 values: ask for less"):
        read(list, body, "GitHub")
    assert message(b'{"message":' + body + b"}") == ""
    assert read(list, b"[" + b"0," * 100 + b"0]", "GitHub") == [0] * 101


def test_a_form_says_where_a_provider_tells_each_field() -> None:
    form = Form(
        Repository,
        id="uuid",
        full_name=At("path", "owner.names.1"),
        is_public=At("private", to=not_, default=True),
        main_branch="branch.name",
    )
    told = {
        "uuid": 7,
        "path": "",
        "owner": {"names": ["a", "a/b"]},
        "private": None,
        "branch": {"name": "main"},
        "link_header": "x",
        "git_provider": "gitlab",
    }
    assert form.read(told, "github") == Repository(
        id="7", full_name="a/b", git_provider="github", is_public=True, main_branch="main"
    )
    assert not form.read({**told, "private": True}, "github").is_public
    for data, problem in (
        ({**told, "branch": {"name": []}}, "values.3.branch.name: Input should be a valid string"),
        ({**told, "uuid": None}, "values.3.uuid: Field required"),
        ([], "values.3: Input should be a valid dictionary"),
    ):
        with pytest.raises(GitProviderError, match=f"^github answers in an unknown form: {problem}$"):
            form.read(data, "github", "values.3")
