"""`Passwords`: hashes them with argon2id, a few at a time, and never in the event loop."""

from __future__ import annotations

import asyncio
import base64
import os
import unicodedata
from dataclasses import dataclass
from typing import Final

from agent_core.errors import DrydockError

MIN_CHARS: Final = 12
MAX_CHARS: Final = 1024
AT_ONCE: Final = 2
MAX_WAITING: Final = 32
WAIT_SECONDS: Final = 10.0
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_FEW: Final = 5


class PasswordRefusedError(DrydockError):
    """The text is too weak to be a password; the message says what is wanted."""


class PasswordsBusyError(DrydockError):
    """So many passwords are being looked at that this one was not."""

    def __init__(self) -> None:
        super().__init__("Too many are signing in at the moment; try again in a few seconds.")


@dataclass(frozen=True, slots=True)
class PasswordCost:
    """What hashing takes: memory in KiB, and how often it is gone through."""

    memory_kib: int = 19 * 1024
    iterations: int = 2

    @property
    def prefix(self) -> str:
        return f"$argon2id$v=19$m={self.memory_kib},t={self.iterations},p=1$"


COST: Final = PasswordCost()


class Passwords:
    """Makes hashes of passwords and compares them; what is stored says by itself what it took."""

    def __init__(self, cost: PasswordCost | None = None) -> None:
        self._cost = cost or COST
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """What is kept of it."""
        return await self._in_turn(password, None)

    async def matches(self, password: str, stored: str | None) -> bool:
        """Whether it is the one that `stored` was made of. Takes as long where there is none."""
        found = await self._in_turn(password, stored or self._nobodys())
        return bool(found) and stored is not None

    def is_outdated(self, stored: str) -> bool:
        """Whether it was made with another cost than today's."""
        return not stored.startswith(self._cost.prefix)

    def _nobodys(self) -> str:
        salt, digest = (base64.b64encode(os.urandom(n)).decode().rstrip("=") for n in (_SALT_BYTES, _HASH_BYTES))
        return f"{self._cost.prefix}{salt}${digest}"

    async def _in_turn(self, password: str, stored: str | None) -> str:
        if self._waiting >= MAX_WAITING:
            raise PasswordsBusyError
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                async with self._turn:
                    return await asyncio.to_thread(_hashed, _encoded(password), stored, self._cost)
        except TimeoutError:
            raise PasswordsBusyError from None
        finally:
            self._waiting -= 1


def check_password(password: str, name: str = "") -> None:
    """Raise `PasswordRefusedError` unless it may be one; only its length and variety are looked at."""
    if len(password) < MIN_CHARS:
        raise PasswordRefusedError(f"password: it has {len(password)} characters; choose one of at least {MIN_CHARS}")
    if len(password) > MAX_CHARS:
        raise PasswordRefusedError(f"password: it has more than {MAX_CHARS} characters; choose a shorter one")
    if len(set(password)) < _FEW or (name and password.casefold() == name.casefold()):
        raise PasswordRefusedError("password: it is easily guessed; choose another one, such as four unusual words")


def _encoded(password: str) -> bytes:
    # However a keyboard makes an accented letter, it is the same password.
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")


def _hashed(password: bytes, stored: str | None, cost: PasswordCost) -> str:
    """The hash, or with a stored one itself where it fits, else ""."""
    from cryptography.exceptions import InvalidKey
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

    if stored is None:
        made = Argon2id(
            salt=os.urandom(_SALT_BYTES),
            length=_HASH_BYTES,
            iterations=cost.iterations,
            lanes=1,
            memory_cost=cost.memory_kib,
        )
        return made.derive_phc_encoded(password)
    try:
        Argon2id.verify_phc_encoded(password, stored)
    except (InvalidKey, ValueError):
        return ""
    return stored
