"""The Docker engines that sandboxes may run on, as the configuration names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from agent_core.destinations import is_loopback
from agent_core.runtime.docker.docker_host import DockerHost, EngineTls
from server.settings.text_fields import FromTable

_SCHEMES = ("unix", "tcp", "ssh")
_FORMS = "unix:///var/run/docker.sock, tcp://10.0.0.5:2376 or ssh://user@machine"


class DockerHostOptions(BaseModel):
    """One engine: where it is, how it is to be trusted, and how much it is to take."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    ssh_config: str | None = None
    max_sandboxes: int | None = Field(None, ge=1)
    draining: bool = False

    @field_validator("url")
    @classmethod
    def _is_an_engines(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            raise ValueError(f"is no address; write it as {_FORMS}") from None
        is_one = bool(parts.path) if parts.scheme == "unix" else bool(parts.hostname)
        if parts.scheme not in _SCHEMES or not is_one or (parts.scheme == "tcp" and not port):
            raise ValueError(f"is no address of an engine; write it as {_FORMS}")
        if parts.password is not None:
            raise ValueError("has a password; ssh takes keys alone, by its own configuration")
        return value

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        parts = urlsplit(self.url)
        files = {"tls_ca": self.tls_ca, "tls_cert": self.tls_cert, "tls_key": self.tls_key}
        given = [name for name, file in files.items() if file]
        if parts.scheme != "tcp" and given:
            raise ValueError(f"{', '.join(given)}: only for tcp://; leave it out")
        if parts.scheme != "ssh" and self.ssh_config:
            raise ValueError("ssh_config: only for ssh://; leave it out")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls_cert and tls_key belong together; set both")
        if parts.scheme == "tcp" and not given and not is_loopback(parts.hostname or ""):
            raise ValueError(
                "tcp:// without TLS lets everybody who reaches it be root there: set tls_ca, tls_cert and tls_key, or"
                " use ssh://"
            )
        return self


HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
DockerHostTable = Annotated[dict[HostName, DockerHostOptions], FromTable]


def hosts_of(table: Mapping[str, DockerHostOptions]) -> list[DockerHost]:
    """The engines that are named, in their order; none: the one of the environment."""
    return [_host(name, options) for name, options in table.items()]


def _host(name: str, options: DockerHostOptions) -> DockerHost:
    tls = EngineTls(options.tls_ca, options.tls_cert, options.tls_key)
    rest = options.model_dump(include={"ssh_config", "max_sandboxes", "draining"})
    return DockerHost(name, options.url, tls if any(tls) else None, **rest)
