"""The ways to a model: HTTP, the client library, recordings; and what every way has in common (`exchange`)."""
