"""A program for a network namespace of its own, without a network: installs a bundle, serves, and has a conversation.

unshare --net python without_network.py BUNDLE FOLDER HOME
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1
WAIT_SECONDS = 90.0


def bring_loopback_up() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def ask(url: str, body: Any = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=90) as answer:
        return json.load(answer)


def main() -> None:
    bundle, folder, home = sys.argv[1:]
    bring_loopback_up()
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    subprocess.run([sys.executable, "-I", bundle, folder], check=True)
    log = Path(home, "log")
    with log.open("wb") as out:
        command = [f"{folder}/bin/drydock", "serve", "--port", "0", "--sandbox", "local"]
        server = subprocess.Popen(command, cwd=home, env={**os.environ, "HOME": home}, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while (found := re.search(r" is at (http://\S+)", log.read_text())) is None:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        url = found[1]
        with urllib.request.urlopen(url, timeout=90) as page:
            assert b'<div id="root">' in page.read()
        conversation = ask(f"{url}/api/conversations", {"initial_user_msg": "Show me around."})["conversation_id"]
        while True:
            assert time.monotonic() < deadline
            events = ask(f"{url}/api/conversations/{conversation}/events?limit=100")["events"]
            states = [one["extras"]["agent_state"] for one in events if one.get("observation") == "agent_state_changed"]
            if states[-1:] == ["finished"]:
                break
            assert states[-1:] != ["error"], events[-1]
            time.sleep(0.1)
        assert sum(one.get("observation") == "run" for one in events) >= 2
        request = urllib.request.Request(f"{url}/api/conversations/{conversation}", method="DELETE")
        urllib.request.urlopen(request, timeout=90).close()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    sys.stdout.write("all of it without a network\n")


main()
