"""What a server's process loads of SQLAlchemy."""

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
print("sqlalchemy.engine" in sys.modules, "sqlalchemy.orm" in sys.modules)
"""
WHOLE = """
import sys
from server.db.without_orm import load_without_orm

load_without_orm()
load_without_orm()
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
print("sqlalchemy.orm" in sys.modules)
import sqlalchemy.ext.asyncio as package
print(hasattr(package, "NoSuchThing"), "sqlalchemy.orm" in sys.modules)
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
print(package.AsyncEngine is AsyncEngine, AsyncSession.__module__, package.create_async_engine is create_async_engine)
"""


def printed(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_a_server_does_without_the_object_mapper() -> None:
    assert printed(SERVER)[-2:] == ["True", "False"]


def test_whoever_asks_for_more_has_all_of_it() -> None:
    assert printed(WHOLE) == ["False", "False", "True", "True", "sqlalchemy.ext.asyncio.session", "True"]
