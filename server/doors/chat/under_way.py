"""Which conversations are giving a chat its answer at this moment: so long no other chat goes on in them."""

from __future__ import annotations

from weakref import WeakValueDictionary


class Claim:
    """A conversation that belongs to one answer until it is `release`d, or nobody has this any more."""

    def __init__(self, conversation_id: str, claims: WeakValueDictionary[str, Claim]) -> None:
        self._conversation_id = conversation_id
        self._claims = claims

    def release(self) -> None:
        """The answer is complete, or will never be."""
        if self._claims.get(self._conversation_id) is self:
            del self._claims[self._conversation_id]


class UnderWay:
    """The claims of a server. They are held weakly: an answer that nobody began to read is never told of its end."""

    def __init__(self) -> None:
        self._claims: WeakValueDictionary[str, Claim] = WeakValueDictionary()

    def claim(self, conversation_id: str) -> Claim | None:
        """The claim on a conversation; None while there is another one."""
        if conversation_id in self._claims:
            return None
        claim = Claim(conversation_id, self._claims)
        self._claims[conversation_id] = claim
        return claim
