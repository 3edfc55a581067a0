"""The packages of the distribution are the same wherever they are listed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    pattern.rstrip("*")
    for pattern in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"][
        "find"
    ]["include"]
]


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_is_in_the_servers_image_and_its_types_are_checked(package: str) -> None:
    assert re.search(rf"^COPY {package} {package}$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert f"!{package}" in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    (folders,) = re.findall(r"^for folder in (.*); do$", (ROOT / "scripts" / "types").read_text("utf-8"), re.MULTILINE)
    assert package in folders.split()
