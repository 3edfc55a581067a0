"""The server: REST, Socket.IO and the database around `agent_core`, which never imports it."""
