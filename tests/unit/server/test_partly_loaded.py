"""What a server's process loads of libraries of which it uses a part."""

from __future__ import annotations

import subprocess
import sys

SERVER = """
import sys
from server.cli import main
try:
    main(["serve", "--sandbox", "docker", "--host", "0.0.0.0"])
except SystemExit:
    pass
print(*(name in sys.modules for name in ("sqlalchemy.engine", "sqlalchemy.orm", "uvicorn.server", "click")))
"""
WHOLE = """
import sys
from server.cli.partly_loaded import load_partly

load_partly()
load_partly()
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
print("sqlalchemy.orm" in sys.modules)
import sqlalchemy.ext.asyncio as package
print(hasattr(package, "NoSuchThing"), "sqlalchemy.orm" in sys.modules)
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
print(package.AsyncEngine is AsyncEngine, AsyncSession.__module__, package.create_async_engine is create_async_engine)
import uvicorn
before = uvicorn.Server
print("click" in sys.modules, uvicorn.run.__module__, uvicorn.Server is before, uvicorn.__version__ > "0")
"""


def printed(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_a_server_does_without_an_object_mapper_and_another_command_line() -> None:
    assert printed(SERVER)[-4:] == ["True", "False", "True", "False"]


def test_whoever_asks_for_more_has_all_of_it() -> None:
    found = printed(WHOLE)
    assert found[:6] == ["False", "False", "True", "True", "sqlalchemy.ext.asyncio.session", "True"]
    assert found[6:] == ["False", "uvicorn.main", "True", "True"]
