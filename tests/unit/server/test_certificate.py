"""The server's own certificate: what cannot be used is told in words, and new files are taken when they are whole."""

from __future__ import annotations

import io
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from server.auth.certificate import ServerCertificate
from server.cli.doctor import doctor
from server.errors import ConfigurationError
from server.settings.settings import Settings
from tests.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def shown(certificate: ServerCertificate, authority: Authority) -> str:
    """The name in what a client is shown now, who has to trust it."""
    trust = ssl.create_default_context(cafile=str(authority.file))
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trust.wrap_bio(ours, theirs, server_hostname="localhost")
    server = certificate.context.wrap_bio(theirs, ours, server_side=True)
    for one in (client, server, client, server):
        try:
            one.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found: Any = client.getpeercert()
    return str(found["subject"][0][0][1])


def test_key_and_certificate_may_stand_in_one_file(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.vouch("one", "localhost", "127.0.0.1")
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes() + authority.file.read_bytes())
    served = ServerCertificate(both)
    assert shown(served, authority) == "one"
    assert served.facts.names == ("localhost", "127.0.0.1")
    assert served.facts.problem() == ""


def test_what_cannot_be_used_is_told_with_the_file_and_what_to_do(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.vouch("one", "localhost")
    _, other = authority.vouch("two", "localhost")
    _, locked = authority.vouch("three", "localhost", password="hush")
    nowhere, text, torn = tmp_path / "nowhere.pem", tmp_path / "text.pem", tmp_path / "torn.pem"
    text.write_text("no PEM at all")
    torn.write_bytes(certificate.read_bytes()[:300])
    for files, told in {
        (nowhere, key): f"tls_certificate: {nowhere} cannot be read: No such file or directory",
        (certificate, nowhere): f"tls_key: {nowhere} cannot be read: No such file or directory",
        (tmp_path, key): f"tls_certificate: {tmp_path} cannot be read: Is a directory",
        (text, key): f"tls_certificate: {text} holds no certificate in PEM",
        (certificate, text): f"tls_key: {text} holds no private key in PEM",
        (certificate, None): f"tls_certificate: {certificate} holds no private key in PEM",
        (certificate, other): f"tls_key: {other} is not the key of the certificate {certificate}",
        (certificate, locked): f"tls_key: {locked} is encrypted, and nobody is there to type its password",
        (torn, key): f"tls_certificate, tls_key: {torn} and {key} cannot be used",
    }.items():
        with pytest.raises(ConfigurationError) as caught:
            ServerCertificate(*files)
        assert str(caught.value).startswith(told)


def test_files_that_are_replaced_one_after_the_other_are_taken_when_both_are_there(
    authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.vouch("old", "localhost")
    new, its_key = authority.vouch("new", "localhost")
    served = ServerCertificate(certificate, key)
    assert served.renew() is False
    new.rename(certificate)
    assert served.renew() is False  # the key may be on its way
    assert shown(served, authority) == "old"
    its_key.rename(key)
    assert served.renew() is True
    assert served.renew() is False
    assert shown(served, authority) == "new"


def test_links_that_lead_elsewhere_are_a_change(authority: Authority, tmp_path: Path) -> None:
    """As Kubernetes replaces what it mounts: a folder behind a link, behind which the files' own links lead."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        for file, suffix in zip(authority.vouch(name, "localhost"), ("crt", "key"), strict=True):
            file.rename(tmp_path / name / f"tls.{suffix}")
    (tmp_path / "data").symlink_to("old")
    for suffix in ("crt", "key"):
        (tmp_path / f"tls.{suffix}").symlink_to(f"data/tls.{suffix}")
    served = ServerCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    (tmp_path / "data.new").symlink_to("new")
    os.replace(tmp_path / "data.new", tmp_path / "data")
    assert served.renew() is True
    assert shown(served, authority) == "new"


def test_what_stays_wrong_is_said_once_and_the_former_certificate_stays(authority: Authority) -> None:
    certificate, key = authority.vouch("old", "localhost")
    served = ServerCertificate(certificate, key)
    key.write_text("half a file")
    found = [served.renew() for _ in range(4)]
    assert found[0] is found[2] is found[3] is False
    assert "holds no private key" in str(found[1])
    certificate.unlink()
    assert [served.renew(), "No such file" in str(served.renew())] == [False, True]
    assert shown(served, authority) == "old"
    new, its_key = authority.vouch("new", "localhost")
    new.rename(certificate)
    its_key.rename(key)
    assert served.renew() is True
    assert shown(served, authority) == "new"


@pytest.mark.parametrize(
    ("days", "told"), [(30, ""), (3, "nothing has renewed it yet"), (-1, "it ended at"), (100, "counts from")]
)
def test_a_certificate_that_does_not_count_is_served_and_told(authority: Authority, days: int, told: str) -> None:
    files = authority.vouch("one", "localhost", days=days)
    facts = ServerCertificate(*files).facts
    now = datetime.now(UTC) - timedelta(days=10 if days == 100 else 0)
    assert told in facts.problem(now)
    assert bool(facts.problem(now)) == bool(told)


def test_the_doctor_says_for_whom_and_until_when_it_is(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.vouch("one", "localhost", "drydock.example", days=-1)
    settings = Settings(
        data_dir=tmp_path / "data", sandbox="unconfined", port=0, tls_certificate=certificate, tls_key=key
    )
    out = io.StringIO()
    assert doctor(settings, out) == 0
    assert "-- certificate for localhost, drydock.example, until " in " ".join(out.getvalue().split())
    assert "renew it, clients refuse it" in out.getvalue()
    out = io.StringIO()
    assert doctor(settings.model_copy(update={"tls_key": certificate}), out) == 1
    assert "MISS certificate" in out.getvalue()
