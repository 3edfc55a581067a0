"""The REST routes, one module for each group of wire-protocol section 4."""
