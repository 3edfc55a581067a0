"""The machines that sandboxes run on, where the server has several: how they are, and draining them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from agent_core.runtime.docker.images import is_listed
from agent_core.runtime.sandbox import HostView
from server.dependencies import IdentityDependency, ServicesDependency
from server.routes.route_classes import make_router

router = make_router("/api/docker-hosts")


class DockerHostInfo(BaseModel):
    """One Docker host, as it is known to be; memory in bytes, 0 where it was never reached."""

    name: str
    url: str
    status: Literal["up", "draining", "lost"] = Field(
        description="`draining`: it takes no new sandboxes, and what runs there goes on; `lost`: it cannot be reached."
    )
    reason: str | None = Field(description="A sentence that says why it is lost.")
    since: datetime = Field(description="When it came to be so.")
    version: str = Field(description="Its engine's.")
    processors: int
    memory: int
    memory_free: int = Field(description="What is left for new sandboxes; 0 while it is lost.")
    sandboxes: int = Field(description="How many run there, of all servers; as last seen while it is lost.")
    max_sandboxes: int = Field(description="How many may, before new ones are made elsewhere.")
    has_image: bool = Field(description="Whether the server's own `sandbox_image` is there.")


class DockerHostList(BaseModel):
    """The Docker hosts of a server, in the order of its configuration."""

    results: list[DockerHostInfo]


class DrainChange(BaseModel):
    """Whether a host is to take no new sandboxes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    draining: bool


@router.get("", response_model=DockerHostList)
async def list_docker_hosts(services: ServicesDependency, identity: IdentityDependency) -> Any:
    """All Docker hosts of the setting `docker_hosts`; none where there is but one engine."""
    image = services.settings.sandbox_image
    return {"results": [_info(view, image) for view in services.sandboxes.hosts.views()]}


@router.patch("/{name}", response_model=DockerHostInfo)
async def drain_docker_host(
    name: Annotated[str, Path(max_length=100)],
    change: DrainChange,
    services: ServicesDependency,
    identity: IdentityDependency,
) -> Any:
    """Have a host take no new sandboxes, or take new ones again: at all servers of the database, and over restarts."""
    try:
        view = await services.sandboxes.hosts.drain(name, change.draining)
    except KeyError:
        raise HTTPException(
            404, f"There is no Docker host {name!r}; docker_hosts in the configuration names them."
        ) from None
    return _info(view, services.settings.sandbox_image)


def _info(view: HostView, image: str) -> dict[str, Any]:
    facts = view._asdict()
    facts.pop("is_swept")
    return {
        **facts,
        "reason": view.reason or None,
        "since": datetime.fromtimestamp(view.since, UTC),
        "has_image": is_listed(image, facts.pop("images")),
    }
