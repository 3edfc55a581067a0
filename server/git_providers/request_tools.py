"""Tools with which agents open pull and merge requests with users' tokens, in this process and at ``/mcp/mcp``."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Annotated, Any, Final
from urllib.parse import unquote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agent_core.mcp.tool import OwnTool, own_tool
from agent_core.tools.spec import ToolAnnotations
from server.db.database import Database
from server.db.errors import DatabaseError
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.user_settings import StoredSettings
from server.errors import ConversationNotFoundError
from server.git_providers.accounts import GitAccess, GitAccounts
from server.git_providers.kinds import known_tokens
from server.git_providers.model import CreatedRequest, RequestWish, TokenMissingError
from server.settings.git_hosts import Provider

MAX_BODY: Final = 500_000


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("has a NUL character; leave it out")
    return value


RequestText = Annotated[str, AfterValidator(_without_nul)]
RequestName = Annotated[RequestText, Field(min_length=1, max_length=500)]
RequestTitle = Annotated[RequestText, Field(min_length=1, max_length=1000)]
Body = Annotated[RequestText | None, Field(max_length=MAX_BODY)]
Labels = Annotated[list[Annotated[str, Field(min_length=1, max_length=255)]], Field(max_length=100)]


class RequestArguments(BaseModel, ABC):
    """What every one of the tools takes: `source_branch`, which is pushed already, goes into `target_branch`."""

    model_config = ConfigDict(extra="forbid")

    source_branch: RequestName
    target_branch: RequestName
    title: RequestTitle

    @property
    @abstractmethod
    def repository(self) -> str:
        """The repository, as its provider names it."""

    def wish(self) -> RequestWish:
        values = self.model_dump()
        return RequestWish(
            source_branch=self.source_branch,
            target_branch=self.target_branch,
            title=self.title,
            body=values.get("body") or values.get("description") or "",
            draft=values.get("draft", False),
            labels=tuple(values.get("labels") or ()),
        )


class _NamedRepository(RequestArguments, ABC):
    repo_name: RequestName

    @property
    def repository(self) -> str:
        return self.repo_name


class PullRequest(_NamedRepository):
    """Arguments of ``create_pr`` and ``create_forgejo_pr``."""

    body: Body
    draft: bool = True
    labels: Labels | None = None


class DescribedPullRequest(_NamedRepository):
    """Arguments of ``create_bitbucket_pr`` and ``create_azure_devops_pr``."""

    description: Body


class MergeRequest(RequestArguments):
    """Arguments of ``create_mr``."""

    id: RequestName | int = Field(description="GitLab project: its number, or its path such as group/name")
    description: Body
    labels: Labels | None = None

    @property
    def repository(self) -> str:
        return unquote(str(self.id))


@dataclass(frozen=True, slots=True)
class RequestTool:
    """A tool, for the user's first account among `providers`; `is_addition` ones are only offered with an account."""

    name: str
    kind: str
    where: str
    example: str
    arguments: type[RequestArguments]
    providers: tuple[Provider, ...]

    @property
    def title(self) -> str:
        return f"Open a {self.kind} at {self.where}"

    @property
    def description(self) -> str:
        return f"{self.title}, with the user's account there. Push the source branch first."

    @property
    def is_addition(self) -> bool:
        return self.providers[0] in {"azure_devops", "forgejo"}

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of its arguments; the same object each time, so not to be changed."""
        return _schema(self)


@cache
def _schema(tool: RequestTool) -> dict[str, Any]:
    schema = tool.arguments.model_json_schema()
    properties = {name: {k: v for k, v in one.items() if k != "title"} for name, one in schema["properties"].items()}
    if "repo_name" in properties:
        properties["repo_name"] = {"description": f"{tool.where} repository{tool.example}", **properties["repo_name"]}
    return {
        **{name: value for name, value in schema.items() if name not in {"title", "description"}},
        "properties": properties,
    }


_PR: Final = "pull request"
_OWNED: Final = ", such as owner/name"
_IN_WORKSPACE: Final = ", such as workspace/name"
_IN_PROJECT: Final = ": organization/project/repository"

TOOLS: Final = {
    tool.name: tool
    for tool in (
        RequestTool("create_pr", _PR, "GitHub", _OWNED, PullRequest, ("github", "enterprise_sso")),
        RequestTool("create_mr", "merge request", "GitLab", "", MergeRequest, ("gitlab",)),
        RequestTool("create_bitbucket_pr", _PR, "Bitbucket", _IN_WORKSPACE, DescribedPullRequest, ("bitbucket",)),
        RequestTool(
            "create_azure_devops_pr", _PR, "Azure DevOps", _IN_PROJECT, DescribedPullRequest, ("azure_devops",)
        ),
        RequestTool("create_forgejo_pr", _PR, "Forgejo", _OWNED, PullRequest, ("forgejo",)),
    )
}


logger = logging.getLogger(__name__)

END_SECONDS: Final = 10.0


class RequestMaker:
    """Carries out the tools; the tokens stay here. `aclose` it at the end."""

    def __init__(self, database: Database, git: GitAccess) -> None:
        self._database = database
        self._git = git
        self._running: set[asyncio.Task[CreatedRequest]] = set()

    async def aclose(self) -> None:
        """Let what was begun come to its end, for some seconds."""
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=END_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def make(
        self, tool: RequestTool, arguments: RequestArguments, *, user_id: str, conversation_id: str | None = None
    ) -> CreatedRequest:
        """Make the request with the user's account as it is stored now; its number is added to the conversation's.

        Once begun it is made and noted also where this is cancelled. Raises ConversationNotFoundError when nothing was
        made, and GitProviderError, whose message says what is known.
        """
        record = await self._database.conversations.get(conversation_id) if conversation_id is not None else None
        if conversation_id is not None and (record is None or record.user_id != user_id):
            raise ConversationNotFoundError(conversation_id)
        accounts = self._git.accounts(await self._database.settings.get(user_id))
        provider = _chosen(tool, accounts, record)
        request = asyncio.create_task(
            self._create(accounts, provider, arguments, conversation_id), name=f"request-{conversation_id}"
        )
        self._running.add(request)
        request.add_done_callback(self._over)
        return await asyncio.shield(request)

    def _over(self, task: asyncio.Task[CreatedRequest]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits is told of it; where nobody does, the provider has said no

    async def _create(
        self, accounts: GitAccounts, provider: Provider, arguments: RequestArguments, conversation_id: str | None
    ) -> CreatedRequest:
        pr = await accounts.create_request(provider, arguments.repository, arguments.wish())
        if conversation_id is None:
            return pr
        try:
            await self._database.conversations.add_pr_number(conversation_id, pr.number)
        except DatabaseError as error:  # the request is there, and has to be told of
            logger.warning("conversation %s: request %d could not be noted: %s", conversation_id, pr.number, error)
            return replace(pr, note="; ".join(filter(None, [pr.note, "it could not be noted at the conversation"])))
        return pr


def _chosen(tool: RequestTool, accounts: GitAccounts, record: ConversationRecord | None) -> Provider:
    """The provider of the conversation's repository, if the tool works there, else the first with an account."""
    preferred = record.git_provider if record is not None else None
    there = [name for name in sorted(tool.providers, key=lambda name: name != preferred) if accounts.has(name)]
    if not there:
        raise TokenMissingError(tool.providers[0])
    return there[0]


SERVER_NAME = "drydock"


def agent_tools(maker: RequestMaker, record: ConversationRecord, user: StoredSettings | None) -> tuple[OwnTool, ...]:
    """The protocol's tools, and those of the additions that the user has an account for."""
    accounts = known_tokens(user.provider_tokens if user is not None else {})
    offered = [tool for tool in TOOLS.values() if not tool.is_addition or accounts.keys() & set(tool.providers)]

    async def run(tool: RequestTool, arguments: BaseModel, key: str) -> str:
        checked = tool.arguments.model_validate(arguments.model_dump())
        return summary(await maker.make(tool, checked, user_id=record.user_id, conversation_id=record.id))

    return tuple(
        own_tool(
            tool.name,
            tool.description,
            tool.arguments,
            partial(run, tool),
            parameters=tool.parameters,
            annotations=ToolAnnotations(title=tool.title, destructiveHint=False),
            server=SERVER_NAME,
        )
        for tool in offered
    )


def summary(request: CreatedRequest) -> str:
    """What an agent is told: the address of the request, and what of the wish could not be done."""
    return f"{request.url}\n({request.note})" if request.note else request.url
