"""Running conversations on the server: one `WebSession` each, and what happens around their life."""
