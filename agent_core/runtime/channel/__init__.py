"""The server's end of the stream to a runner: requests, answers, tunnels, and getting to it."""
