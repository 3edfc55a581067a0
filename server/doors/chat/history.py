"""The history that each request of a chat brings along: what is new in it, and what it went on from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from server.doors.chat.forms import ChatMessage

_SPEAKERS = {"user": "User", "assistant": "Assistant"}


class NothingSaidError(ValueError):
    """The history does not end with a word of the user's."""


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """A chat as it was sent.

    Attributes:
        past: what was said up to the last answer.
        text, images: what the user says now.
        instructions: what the client tells the agent about itself; may change from turn to turn.
        speaker: whom the client speaks for, as it names them; empty where it does not.
    """

    past: tuple[ChatMessage, ...]
    text: str
    images: tuple[str, ...]
    instructions: str
    speaker: str = ""

    @classmethod
    def of(cls, messages: Sequence[ChatMessage], *, speaker: str = "") -> ChatHistory:
        """Divide a request's messages.

        Raises:
            NothingSaidError: the last of them is not the user's, or empty.
        """
        spoken = [message for message in messages if message.role in _SPEAKERS]
        if not spoken or spoken[-1].role != "user":
            raise NothingSaidError("messages: the last one must be the user's")
        answered = max((at for at, message in enumerate(spoken) if message.role == "assistant"), default=-1)
        now = spoken[answered + 1 :]
        text = "\n\n".join(message.text for message in now if message.text)
        images = tuple(url for message in now for url in message.images)
        if not text and not images:
            raise NothingSaidError("messages: the user's last one is empty")
        told = (message.text for message in messages if message.role in ("system", "developer"))
        return cls(tuple(spoken[: answered + 1]), text, images, "\n\n".join(filter(None, told)), speaker)

    @property
    def digests(self) -> list[str]:
        """Of what was said up to the last answer, the one to go by first in front; none at the beginning of a chat.

        Two chats may begin alike, and the instructions then tell one from the other; but clients may also change them
        in the middle of a chat, so the second one is without.
        """
        return self._digests([_plain(message) for message in self.past]) if self.past else []

    def digests_after(self, answer: str) -> list[str]:
        """What `digests` will be when the client has got this answer and says something more."""
        now: list[object] = ["user", self.text, list(self.images)]
        given: list[object] = ["assistant", answer.strip(), []]
        return self._digests([*map(_plain, self.past), now, given])

    def _digests(self, said: list[list[object]]) -> list[str]:
        spoken: list[list[object]] = [["speaker", self.speaker, []]] if self.speaker else []
        told: list[list[object]] = [["system", self.instructions, []]] if self.instructions else []
        return list(dict.fromkeys((_digest([*spoken, *told, *said]), _digest([*spoken, *said]))))

    @property
    def whole_text(self) -> str:
        """What the user says now, behind what was said before, for an agent that has not heard it."""
        if not self.past:
            return self.text
        before = "\n\n".join(f"{_SPEAKERS[message.role]}: {message.text}" for message in self.past)
        return f"[What was said in this chat before]\n{before}\n\n[Now]\n{self.text}"


def _plain(message: ChatMessage) -> list[object]:
    return [message.role, message.text, message.images]


def _digest(said: list[list[object]]) -> str:
    # Clients may join or divide neighbouring messages of the user.
    joined: list[list[object]] = []
    for role, text, images in said:
        if joined and role == "user" == joined[-1][0]:
            joined[-1] = [role, f"{joined[-1][1]}\n\n{text}".strip(), [*_listed(joined[-1][2]), *_listed(images)]]
        else:
            joined.append([role, text, images])
    return hashlib.sha256(json.dumps(joined).encode()).hexdigest()


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []
