"""Providers of git repositories: one interface (`provider`), a module for each kind, and a user's accounts there."""
