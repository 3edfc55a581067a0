"""Our events ⇄ the public JSON of docs/protocol.md. Pure: no I/O, no clock, no state."""
