"""A user's own secrets: values go in and never come out."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from pydantic import BaseModel, Field

from agent_core.errors import DrydockError
from agent_core.security.secrets import MAX_VALUE_BYTES
from server.auth.identity import Identity
from server.auth.secrets import SecretUnreadableError
from server.db.repositories.user_secrets import SecretExistsError, TooManySecretsError
from server.dependencies import IdentityDependency, Services, ServicesDependency
from server.errors import ReplyError, log_level, status_of, stored_problem
from server.routes.query import LINKED, PagingDependency
from server.routes.replies import Confirmation, errors
from server.routes.route_classes import make_router

logger = logging.getLogger(__name__)
router = make_router("/api")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

NameField = Annotated[str, Field(max_length=200)]
Value = Annotated[str, Field(max_length=MAX_VALUE_BYTES)]
Description = Annotated[str, Field(max_length=2000)]


class SecretName(BaseModel):
    """A secret as it is shown: its value never is."""

    name: str
    description: str | None


class SecretNames(BaseModel):
    """A user's own secrets."""

    custom_secrets: list[SecretName]


class NewSecret(BaseModel, extra="ignore", hide_input_in_errors=True):
    """The body of ``POST /api/secrets``."""

    name: NameField
    value: Value
    description: Description | None = None


class SecretChange(BaseModel, extra="ignore", hide_input_in_errors=True):
    """The body of ``PUT /api/secrets/{name}``: what is left out, or null, stays as it is."""

    name: NameField
    description: Description | None = None
    value: Value | None = None


@router.get("/secrets", response_model=SecretNames, responses={200: LINKED})
async def list_secrets(
    services: ServicesDependency, identity: IdentityDependency, paging: PagingDependency
) -> dict[str, Any]:
    """Names and descriptions, by name."""
    try:
        names = await services.database.user_secrets.names(identity.user_id)
    except DrydockError as error:
        logger.error("the secrets of user %r were not read: %s", identity.user_id, error)
        raise ReplyError(status_of(error), {"error": stored_problem(error, "Failed to get secret names")}) from error
    page = paging.linked(sorted(names), lambda one: (one.name,), str)
    return {"custom_secrets": [one._asdict() for one in page]}


@router.post("/secrets", status_code=201, response_model=Confirmation, responses=errors(400, 409))
async def create_secret(body: NewSecret, services: ServicesDependency, identity: IdentityDependency) -> dict[str, str]:
    """Store a secret and give it to the conversations that run."""
    _check(body.name, body.value)
    async with _changing(services, identity):
        await services.database.user_secrets.create(body.name, body.value, body.description or "", identity.user_id)
    return {"message": "Secret created successfully"}


@router.put("/secrets/{secret_id}", response_model=Confirmation, responses=errors(400, 404, 409))
async def update_secret(
    secret_id: str, body: SecretChange, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, str]:
    """Give it another name or description; with `value`, another value, which the old one stays hidden beside."""
    _check(body.name, body.value)
    repository = services.database.user_secrets
    async with _changing(services, identity):
        found = await repository.change(
            secret_id, new_name=body.name, description=body.description, value=body.value, user_id=identity.user_id
        )
        # Where there are none at all, the protocol calls it a success.
        if not found and await repository.names(identity.user_id):
            raise _not_found(secret_id)
    return {"message": "Secret updated successfully"}


@router.delete("/secrets/{secret_id}", response_model=Confirmation, responses=errors(404, 409))
async def delete_secret(secret_id: str, services: ServicesDependency, identity: IdentityDependency) -> dict[str, str]:
    """Forget it; no command gets it any more, and what is known of its value stays hidden."""
    async with _changing(services, identity):
        if not await services.database.user_secrets.delete(secret_id, identity.user_id):
            raise _not_found(secret_id)
    return {"message": "Secret deleted successfully"}


@asynccontextmanager
async def _changing(services: Services, identity: Identity) -> AsyncIterator[None]:
    try:
        yield
        await services.manager.refresh_secrets(identity.user_id)
    except ReplyError:
        raise
    except SecretExistsError as error:
        raise ReplyError(400, {"message": str(error)}) from error
    except TooManySecretsError as error:
        raise ReplyError(400, {"error": str(error)}) from error
    except SecretUnreadableError as error:
        raise ReplyError(409, {"error": str(error)}) from error
    except DrydockError as error:
        logger.log(log_level(error, logging.ERROR), "a secret of user %r was not stored: %s", identity.user_id, error)
        raise ReplyError(
            status_of(error), {"error": stored_problem(error, "Something went wrong storing the secret")}
        ) from error


def _check(name: str, value: str | None) -> None:
    if not _VARIABLE.fullmatch(name):
        raise ReplyError(
            422,
            {
                "error": f"name: {name[:80]!r} cannot name a variable, by which commands get the secret; use letters "
                "without accents, digits and underscores, with no digit first, such as API_KEY"
            },
        )
    if value is not None and not value.strip():
        raise ReplyError(422, {"error": "value: it is empty; send the secret itself"})
    if value is not None and len(value.encode()) > MAX_VALUE_BYTES:
        raise ReplyError(422, {"error": f"value: it is longer than {MAX_VALUE_BYTES} bytes; send a shorter one"})


def _not_found(secret_id: str) -> ReplyError:
    return ReplyError(404, {"error": f"Secret with ID {secret_id[:200]} not found"})
