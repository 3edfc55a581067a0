"""Doors for clients of the Model Context Protocol: tools served over HTTP, and over standard input and output."""
