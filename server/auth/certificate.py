"""The server's own certificate (`tls_certificate`, `tls_key`): checked, and taken anew when its files change."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from server.errors import ConfigurationError
from server.settings.settings import Settings

SOON: Final = timedelta(days=7)
"""So long before its end a certificate is complained about: whoever renews it has not done so."""

_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
_MAX_BYTES: Final = 1024 * 1024


class _EncryptedKeyError(Exception):
    """Raised where a password would be asked for."""


class Facts(NamedTuple):
    """What a certificate says: the names that it is for, and when it counts."""

    names: tuple[str, ...]
    begins: datetime
    ends: datetime

    def problem(self, now: datetime | None = None) -> str:
        """What is wrong with it today; "" where nothing is."""
        now = now or datetime.now(UTC)
        if now < self.begins:
            return f"it counts from {self.begins:%Y-%m-%d %H:%M} UTC on: look at this machine's clock"
        if now >= self.ends:
            return f"it ended at {self.ends:%Y-%m-%d %H:%M} UTC: renew it, clients refuse it"
        if self.ends - now < SOON:
            return f"it ends at {self.ends:%Y-%m-%d %H:%M} UTC, and nothing has renewed it yet"
        return ""


class ServerCertificate:
    """The certificate with its key, of PEM files; `key` may be in the file of the certificate.

    Connections get the newest one that could be used, also where its files are replaced one after the other, by
    renames or behind links. Raises `ConfigurationError` where they cannot be used at the beginning.
    """

    def __init__(self, certificate: Path, key: Path | None = None) -> None:
        self._certificate = certificate
        self._key = key or certificate
        self._seen = self._state()
        self._newest, self.facts = self._load()
        self._problem = ""
        # The first one's context is each connection's until it is asked which certificate to show.
        self.context = self._newest
        self.context.sni_callback = self._show_newest

    def renew(self) -> bool | str:
        """Look at the files; returns whether there is a new certificate, or what is wrong with what is there now.

        What is wrong is said once, and not before it has been so twice: the two files are not replaced at once.
        """
        state = self._state()
        if state == self._seen:
            return False
        try:
            self._newest, self.facts = self._load()
        except ConfigurationError as error:
            said, self._problem = self._problem, str(error)
            if said != self._problem:
                return False
            self._seen = state
            return self._problem
        self._seen, self._problem = state, ""
        return True

    def _show_newest(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str, _context: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _state(self) -> tuple[object, ...]:
        return tuple(_state_of(path) for path in {self._certificate, self._key})

    def _load(self) -> tuple[ssl.SSLContext, Facts]:
        chain = _read("tls_certificate", self._certificate, _CERTIFICATE, "a certificate")
        _read("tls_key" if self._key != self._certificate else "tls_certificate", self._key, _KEY, "a private key")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._key, password=_refuse)
        except _EncryptedKeyError:
            raise ConfigurationError(
                f"tls_key: {self._key} is encrypted, and nobody is there to type its password; keep one without, which"
                f" only the server's user can read (openssl pkey -in {self._key} -out …; chmod 600 …)"
            ) from None
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                text = f"tls_key: {self._key} is not the key of the certificate {self._certificate}"
                raise ConfigurationError(f"{text}, which has to stand first in its file") from None
            raise ConfigurationError(
                f"tls_certificate, tls_key: {self._certificate} and {self._key} cannot be used"
                f" ({error.reason or error}); they have to be PEM, as openssl and certbot write it"
            ) from None
        except OSError as error:  # replaced under our hands
            raise ConfigurationError(f"tls_certificate, tls_key: {error.strerror or error}") from None
        return context, _facts_of(chain)


def certificate_of(settings: Settings) -> ServerCertificate | None:
    """The server's own, None where it speaks plain HTTP; `ConfigurationError` where it cannot be used."""
    if settings.tls_certificate is None:
        return None
    return ServerCertificate(settings.tls_certificate, settings.tls_key)


def _refuse() -> str:
    raise _EncryptedKeyError


def _read(setting: str, path: Path, mark: bytes, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES)
    except OSError as error:
        raise ConfigurationError(f"{setting}: {path} cannot be read: {error.strerror or error}") from None
    if mark not in content:
        raise ConfigurationError(f"{setting}: {path} holds no {what.removeprefix('a ')} in PEM ({mark.decode()} …)")
    return content


def _facts_of(chain: bytes) -> Facts:
    from cryptography import x509  # only where there is a certificate

    try:
        certificate = x509.load_pem_x509_certificate(chain[chain.index(_CERTIFICATE) :])
    except ValueError as error:
        raise ConfigurationError(f"tls_certificate: the certificate cannot be read: {error}") from None
    return Facts(tuple(_names_of(certificate)), certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def _names_of(certificate: object) -> Iterator[str]:
    from cryptography import x509

    assert isinstance(certificate, x509.Certificate)  # noqa: S101 - its type is loaded late
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return
    yield from names.get_values_for_type(x509.DNSName)
    yield from map(str, names.get_values_for_type(x509.IPAddress))


def _state_of(path: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced, also behind a link."""
    try:
        facts = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
