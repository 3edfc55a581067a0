"""What the scripted model says in a run, which lines it has commands write, and the programs that these work with."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from agent_core.testing.model_server import ModelRequest
from agent_core.testing.model_turns import Call, Turn, call, calls, finish, say

EFFECTS: Final = "/workspace/effects"
SITE_PORT: Final = 8123
SECRET: Final = "value-two-123"
FORBIDDEN: Final = "forbidden"
"""What a hook of the plugin lets no command write."""

PROGRAM: Final = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "tools/call":
        open("/workspace/effects", "a").write("mcp\\n")
    version = asked.get("params", {}).get("protocolVersion")
    result = {
        "initialize": {"protocolVersion": version, "capabilities": {"tools": {}},
                       "serverInfo": {"name": "counter", "version": "1"}},
        "tools/list": {"tools": [{"name": "count", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "counted"}]},
    }.get(asked["method"], {})
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""An MCP program whose one tool writes a line."""

_SITE: Final = f"""
from http.server import BaseHTTPRequestHandler, HTTPServer
PAGE = b"<title>Quay</title><form method=post action=/sent><button>Send</button></form>"
class Site(BaseHTTPRequestHandler):
    def answer(self, line=""):
        if line:
            open("{EFFECTS}", "a").write(line + chr(10))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)
    def do_GET(self):
        self.answer("visit" if self.path == "/visit" else "")
    def do_POST(self):
        self.answer("sent")
HTTPServer(("127.0.0.1", {SITE_PORT}), Site).serve_forever()
"""
"""A page of a command in the background, which counts who comes and who sends."""

PLUGIN: Final = {
    ".plugin/plugin.json": '{"name": "tools", "version": "1.0"}',
    "skills/boats.md": "Boats float.",
    "hooks/hooks.json": '{"PreToolUse": [{"matcher": "terminal", "hooks": [{"command":'
    ' "sh \\"$DRYDOCK_PLUGIN_ROOT/hooks/guard.sh\\""}]}]}',
    "hooks/guard.sh": f"grep -q {FORBIDDEN} && {{ echo it may not be written >&2; exit 2; }}; exit 0",
}

Said = Turn | Callable[[ModelRequest], Turn]
_STEP = re.compile(r"((?:ONE|TWO|THREE|QUEUED|CHAT|DOOR|EDITOR|CHILD \w)) (\d+)")
_WORDS = ("ONE", "TWO", "THREE", "QUEUED", "CHAT", "DOOR", "EDITOR", "CHILD")


def line(text: str) -> Turn:
    return call("terminal", {"command": f"echo {text} >> {EFFECTS}"})


def _click(request: ModelRequest) -> Turn:
    shown = next((str(one["content"]) for one in reversed(request.messages) if one["role"] == "tool"), "")
    found = re.search(r'\[(\d+)\] button "Send"', shown)
    code = f"click('{found[1]}')" if found is not None else "noop(0)"
    return call("browser", {"code": code, "security_risk": "LOW"})


def turns_of(phase: str, parts: frozenset[str]) -> Sequence[Said]:
    """What the model says after the user's message with this word."""
    if phase != "ONE":
        text = {"TWO": "taken-back", "THREE": "third"}.get(phase, phase.lower().replace(" ", "-"))
        return [line(text), finish(phase.lower())]
    turns: list[Said] = [
        line("first"),
        call("file_editor", {"command": "create", "path": "/workspace/notes", "file_text": "one"}),
        line("secret-${#SECOND}"),
    ]
    if "plugin" in parts:
        turns.append(line(FORBIDDEN))
    if "kernel" in parts:
        turns.append(call("execute_ipython_cell", {"code": f"open('{EFFECTS}', 'a').write('cell\\n')"}))
    if "mcp" in parts:
        turns.append(call("count"))
    if "sign-in" in parts:
        turns.append(call("whoami"))
    if "subagents" in parts:
        turns.append(call("delegate", {"command": "spawn", "ids": ["a", "b"], "agent_types": ["bash"]}))
        turns.append(call("delegate", {"command": "delegate", "tasks": {"a": "CHILD a", "b": "CHILD b"}}))
    if "browser" in parts:
        site = {"command": "create", "path": "/workspace/site.py", "file_text": _SITE}
        wait = f"for n in $(seq 99); do curl -s localhost:{SITE_PORT} && break; sleep 0.05; done"
        begin = f"(python3 site.py >/dev/null 2>&1 &); {wait}"
        turns += [call("file_editor", site), call("terminal", {"command": f"cd /workspace; {begin}"})]
        turns += [call("browser", {"code": f"goto('http://localhost:{SITE_PORT}/visit')", "security_risk": "LOW"})]
        turns.append(_click)
    two = (
        Call("terminal", {"command": f"echo left >> {EFFECTS}"}),
        Call("file_editor", {"command": "view", "path": "/workspace/notes"}),
    )
    return [*turns, calls(*two), finish("one")]


def wanted_lines(parts: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """What is in the file of effects in the end, once each, and what stands in the actions that write it."""
    wanted: dict[str, tuple[str, ...]] = {one: (f"echo {one} ",) for one in ("first", "left", "third")}
    wanted[f"secret-{len(SECRET)}"] = ("echo secret-",)
    if "kernel" in parts:
        wanted["cell"] = ("'cell",)
    if "mcp" in parts:
        wanted["mcp"] = ('"count"',)
    if "subagents" in parts:
        wanted |= {f"child-{one}": (f"CHILD {one}", f"echo child-{one} ") for one in "ab"}
    if "browser" in parts:
        wanted |= {"visit": ("/visit",), "sent": ("click(",)}
    return wanted


def model(parts: frozenset[str]) -> Callable[[ModelRequest], Turn]:
    """The scripted model: asked again after a kill it says the same again.

    Each of its answers says which it is, so that it knows how far it is also where what came before was summed up.
    """

    def answer(request: ModelRequest) -> Turn:
        if not request.json.get("tools"):
            return say("A title")
        phase, number = "", 0
        for message in request.messages:
            content = message["content"]
            texts = [content] if isinstance(content, str) else [one.get("text", "") for one in content or ()]
            for text in texts:
                if message["role"] == "user" and text.startswith(_WORDS):
                    phase, number = text.strip().partition("\n")[0], 0
                elif message["role"] == "assistant" and (step := _STEP.match(text)) is not None:
                    phase, number = step[1], int(step[2]) + 1
        turns = turns_of(phase, parts)
        said = turns[min(number, len(turns) - 1)]
        turn = said if isinstance(said, Turn) else said(request)
        return replace(turn, text=f"{phase} {number}")

    return answer
