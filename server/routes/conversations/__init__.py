"""The routes of conversations: made, led, read, and what is in their workspaces."""
