"""The addresses under which a page opens previews, with the pass in them."""

from __future__ import annotations

from dataclasses import dataclass

from server.auth.preview_addresses import PreviewAddresses, path_url, ticket_url
from server.doors.preview.access import PASS_SECONDS, TICKET_SECONDS, Kind, Passes, PreviewPass


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
            is_kept: the page keeps it and opens it at any time: it counts for hours instead of minutes, and stays the
                same for hours, so that a page that asks again need not open it anew.
        """
        given = PreviewPass(conversation_id, port, user_id, f"{scheme}://{host}")
        is_path = self.addresses.mode(host) == "path"
        kind: Kind = "path" if is_path else "ticket"
        seconds = PASS_SECONDS if is_path else TICKET_SECONDS
        sealed = self.passes.lasting(kind, given) if is_kept else self.passes.make(kind, given, seconds=seconds)
        if is_path:
            return path_url(scheme, host, sealed)
        return ticket_url(self.addresses.origin(scheme, host, conversation_id, port), sealed)
