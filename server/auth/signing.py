"""`SigningKey`: what a server signs (Ed25519), so that others can check it without a secret, and without Drydock."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final

from server.auth.secrets import SecretBox

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PUBLIC_BYTES: Final = 32
_PURPOSE: Final = "drydock: signing key"
_DER: Final = bytes.fromhex("302a300506032b6570032100")
"""What stands before the bytes of a public key of this kind in the form that openssl reads (RFC 8410)."""


class SigningKey:
    """Signs with a key that is made of the one in the data folder: another one there makes another one here."""

    def __init__(self, box: SecretBox) -> None:
        self._seed = box.derived(_PURPOSE)
        self._made: Ed25519PrivateKey | None = None
        self._public = b""

    @property
    def public(self) -> bytes:
        self._key()
        return self._public

    def sign(self, text: bytes) -> bytes:
        return self._key().sign(text)

    def _key(self) -> Ed25519PrivateKey:
        if self._made is None:
            # Loaded on first use: a server that signs nothing starts without this library.
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

            self._made = Ed25519PrivateKey.from_private_bytes(self._seed)
            self._public = self._made.public_key().public_bytes_raw()
        return self._made


def is_signed(text: bytes, signature: bytes, public: bytes) -> bool:
    """Whether whoever has the private key to `public` has signed this."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def pem_of(public: bytes) -> str:
    """A public key as openssl reads it."""
    return f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(_DER + public).decode()}\n-----END PUBLIC KEY-----\n"


def public_of(pem: str) -> bytes:
    """The public key in such a text; `ValueError`: it holds none of this kind."""
    lines = [line.strip() for line in pem.strip().splitlines()]
    if len(lines) < 3 or lines[0] != "-----BEGIN PUBLIC KEY-----" or lines[-1] != "-----END PUBLIC KEY-----":
        raise ValueError("it begins and ends otherwise than a public key")
    found = base64.b64decode("".join(lines[1:-1]), validate=True)
    if not found.startswith(_DER) or len(found) != len(_DER) + PUBLIC_BYTES:
        raise ValueError("it is no Ed25519 key")
    return found[len(_DER) :]


def fingerprint_of(public: bytes) -> str:
    """By what people tell a public key: as ``openssl pkey -pubin -outform DER | sha256sum`` has it."""
    return hashlib.sha256(_DER + public).hexdigest()
