"""Conversations that begin with a card: a suggested task, or a wish for a microagent."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from server.git_hosts import Provider
from server.git_providers.kinds import KINDS

_NAMES: Final[dict[Provider, tuple[str, str]]] = {
    "github": ("GitHub", "pull request"),
    "enterprise_sso": ("GitHub", "pull request"),
    "gitlab": ("GitLab", "merge request"),
    "bitbucket": ("Bitbucket", "pull request"),
    "azure_devops": ("Azure DevOps", "pull request"),
    "forgejo": ("Forgejo", "pull request"),
}
_PROMPTS: Final = {
    "MERGE_CONFLICTS": (
        "The {request} #{number} of the repository {repo} ({title}) cannot be merged, because it conflicts with the"
        " branch that it is meant for. {look} Check out its branch, merge that target branch into it, and resolve the"
        " conflicts so that what both sides intended is kept. See that it builds and that its tests pass, then push"
        " the branch."
    ),
    "FAILING_CHECKS": (
        "Checks of the {request} #{number} of the repository {repo} ({title}) fail. {look} Check out its branch, find"
        " out from the configuration of the checks and from what they print which ones fail and why, and mend the"
        " causes rather than the checks. Run here what they run, until it passes, then push the branch."
    ),
    "UNRESOLVED_COMMENTS": (
        "Reviewers of the {request} #{number} of the repository {repo} ({title}) wait for something. {look} Check out"
        " its branch and read their comments that are still open, with the code that each is about. Do what they ask"
        " for; where you think otherwise, leave the code as it is and tell me why. Run the tests, then push the branch."
    ),
    "OPEN_ISSUE": (
        "The issue #{number} of the repository {repo} ({title}) is open. {look} Read it with all its comments, and the"
        " code that it is about. If it leaves open what is to be done, ask me before you begin. Otherwise make a"
        " branch for it, do the work there with tests for it, push the branch, and open a draft {request} that names"
        " the issue."
    ),
}
_LOOK = "Ask the API of {provider} about it; the token for that is in the environment variable {variable}."


class SuggestedTask(BaseModel):
    """A task card of the client."""

    model_config = ConfigDict(extra="forbid", strict=True)

    git_provider: Provider
    task_type: Literal[
        "MERGE_CONFLICTS", "FAILING_CHECKS", "UNRESOLVED_COMMENTS", "OPEN_ISSUE", "OPEN_PR", "CREATE_MICROAGENT"
    ]
    repo: str = Field(min_length=1, max_length=500)
    issue_number: int = Field(ge=0)
    title: str = Field(max_length=4096)

    @property
    def prompt(self) -> str | None:
        """What the agent is told; None for kinds that stand for no work by themselves."""
        text = _PROMPTS.get(self.task_type)
        if text is None:
            return None
        name, request = _NAMES[self.git_provider]
        return text.format(
            look=_LOOK.format(provider=name, variable=KINDS[self.git_provider].variable),
            request=request,
            number=self.issue_number,
            repo=self.repo,
            title=" ".join(self.title.split()),
        )


class CreateMicroagent(BaseModel):
    """The client's wish for a microagent; what it is to be is said in the first message."""

    model_config = ConfigDict(extra="forbid", strict=True)

    repo: str = Field(min_length=1, max_length=500)
    git_provider: Provider | None = None
    title: str | None = None
