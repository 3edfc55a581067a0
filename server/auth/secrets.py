"""`SecretBox`: encryption at rest, with a key that only the data folder's file holds."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from agent_core.errors import DrydockError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY_BYTES = 32
_NONCE_BYTES = 12
SEALED = "v1:"
"""What an encrypted text begins with."""

_log = logging.getLogger(__name__)


class SecretKeyError(DrydockError):
    """The key file cannot be read, made or used; the message names it and the fix."""


class SecretUnreadableError(DrydockError):
    """What was stored is not readable with this key: another key encrypted it, or it was tampered with."""


class SecretBox:
    """Encrypts short texts (AES-256-GCM), each bound to its purpose; `is_new`: the key was made just now."""

    def __init__(self, key: bytes, *, is_new: bool = False) -> None:
        if len(key) != _KEY_BYTES:
            raise SecretKeyError(f"a key has {_KEY_BYTES} bytes, this one {len(key)}")
        self._key = key
        self.is_new = is_new

    @property
    def key_id(self) -> str:
        """By what the key is known without being known: 32 hexadecimal digits."""
        return hmac.new(self._key, b"drydock: id of a key", hashlib.sha256).hexdigest()[:32]

    @property
    def key_text(self) -> str:
        """The key as its file has it: what must be hidden wherever it shows."""
        return base64.urlsafe_b64encode(self._key).decode("ascii")

    def derived(self, purpose: str) -> bytes:
        """32 bytes for another use of the key, of which nobody can find out the key."""
        return hmac.new(self._key, purpose.encode(), hashlib.sha256).digest()

    @classmethod
    def open(cls, key_file: Path) -> SecretBox:
        """The box whose key is in `key_file`, made if missing; `SecretKeyError` where it cannot be used."""
        try:
            key = _read_key(key_file)
            is_new = key is None
            if is_new:
                _create_key(key_file)
                key = _read_key(key_file)
        except OSError as error:
            raise SecretKeyError(
                f"the key file {key_file} cannot be used ({error.strerror or error}); "
                "give this user read and write access to it and to its folder"
            ) from error
        if key is None:
            raise SecretKeyError(f"the key file {key_file} vanished while it was read; start again")
        return cls(key, is_new=is_new)

    def encrypt(self, text: str, *, purpose: str) -> str:
        """`text` in a form fit for storing; `purpose` (where it is stored) is needed to read it again."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._cipher().encrypt(nonce, text.encode(), purpose.encode())
        return SEALED + base64.urlsafe_b64encode(nonce + sealed).decode("ascii")

    def decrypt(self, token: str, *, purpose: str) -> str:
        """The text that `encrypt` was given for the same purpose; else `SecretUnreadableError`."""
        from cryptography.exceptions import InvalidTag

        try:
            if not token.startswith(SEALED):
                raise ValueError("unknown form")
            sealed = base64.urlsafe_b64decode(token.removeprefix(SEALED).encode("ascii"))
            text = self._cipher().decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], purpose.encode())
        except (InvalidTag, ValueError) as error:
            raise SecretUnreadableError(
                "a stored secret cannot be read with this server's key; restore the key file that was in use when it "
                "was stored, or enter the secret again"
            ) from error
        return text.decode()

    def _cipher(self) -> AESGCM:
        # Loaded on first use: a server without stored secrets starts without this library.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._key)


def _read_key(key_file: Path) -> bytes | None:
    try:
        text = key_file.read_text("ascii").strip()
        mode = key_file.stat().st_mode
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise SecretKeyError(_no_key(key_file)) from error
    if mode & 0o077:
        _log.warning("the key file %s could be read by others; taking their rights away", key_file)
        key_file.chmod(0o600)
    try:
        key = base64.urlsafe_b64decode(text)
    except (binascii.Error, ValueError) as error:
        raise SecretKeyError(_no_key(key_file)) from error
    if len(key) != _KEY_BYTES:
        raise SecretKeyError(_no_key(key_file))
    return key


def _no_key(key_file: Path) -> str:
    return (
        f"the file {key_file} holds no key; restore it from a backup, or remove it to begin with a new key "
        "(stored secrets must then be entered again)"
    )


def _create_key(key_file: Path) -> None:
    """Make the file whole or not at all; of two processes that do so at once, the first one's key stands."""
    text = SecretBox(secrets.token_bytes(_KEY_BYTES)).key_text.encode("ascii") + b"\n"
    temporary = key_file.with_name(f".{key_file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, key_file)
        except FileExistsError:
            return
        folder = os.open(key_file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)
