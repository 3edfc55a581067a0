"""The forms of what the routes answer, as the OpenAPI document shows them: one module per group of routes."""
