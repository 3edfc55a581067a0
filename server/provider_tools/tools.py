"""The tools by name: what they take, and at which providers they work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final
from urllib.parse import unquote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from server.git_providers.model import RequestWish
from server.settings.git_hosts import Provider

MAX_BODY: Final = 500_000


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("has a NUL character; leave it out")
    return value


Text = Annotated[str, AfterValidator(_without_nul)]
Name = Annotated[Text, Field(min_length=1, max_length=500)]
Title = Annotated[Text, Field(min_length=1, max_length=1000)]
Body = Annotated[Text | None, Field(max_length=MAX_BODY)]
Labels = Annotated[list[Annotated[str, Field(min_length=1, max_length=255)]], Field(max_length=100)]


class RequestArguments(BaseModel, ABC):
    """What every one of the tools takes: `source_branch`, which is pushed already, goes into `target_branch`."""

    model_config = ConfigDict(extra="forbid")

    source_branch: Name
    target_branch: Name
    title: Title

    @property
    @abstractmethod
    def repository(self) -> str:
        """The repository, as its provider names it."""

    def wish(self) -> RequestWish:
        """What is asked for."""
        given = self.model_dump()
        return RequestWish(
            source_branch=self.source_branch,
            target_branch=self.target_branch,
            title=self.title,
            body=given.get("body") or given.get("description") or "",
            draft=given.get("draft", False),
            labels=tuple(given.get("labels") or ()),
        )


class PullRequest(RequestArguments):
    """Arguments of ``create_pr``."""

    repo_name: Name = Field(description="GitHub repository, such as owner/name")
    body: Body
    draft: bool = True
    labels: Labels | None = None

    @property
    def repository(self) -> str:
        return self.repo_name


class MergeRequest(RequestArguments):
    """Arguments of ``create_mr``."""

    id: Name | int = Field(description="GitLab project: its number, or its path such as group/name")
    description: Body
    labels: Labels | None = None

    @property
    def repository(self) -> str:
        return unquote(str(self.id))


class BitbucketPullRequest(RequestArguments):
    """Arguments of ``create_bitbucket_pr``."""

    repo_name: Name = Field(description="Bitbucket repository, such as workspace/name")
    description: Body

    @property
    def repository(self) -> str:
        return self.repo_name


class AzureDevOpsPullRequest(RequestArguments):
    """Arguments of ``create_azure_devops_pr``."""

    repo_name: Name = Field(description="Azure DevOps repository: organization/project/repository")
    description: Body

    @property
    def repository(self) -> str:
        return self.repo_name


class ForgejoPullRequest(PullRequest):
    """Arguments of ``create_forgejo_pr``."""

    repo_name: Name = Field(description="Forgejo repository, such as owner/name")


@dataclass(frozen=True, slots=True)
class RequestTool:
    """One of the tools.

    Attributes:
        providers: where it works; the first one that the user has an account at.
        is_addition: whether the protocol does not know it; such a tool is offered to agents whose user has an account.
    """

    name: str
    title: str
    description: str
    arguments: type[RequestArguments]
    providers: tuple[Provider, ...]
    is_addition: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of its arguments; the same object each time, so not to be changed."""
        return _schema_of(self.arguments)


@cache
def _schema_of(arguments: type[RequestArguments]) -> dict[str, Any]:
    schema = arguments.model_json_schema()
    schema["properties"] = {name: _plain(one) for name, one in schema["properties"].items()}
    return {name: value for name, value in schema.items() if name not in {"title", "description"}}


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != "title"}


def _tool(name: str, where: str, kind: str, arguments: type[RequestArguments], *providers: Provider) -> RequestTool:
    return RequestTool(
        name=name,
        title=f"Open a {kind} at {where}",
        description=f"Open a {kind} at {where}, with the user's account there. Push the source branch first.",
        arguments=arguments,
        providers=providers,
        is_addition=providers[0] in {"azure_devops", "forgejo"},
    )


TOOLS: Final = {
    tool.name: tool
    for tool in (
        _tool("create_pr", "GitHub", "pull request", PullRequest, "github", "enterprise_sso"),
        _tool("create_mr", "GitLab", "merge request", MergeRequest, "gitlab"),
        _tool("create_bitbucket_pr", "Bitbucket", "pull request", BitbucketPullRequest, "bitbucket"),
        _tool("create_azure_devops_pr", "Azure DevOps", "pull request", AzureDevOpsPullRequest, "azure_devops"),
        _tool("create_forgejo_pr", "Forgejo", "pull request", ForgejoPullRequest, "forgejo"),
    )
}
"""Every tool, by its name."""
