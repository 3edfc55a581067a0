"""The program that the conformance suite starts for each scenario: has the test, which listens at the socket that its
first argument names, drive our client, and ends as that says. Nothing is imported here that takes time to load."""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
    connection.connect(sys.argv[1])
    known = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    order = {"scenario": os.environ.get("MCP_CONFORMANCE_SCENARIO", ""), "known": known, "url": sys.argv[-1]}
    connection.sendall(json.dumps(order).encode() + b"\n")
    problem = connection.makefile().readline().strip()
sys.exit(problem or 0)
