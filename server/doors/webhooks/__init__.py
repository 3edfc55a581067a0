"""Webhooks: what happens in conversations, sent to addresses that users chose."""
