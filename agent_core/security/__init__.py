"""Security: which actions need a person's word before they run."""
