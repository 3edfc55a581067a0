"""The OpenAPI document of the routes, complete: what the gate and the dependencies answer is in it as well."""
