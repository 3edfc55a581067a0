"""Commands that talk to a running server: which one, and with which key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agent_core.errors import DrydockError
from drydock_client import (
    BusyError,
    ClientError,
    DrydockClient,
    KeyRefusedError,
    LimitError,
    NotDrydockError,
    UnreachableError,
)

DEFAULT_URL = "http://127.0.0.1:3000"
URL_VARIABLE = "DRYDOCK_URL"
CA_VARIABLE = "DRYDOCK_CA_FILE"
KEY_VARIABLES = ("DRYDOCK_API_KEY", "DRYDOCK_TOKEN", "SESSION_API_KEY")


class NoServerError(DrydockError):
    """No server could be asked: there is none, it is another one, it does not answer, or takes another token."""

    exit_status = 3


def client_of(
    url: str | None, key_file: Path | None, environment: Mapping[str, str], *, timeout: float = 30.0
) -> DrydockClient:
    """A client of the server that is meant, not open yet; `DrydockError` where the options cannot be used.

    `url` None is ``DRYDOCK_URL``, or else the address of a server with default settings; `key_file` (with the access
    token) None is the first of ``DRYDOCK_API_KEY``, ``DRYDOCK_TOKEN`` and ``SESSION_API_KEY``; `timeout` is seconds for
    one call. ``DRYDOCK_CA_FILE`` holds the certificates of whom to trust in place of the usual authorities.
    """
    address = url or environment.get(URL_VARIABLE) or DEFAULT_URL
    try:
        ca_file = environment.get(CA_VARIABLE) or None
        return DrydockClient(address, _key(key_file, environment), timeout=timeout, ca_file=ca_file)
    except ValueError as error:
        setting = CA_VARIABLE if str(error).startswith("ca_file: ") else "--url"
        raise DrydockError(f"{setting}: {str(error).removeprefix('ca_file: ')}") from error


def error_of(error: ClientError) -> DrydockError:
    """The same as an error for a user, with `words_of` it; `NoServerError` where the server could not be asked."""
    is_away = isinstance(error, UnreachableError | NotDrydockError | LimitError | BusyError)
    is_strange = isinstance(error, KeyRefusedError) and bool(error.fix)
    return (NoServerError if is_away or is_strange else DrydockError)(words_of(error))


def words_of(error: ClientError) -> str:
    """What went wrong, with the fix for whoever gave a command the options of `client_of`."""
    other = f"name another one with --url or {URL_VARIABLE}"
    match error:
        case UnreachableError():
            return f"{error.message} Start a server with `drydock serve`, or {other}."
        case NotDrydockError():
            return f"{error.message} If this is not the server that is meant, {other}."
        case KeyRefusedError(fix=str(fix)) if fix:
            key = f"with --key-file or {KEY_VARIABLES[0]}; the address that it prints when it starts has it"
            return f"{error.message}. Give the server's access token {key}."
    return str(error)


def _key(key_file: Path | None, environment: Mapping[str, str]) -> str | None:
    if key_file is None:
        return next((value for name in KEY_VARIABLES if (value := environment.get(name))), None)
    try:
        key = key_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise DrydockError(f"--key-file: {key_file} cannot be read: {error}") from error
    if not key:
        raise DrydockError(f"--key-file: {key_file} is empty; put the server's access token into it")
    return key
