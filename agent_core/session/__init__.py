"""Sessions: one conversation's parts, built, started and ended together."""
