"""For each request of the protocol: what is asked, and what an honest runner answers."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

HASH: Final = "0123456789abcdef0123456789abcdef01234567"
PICTURE: Final = "data:image/png;base64,AAAA"
_FILE: Final[dict[str, Any]] = {
    "command": "str_replace",
    "path": "/workspace/a",
    "text": "Done.",
    "is_error": False,
    "prev_exist": True,
    "old_content": "a",
    "new_content": "b",
    "diff": "-a\n+b",
}
_FOUND: Final[dict[str, Any]] = {
    "root": "/workspace",
    "files": ["/workspace/a"],
    "truncated": False,
    "unreadable": 1,
    "too_large": 0,
}


class Exchange(NamedTuple):
    """A request and its honest answer."""

    args: dict[str, Any]
    result: dict[str, Any]
    blob: bytes | None = None


EXCHANGES: Final[dict[str, Exchange]] = {
    "browser.run": Exchange(
        {"calls": [{"name": "click"}], "look": {"tree": True}},
        {
            "status": "completed",
            "text": "clicked",
            "error": "",
            "notices": ["one"],
            "downloads": ["/workspace/x"],
            "url": "https://example.com",
            "tabs": [{"id": "1", "url": "https://example.com", "title": "Example"}],
            "active": 0,
            "focused": "3",
            "tree": "[1] a",
            "screenshot": PICTURE,
            "screenshot_path": "/workspace/p.png",
            "marks": PICTURE,
        },
    ),
    "cancel": Exchange({"id": 1}, {"cancelled": True}),
    "code.lint": Exchange({"path": "/a.py"}, {"problems": [{"line": 3, "text": "SyntaxError"}]}),
    "disk.state": Exchange({}, {"bytes": 5, "entries": 2, "over": False, "stops": 1}),
    "environment.set": Exchange({"variables": {"A": "1"}}, {}),
    "file.edit": Exchange({"command": "str_replace", "path": "/workspace/a"}, {**_FILE, "image": PICTURE}),
    "file.range": Exchange(
        {"command": "read", "path": "/workspace/a"},
        {**_FILE, "first": 1, "last": 2, "lines": 2, "content": "a\nb\n", "version": HASH},
    ),
    "file.read": Exchange({"path": "/a", "limit": 10}, {"path": "/a", "size": 3, "offset": 0, "eof": True}, b"abc"),
    "file.whole": Exchange({"command": "write", "path": "/a"}, _FILE),
    "file.write": Exchange({"path": "/a"}, {"path": "/a", "created": True, "size": 3}),
    "folder.list": Exchange(
        {"path": "src"},
        {
            "path": "src",
            "entries": [
                {"name": "a.py", "kind": "file", "link": False, "size": 3, "modified": 1e9, "hidden": False},
                {"name": "lib", "kind": "folder", "link": True, "size": None, "modified": None, "hidden": True},
            ],
            "left_out": 2,
        },
    ),
    "git.clone": Exchange({"url": "https://example.com/a"}, {"cloned": True, "branch": "main", "mark": 1}),
    "git.diff": Exchange({"path": "a"}, {"modified": "b", "original": "a"}),
    "git.identity": Exchange({"name": "Ann"}, {"error": "no", "code": "no_git"}),
    "git.instructions": Exchange(
        {"url": "https://example.com/a", "folders": ["skills"]}, {"files": [{"path": "skills/a.md", "content": "a"}]}
    ),
    "git.log": Exchange(
        {"limit": 2},
        {
            "commits": [
                {
                    "hash": HASH,
                    "parents": [HASH],
                    "author": "Ann",
                    "email": "ann@example.com",
                    "date": "2026-01-01T00:00:00Z",
                    "refs": ["main"],
                    "subject": "Begin",
                    "body": "",
                }
            ],
            "has_more": True,
            "start": HASH,
        },
    ),
    "git.status": Exchange(
        {"directory": ""},
        {
            "repositories": [
                {
                    "path": "lib",
                    "branch": "main",
                    "head": HASH,
                    "upstream": "origin/main",
                    "ahead": 1,
                    "behind": 2,
                    "base": {"name": "main", "commit": HASH},
                    "changes": [{"status": "M", "path": "lib/a"}],
                    "left_out": 0,
                    "is_cut": False,
                }
            ],
            "errors": ["one"],
        },
    ),
    "journal.ack": Exchange({"keys": ["a"]}, {"forgotten": 1}),
    "journal.lookup": Exchange({"key": "a"}, {"state": "done"}),
    "log.end": Exchange({"log": "c", "last": 3}, {}),
    "kernel.restart": Exchange({}, {"restarted": True}),
    "kernel.run": Exchange(
        {"code": "1", "max_output": 1000},
        {
            "status": "completed",
            "output": "1",
            "omitted": 0,
            "images": [PICTURE],
            "working_dir": "/workspace",
            "python": "/usr/bin/python3",
            "notice": "",
        },
    ),
    "patch.apply": Exchange(
        {"patch": "*** Begin Patch"},
        {"text": "Done!", "is_error": False, "paths": ["/workspace/a"], "diff": "-a", "fuzz": 0},
    ),
    "ping": Exchange({}, {"journal": "ok", "sessions": []}),
    "ports.list": Exchange(
        {}, {"ports": [{"port": 80, "addresses": ["127.0.0.1"], "pid": 3, "process": "a", "command": "a b"}]}
    ),
    "processes.freeze": Exchange({}, {"frozen": True}),
    "processes.thaw": Exchange({}, {}),
    "search.glob": Exchange({"pattern": "*", "limit": 5}, _FOUND),
    "search.grep": Exchange({"pattern": "a", "limit": 5}, _FOUND),
    "shell.interrupt": Exchange({"session": "default"}, {"interrupted": True}),
    "shell.kill": Exchange({"session": "default"}, {"killed": True}),
    "shell.run": Exchange(
        {"command": "ls", "max_output": 1000},
        {
            "status": "completed",
            "exit_code": 0,
            "prefix": "",
            "output": "a",
            "omitted": 0,
            "working_dir": "/workspace",
            "pid": -1,
            "python": "/usr/bin/python3",
            "username": "agent",
            "hostname": "box",
            "running": False,
            "notice": "",
            "shell_ended": False,
        },
    ),
    "transfer.drop": Exchange({"id": "a1"}, {}),
    "transfer.keep": Exchange({"id": "a1"}, {"size": 3}),
    "transfer.next": Exchange({"id": "a1", "offset": 0, "limit": 10}, {"eof": True}, b"0123456789"),
    "transfer.put": Exchange({"id": "a1", "offset": 0}, {}),
    "transfer.read": Exchange(
        {"path": "a"}, {"id": "a1", "kind": "file", "size": 3, "modified": 10**18, "tag": "1-2-3", "name": "a"}
    ),
    "transfer.write": Exchange({"path": "a"}, {"id": "a1"}),
    "workspace.facts": Exchange(
        {},
        {
            "working_dir": "/workspace",
            "user": "agent",
            "hostname": "box",
            "os": "Debian",
            "python": "3.11.2",
            "git": {"branch": "main", "remote": "https://example.com/a", "root": "/workspace"},
            "instructions": [{"path": "/workspace/AGENTS.md", "content": "Be kind."}],
            "skills": [{"path": "/workspace/s.md", "content": "x"}],
            "agents": [{"path": "/workspace/a.md", "content": "x"}],
        },
    ),
    "workspace.pack": Exchange({"names": ["c:1"], "offset": 0}, {"packed": None, "eof": True}, b"tar"),
    "workspace.restore": Exchange({"names": ["c:1"]}, {"restored": "c:1", "written": 1, "removed": 0}),
    "workspace.snapshot": Exchange({"name": "c:1"}, {"files": 1, "left_alone": 0}),
    "workspace.unpack": Exchange({"offset": 0}, {"entries": 0}),
}
