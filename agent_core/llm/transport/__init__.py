"""The ways to a model: HTTP, litellm, recordings; and what every way has in common (`exchange`)."""
