"""`drydock image`: built where there is no checkout, known again by its content, and its failure told."""

from __future__ import annotations

import io
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_core.errors import SandboxError
from server.cli import image as command

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[3]
SMALL = "ARG DEBIAN_IMAGE=drydock/sandbox:base\nFROM ${DEBIAN_IMAGE}\n"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """What is brought along is an image that is made in a moment; its folder and its name."""
    name = f"drydock/test-{secrets.token_hex(4)}"
    for kind in ("base", "browser"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "requirements.lock").touch()
    (tmp_path / "base-images.lock").write_text("# nothing is recorded\n")
    (tmp_path / "base" / "Dockerfile").write_text(SMALL)
    (tmp_path / "browser" / "Dockerfile").write_text(f"FROM {name}:base\n")
    monkeypatch.setattr(command, "_FOLDER", tmp_path)
    monkeypatch.setattr(command, "OWN_IMAGES", name)
    yield tmp_path, name
    subprocess.run(["docker", "rmi", "-f", f"{name}:base", f"{name}:browser"], capture_output=True, check=False)


def said(kind: str = "base", *, force: bool = False) -> list[str]:
    out = io.StringIO()
    assert command.image(out, kind=kind, force=force) == 0
    return out.getvalue().splitlines()


def test_it_is_built_once_with_what_it_is_built_on_and_anew_when_its_content_changes(small: tuple[Path, str]) -> None:
    folder, name = small
    building, built, *_ = said("browser")
    assert building == f"building {name}:base (a few minutes the first time)"
    assert built.startswith(f"built {name}:base, ")
    assert said("browser") == [f"{name}:base is up to date", f"{name}:browser is up to date"]
    assert len(said(force=True)) == 2
    (folder / "base" / "Dockerfile").write_text(SMALL + "LABEL dev.drydock.other=1\n")
    assert said()[0].startswith(f"building {name}:base")


def test_the_last_words_of_a_build_that_fails_are_told(small: tuple[Path, str]) -> None:
    (small[0] / "base" / "Dockerfile").write_text(SMALL + "RUN echo these are the last words; exit 3\n")
    with pytest.raises(SandboxError, match=r"these are the last words(?s:.)*returned a non-zero code: 3"):
        said()


@pytest.mark.parametrize("kind", ["base", pytest.param("browser", marks=pytest.mark.browser_image)])
def test_the_script_of_the_checkout_and_the_command_know_each_others_images(kind: str) -> None:
    script = [str(ROOT / "scripts/sandbox-image"), kind]
    subprocess.run(script, capture_output=True, check=True)  # other tests may have given the name to another one
    assert said(kind)[-1] == f"drydock/sandbox:{kind} is up to date"
    assert "is up to date" in subprocess.run(script, capture_output=True, text=True, check=True).stdout


def test_the_base_goes_by_the_digest_that_is_recorded(small: tuple[Path, str]) -> None:
    assert command._base_argument() == {}
    digest = f"sha256:{'0' * 64}"
    (small[0] / "base-images.lock").write_text(f"# a comment\nnode:20 sha256:1\ndebian:bookworm-slim {digest}\n")
    assert command._base_argument() == {"DEBIAN_IMAGE": f"debian@{digest}"}
