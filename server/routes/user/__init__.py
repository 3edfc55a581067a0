"""The routes of a user: settings, keys, accounts, and what their agents are to know."""
