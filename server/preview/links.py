"""The addresses under which a page opens previews, with the pass in them."""

from __future__ import annotations

from dataclasses import dataclass

from server.preview.access import PASS_SECONDS, TICKET_SECONDS, Passes, PreviewPass
from server.preview.addresses import PreviewAddresses, path_url, ticket_url


@dataclass(frozen=True, slots=True)
class PreviewLinks:
    """Makes links to previews. Whoever has one may look into that one port for as long as it counts."""

    addresses: PreviewAddresses
    passes: Passes

    def link(
        self, scheme: str, host: str, conversation_id: str, port: int, user_id: str, *, is_kept: bool = False
    ) -> str:
        """The address of a preview, for a page that was asked for under this scheme and ``Host``.

        Args:
            scheme: ``http`` or ``https``.
            host: of the request for the link.
            conversation_id: whose sandbox.
            port: in that sandbox.
            user_id: who asked.
            is_kept: the page keeps it and opens it at any time: it counts for hours instead of minutes.
        """
        given = PreviewPass(conversation_id, port, user_id, f"{scheme}://{host}")
        if self.addresses.mode(host) == "path":
            return path_url(scheme, host, self.passes.make("path", given, seconds=PASS_SECONDS))
        ticket = self.passes.make("ticket", given, seconds=PASS_SECONDS if is_kept else TICKET_SECONDS)
        return ticket_url(self.addresses.origin(scheme, host, conversation_id, port), ticket)
