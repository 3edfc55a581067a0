"""Doors for other programs: chat completions, MCP, editors (ACP), webhooks, previews of ports."""
