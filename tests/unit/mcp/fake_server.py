"""An MCP server as a program with nothing but the standard library, which can misbehave in many ways.

Its one argument is a JSON object: ``tools`` (names), ``delay`` (seconds before it reads), ``silent`` (never answers),
``noise`` (lines before its first answer), ``exit`` (code with which it ends at once, after a word on its standard
error), ``fussy`` (ends likewise when it is to list its tools), ``modern`` (knows the newest version of the protocol
only), ``deaf`` (reads no more once it has listed its tools), ``pids`` (file that its process id, and that of a child it
starts, are written to), ``notes`` (file for the calls and the other messages that it was sent).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
NOTHING: dict[str, Any] = {"type": "object"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # one pixel
TOOLS: dict[str, dict[str, Any]] = {
    "echo": {"inputSchema": TEXT, "description": "Says it again."},
    "count": {"inputSchema": NUMBER, "annotations": {"readOnlyHint": True}},
    "environment": {"inputSchema": NOTHING},
    "told": {"inputSchema": NOTHING},
    "slow": {"inputSchema": NOTHING},
    "steps": {"inputSchema": NUMBER},
    "die": {"inputSchema": NOTHING},
    "die_reading": {"inputSchema": NOTHING, "annotations": {"readOnlyHint": True}},
    "fail": {"inputSchema": NOTHING},
    "refuse": {"inputSchema": NOTHING},
    "unreadable": {"inputSchema": NOTHING},
    "picture": {"inputSchema": NOTHING},
    "huge": {"inputSchema": NUMBER},
    "grow": {"inputSchema": NOTHING},
    "odd.name/here": {"inputSchema": NOTHING},
    "b" * 60: {"inputSchema": NOTHING},
    "broken": {"inputSchema": {"type": "object", "properties": {"x": {"type": "nonsense"}}}},
    "own": {
        "inputSchema": {
            "type": "object",
            "properties": {"summary": {"type": "string"}, "security_risk": {"type": "string"}},
            "required": ["summary", "security_risk"],
        }
    },
}

MODERN = len(sys.argv) > 1 and bool(json.loads(sys.argv[1]).get("modern"))
COMPLETE: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if MODERN else {}

_lock = threading.Lock()


def write(target: TextIO, line: str) -> None:
    target.write(f"{line}\n")
    target.flush()


def send(message: dict[str, Any]) -> None:
    with _lock:
        write(sys.stdout, json.dumps({"jsonrpc": "2.0", **message}))


def text(value: str, *, error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], "isError": error}


def main() -> None:
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    names = list(options.get("tools", ["echo", "count"]))
    if "pids" in options:
        child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
        with open(options["pids"], "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n{child.pid}\n")
    if "exit" in options:
        write(sys.stderr, "the wheel is gone")
        sys.exit(options["exit"])
    time.sleep(options.get("delay", 0))
    for number in range(options.get("noise", 0)):
        write(sys.stdout, f"Loading… {number}")
    for line in sys.stdin:
        message = json.loads(line)
        if options.get("fussy") and message["method"] == "tools/list":
            write(sys.stderr, "no list today")
            sys.exit(1)
        if "notes" in options and ("id" not in message or message["method"] == "tools/call"):
            with open(options["notes"], "a", encoding="utf-8") as file:
                file.write(f"{message['method']}\n")
        if "id" in message and not options.get("silent"):
            answer(message, names)
        while options.get("deaf") and message["method"] == "tools/list":
            time.sleep(1)


def answer(message: dict[str, Any], names: list[str]) -> None:
    method, request, params = message["method"], message["id"], message.get("params", {})
    if MODERN and method == "initialize":
        data = {"supported": ["2026-07-28"], "requested": params["protocolVersion"]}
        send({"id": request, "error": {"code": -32022, "message": "unsupported version", "data": data}})
    elif MODERN and method == "server/discover":
        send(
            {"id": request, "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **COMPLETE}}
        )
    elif method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        info = {"name": "fake", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
        send({"id": request, "result": result})
    elif method == "tools/list":
        send({"id": request, "result": {"tools": [{"name": name, **TOOLS[name]} for name in names], **COMPLETE}})
    elif method == "tools/call":
        token = params.get("_meta", {}).get("progressToken")
        for step in range(params["arguments"]["n"] if params["name"] == "steps" else 0):
            report = {"progressToken": token, "progress": step + 1, "total": 3, "message": f"step\n{step + 1}"}
            send({"method": "notifications/progress", "params": report})
        if params["name"] == "told":
            send({"id": request, "result": {**text(json.dumps(params.get("_meta", {}))), **COMPLETE}})
            return
        call(request, params["name"], params.get("arguments") or {}, names)
    else:
        send({"id": request, "error": {"code": -32601, "message": "unknown method"}})


def call(request: Any, name: str, arguments: dict[str, Any], names: list[str]) -> None:
    if name == "slow":
        return
    if name == "unreadable":
        half = '{"jsonrpc": "2.0", "id": %s, "result": {"content": [{"type": "text", "text": "\\ud800"}]}}'
        write(sys.stdout, half % json.dumps(request))
        return
    if name.startswith("die"):
        os._exit(3)
    if name == "refuse":
        send({"id": request, "error": {"code": -32602, "message": "not today"}})
        return
    results: dict[str, Callable[[], dict[str, Any]]] = {
        "echo": lambda: text(arguments["text"]),
        "count": lambda: text("x" * arguments["n"]),
        "environment": lambda: text(json.dumps(dict(os.environ))),
        "fail": lambda: text("it did not work", error=True),
        "picture": lambda: {
            "content": [
                {"type": "text", "text": "Look:"},
                {"type": "image", "data": PIXEL, "mimeType": "image/png"},
                {"type": "image", "data": "no base64!", "mimeType": "image/png"},
                {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
                {"type": "resource_link", "name": "notes", "uri": "file:///notes"},
                {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            ]
        },
        "huge": lambda: text("begin" + "x" * arguments["n"] + "end"),
        "grow": lambda: text("grown"),
        "steps": lambda: text("there"),
        "odd.name/here": lambda: text("odd"),
        "own": lambda: text(json.dumps(arguments)),
    }
    if name == "grow":
        names.append("huge")
        send({"method": "notifications/tools/list_changed"})
    done = {"resultType": "complete"} if MODERN else {}
    send({"id": request, "result": {**results[name](), **done}})


if __name__ == "__main__":
    main()
