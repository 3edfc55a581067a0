"""Our events ⇄ the public JSON of the wire protocol (sections 2 and 3). Pure: no I/O, no clock, no state."""
