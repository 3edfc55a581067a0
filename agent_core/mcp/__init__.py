"""Tools of servers that speak the Model Context Protocol (agent-core 3.5)."""
