"""What belongs to the user and to no conversation: settings and secrets."""

from __future__ import annotations

from typing import Any

from drydock_client.calls import Calls
from drydock_client.errors import NotDrydockError, NotFoundError
from drydock_client.http import segment
from drydock_client.reading import parsed, parsed_list
from drydock_client.results import Secret, Settings


class SettingsApi(Calls):
    """The user's settings."""

    async def get(self) -> Settings | None:
        """What is stored; None when nothing is yet."""
        try:
            return parsed(Settings, await self._http.json("GET", "/api/settings"))
        except NotFoundError:
            return None

    async def change(self, /, **values: Any) -> None:
        """Change the named settings, such as ``llm_model="…", llm_api_key="…"``; others stay.

        Conversations that run keep theirs until they are started again.

        Raises:
            InvalidError: a value is wrong; `field` says which.
        """
        await self._http.json("POST", "/api/settings", body=values, repeatable=True)


class SecretsApi(Calls):
    """The user's secrets: commands that name one have its value in their environment."""

    async def list(self) -> list[Secret]:
        """Names and descriptions of all; values are never told."""
        answer = await self._http.json("GET", "/api/secrets")
        if not isinstance(answer, dict):
            raise NotDrydockError(f"A list of secrets has another form than it should: {answer!r:.200}")
        return parsed_list(Secret, answer.get("custom_secrets"))

    async def create(self, name: str, value: str, *, description: str = "") -> None:
        """Store a new one.

        Raises:
            InvalidError: there is one of this name, or the name cannot be one.
        """
        await self._http.json("POST", "/api/secrets", body={"name": name, "value": value, "description": description})

    async def change(
        self, name: str, *, new_name: str | None = None, value: str | None = None, description: str | None = None
    ) -> None:
        """Give it another name, value or description; what is not given stays.

        Raises:
            NotFoundError: there is none of this name.
        """
        given = {"name": new_name or name, "value": value, "description": description}
        body = {key: text for key, text in given.items() if text is not None}
        await self._http.json("PUT", f"/api/secrets/{segment(name)}", body=body)

    async def delete(self, name: str) -> None:
        """Forget it.

        Raises:
            NotFoundError: there is none of this name.
        """
        await self._http.json("DELETE", f"/api/secrets/{segment(name)}")
