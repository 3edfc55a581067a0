"""Reads the server's settings once, at the edge: command line over environment over TOML file over defaults."""

from __future__ import annotations

import contextlib
import logging
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr, TypeAdapter, ValidationError

from agent_core.events.masking import SENSITIVE_NAME
from agent_core.llm.profiles import HOME_VARIABLE
from agent_core.spelling import UNKNOWN_OPTION, meant_at, nearest
from server.errors import ConfigurationError
from server.settings.extensions import import_modules
from server.settings.first_generation import ConfigurationFile, is_first_generation, read_first_generation
from server.settings.settings import Settings
from server.settings.text_fields import Words

_log = logging.getLogger(__name__)

PREFIX = "DRYDOCK_"
CONFIG_VARIABLE = "DRYDOCK_CONFIG"

IN_FILE = "_FILE"
"""Behind the name of a setting's variable: the value is what is in the file of that path."""

CLIENT_VARIABLES = ("DRYDOCK_URL", "DRYDOCK_API_KEY", "DRYDOCK_CA_FILE")
"""Of commands that talk to a running server (`settings.running_server`): they may be set where a server starts, too."""

MODEL_VARIABLES = {
    "LLM_MODEL": "llm_model",
    "LLM_API_KEY": "llm_api_key",
    "LLM_BASE_URL": "llm_base_url",
}
"""The common names of the model's variables; the same with the prefix wins over them."""

PROTOCOL_VARIABLES = {
    "SESSION_API_KEY": "token",
    "ALLOW_SET_CONVERSATION_ID": "allow_set_conversation_id",
    "PERMITTED_CORS_ORIGINS": "allowed_origins",
    "LOG_ALL_EVENTS": "log_all_events",
}
"""The protocol's names of some settings; the same with the prefix wins here too."""

_HIDDEN = re.compile("SecretStr|McpConfig|LLMProfile")
"""Types of settings whose values are not repeated in messages."""

_ADDRESS = re.compile("://[^/]*@")
"""In a value that is not repeated either: an address may hold a password."""

_MAX_SHOWN = 500


def variable_name(field: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + field.upper()


class _Source(NamedTuple):
    """Under which name a setting was given, and in which file."""

    name: str
    file: str = ""


def load_settings(
    options: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> Settings:
    """Read the settings from all places; `options` that are None count as not given.

    Raises:
        ConfigurationError: an unknown name, a bad value or an unreadable file; the message names the place, the
            value's problem and what to do.
    """
    environment = _with_files(environment or {})
    given: dict[str, Any] = {}
    places: dict[tuple[str, ...], _Source] = {}
    for variable, key, value in _from_environment(environment):
        given[key], places[key,] = value, _Source(variable)
    for key, value in (options or {}).items():
        if value is not None:
            given[key], places[key,] = value, _Source(f"--{key.replace('_', '-')}")
    named_file = config_file or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    _import_first(given)
    file = ConfigurationFile() if named_file is None else _from_file(named_file, given)
    values = file.values | given
    for at in {(key,): key for key in file.values} | file.places:
        if at[0] not in given:
            place = file.places.get(at, at[0])
            places[at] = places.get((place,), _Source(place, f" in {named_file}"))
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        # `from None`: pydantic's own text would quote the values, and some of them are secrets.
        raise ConfigurationError(_describe(error, places)) from None
    return settings.with_remarks(file.remarks)


def _import_first(given: Mapping[str, Any]) -> None:
    """Import the modules that are named beside a file, which may name what they register; problems are told later."""
    with contextlib.suppress(ValueError):
        import_modules(TypeAdapter(Words).validate_python(given.get("modules", ())))


def _from_file(path: Path, given: Mapping[str, Any]) -> ConfigurationFile:
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read the configuration file {path}: {error.strerror or error}") from error
    except RecursionError:
        raise ConfigurationError(f"the configuration file {path} is nested too deeply; write it flatter") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the configuration file {path} is not valid TOML: {error}") from error
    if is_first_generation(data):
        found = read_first_generation(data, Settings.model_fields, str(path), given)
    else:
        found = ConfigurationFile(data)
    for key in found.values:
        if key not in Settings.model_fields:
            raise ConfigurationError(f"{path}: there is no setting {key!r}; {_meant(key, Settings.model_fields)}")
    types = {key: str(Settings.model_fields[key].annotation) for key, value in found.values.items() if value}
    secret = [key for key, kind in types.items() if _HIDDEN.search(kind)]
    if secret and path.stat().st_mode & stat.S_IROTH:
        _log.warning("everybody on this machine can read %s, which holds %s: chmod 600 it", path, ", ".join(secret))
    return found


def _with_files(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables, where ``NAME_FILE`` stands for what is in that file: a secret need not be in the environment."""
    names = {*map(variable_name, Settings.model_fields), *MODEL_VARIABLES, *PROTOCOL_VARIABLES}
    of_files = {name + IN_FILE for name in names}
    found = {name: value for name, value in environment.items() if name not in of_files}
    for name in names:
        if path := environment.get(name + IN_FILE):
            if environment.get(name):
                raise ConfigurationError(f"{name} and {name}{IN_FILE} are both set; leave one of them out")
            found[name] = _content_of(path, name + IN_FILE)
    return found


def _content_of(path: str, variable: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ConfigurationError(f"{variable}: cannot read {path}: {reason}") from error


def _from_environment(environment: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    for variable, key in (MODEL_VARIABLES | PROTOCOL_VARIABLES).items():
        if environment.get(variable):
            yield variable, key, environment[variable]
    known = {variable_name(field): field for field in Settings.model_fields}
    for variable, value in environment.items():
        if not variable.startswith(PREFIX) or variable in (CONFIG_VARIABLE, HOME_VARIABLE, *CLIENT_VARIABLES):
            continue
        if variable not in known:
            raise ConfigurationError(f"{variable} is no setting; {_meant(variable, [*known, CONFIG_VARIABLE])}")
        if value:
            yield variable, known[variable], value


def _meant(name: str, known: Iterable[str]) -> str:
    found = nearest(name, known)
    return (
        f"did you mean {found}?" if found else "docs/configuration.md lists all settings (drydock docs configuration)"
    )


def _describe(error: ValidationError, places: Mapping[tuple[str, ...], _Source]) -> str:
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        at = tuple(str(name) for name in problem["loc"] if name != "[key]") or ("settings",)
        field = at[0]
        known = max((one for one in places if one == at[: len(one)]), key=len, default=at[:1])
        source = places.get(known, _Source(field))
        inner = ".".join(at[len(known) :])
        place = f"{source.name}{' ' if source.name.endswith(']') else '.'}{inner}" if inner else source.name
        place += source.file
        value = problem["input"]
        info = Settings.model_fields.get(field)
        is_secret = isinstance(value, SecretStr) or (info is not None and _HIDDEN.search(str(info.annotation)))
        shown = repr(value)
        is_secret = is_secret or field.endswith("_url") or _ADDRESS.search(shown) or len(shown) > _MAX_SHOWN
        is_secret = is_secret or (isinstance(value, dict | list) and SENSITIVE_NAME.search(shown))
        shown = "" if is_secret else f" {shown}:"
        text = problem["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
        if problem["type"] == "extra_forbidden":
            is_told = text.startswith(UNKNOWN_OPTION)
            shown, text = "", text if is_told else f"there is no such setting; {meant_at(Settings, problem['loc'])}"
        lines.append(f"{place}:{shown} {text}".replace(":  ", ": "))
    return "; ".join(dict.fromkeys(lines))  # what is wrong in one place may be so for several settings
