"""Names of users: what one may be, and which of them look alike."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from agent_core.errors import DrydockError

MAX_NAME_CHARS: Final = 64
MAX_EMAIL_CHARS: Final = 254
_EMAIL: Final = re.compile(r"[^@\s<>()\[\],;:\\\"]{1,64}@[^@\s<>()\[\],;:\\\"]{1,189}")
_WITH_LETTERS: Final = "._-@+"

_TOGETHER: Final = (
    frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}),
    frozenset({"CJK", "HANGUL"}),
    frozenset({"CJK", "BOPOMOFO"}),
)
"""Scripts that one name is written in; of all others it has one."""

_LIKE: Final = str.maketrans(
    dict(zip("авеёзіїјкмнорсѕтухԁԛԝһӏь", "aBeeзiijkMHopcsTyxdqwhlb", strict=True))
    | dict(zip("αβγεηικμνορτυχωσϲ", "aByenikuvoptuxwoc", strict=True))
    | {"0": "o", "1": "l", "i": "l", "|": "l", "ı": "l", "5": "s", "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d"}
)
"""Letters and digits that are taken for another one; small letters, since names are compared by them."""


class NameRefusedError(DrydockError):
    """The text can be no user's name, or no address of one; the message says why."""


def checked_name(text: str) -> str:
    """The name as it is kept and shown; `NameRefusedError` where it can be none."""
    name = unicodedata.normalize("NFKC", text).strip()
    if not name:
        raise NameRefusedError("name: it is empty; choose a name")
    if len(name) > MAX_NAME_CHARS:
        raise NameRefusedError(f"name: it has {len(name)} characters; at most {MAX_NAME_CHARS} will do")
    strange = [char for char in name if unicodedata.category(char)[0] not in "LMN" and char not in _WITH_LETTERS]
    if strange:
        shown = ", ".join(f"U+{ord(char):04X}" for char in strange[:3])
        raise NameRefusedError(f"name: it holds {shown}; use letters, digits and {' '.join(_WITH_LETTERS)}")
    if unicodedata.category(name[0])[0] == "M" or not any(unicodedata.category(char)[0] in "LN" for char in name):
        raise NameRefusedError("name: it begins with no letter or digit; choose another one")
    scripts = {unicodedata.name(char, "?").split()[0] for char in name if unicodedata.category(char)[0] == "L"}
    if len(scripts) > 1 and not any(scripts <= known for known in _TOGETHER):
        raise NameRefusedError(
            f"name: it mixes letters of several scripts ({', '.join(sorted(scripts)).lower()}), which are taken for one"
            " another; use those of one"
        )
    return name


def look_of(name: str) -> str:
    """The same for names that a reader takes for one another: in any case, with letters that look alike."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).strip().casefold())
    plain = "".join(char for char in unicodedata.normalize("NFD", folded) if char not in "._-")
    return plain.translate(_LIKE).casefold().replace("rn", "m").replace("vv", "w")


def checked_email(text: str) -> str:
    """The address in small letters, by which it is compared; `NameRefusedError` where it is none."""
    email = unicodedata.normalize("NFKC", text).strip().lower()
    if len(email) > MAX_EMAIL_CHARS or not email.isprintable() or not _EMAIL.fullmatch(email):
        raise NameRefusedError("email: this is no address; it looks like ann@example.com")
    return email
