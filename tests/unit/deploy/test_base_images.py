"""`scripts/base-image`: the base images are the ones that were recorded, or the script says otherwise."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DEBIAN, NODE = "debian:bookworm-slim", "node:20-bookworm-slim"
FIRST, SECOND = f"sha256:{'1a' * 32}", f"sha256:{'2b' * 32}"

# What a tag means at the registry is in registry/TAG, an image that is here is a file here/NAME with its digest.
DOCKER = r"""#!/usr/bin/env bash
echo "docker $*" >>"$STATE/calls"
name() { printf '%s' "${1//\//_}"; }
case "$1 $2" in
  "image inspect")
    file="$STATE/here/$(name "${@: -1}")"
    [ -f "$file" ] || exit 1
    case "$*" in
      *RepoDigests*) if grep -q sha256 "$file"; then echo "debian@$(cat "$file")"; echo; fi ;;
      *stand-in*) if grep -q stand-in "$file"; then echo true; fi ;;
    esac ;;
  "pull -q")
    if [ ! -d "$STATE/registry" ]; then echo "no route to the registry" >&2; exit 1; fi
    case "$3" in
      *@*) printf '%s' "${3#*@}" >"$STATE/here/$(name "$3")" ;;
      *) cp "$STATE/registry/$(name "$3")" "$STATE/here/$(name "$3")" ;;
    esac ;;
  tag\ *) cp "$STATE/here/$(name "$2")" "$STATE/here/$(name "$3")" ;;
esac
"""
STAND_IN = '#!/usr/bin/env bash\nprintf stand-in >"$STATE/here/$1"\n'


class Host:
    """A checkout of the scripts, and an engine that is played."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.state = folder / "state"
        self.lock = self.checkout / "runtime_images" / "base-images.lock"
        self.first_pulls = self.checkout / "build" / "base-images.lock"
        (self.state / "here").mkdir(parents=True)
        (self.checkout / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "base-image", self.checkout / "scripts")
        self.lock.parent.mkdir()
        shutil.copy(ROOT / "runtime_images" / "base-images.lock", self.lock)
        self._program(self.checkout / "scripts" / "stand-in-image", STAND_IN)
        self._program(folder / "programs" / "docker", DOCKER)
        self._path = f"{folder / 'programs'}:{os.environ['PATH']}"

    @staticmethod
    def _program(path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def publish(self, digest: str) -> None:
        """What the tag means at the registry from now on."""
        (self.state / "registry").mkdir(exist_ok=True)
        (self.state / "registry" / DEBIAN).write_text(digest)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.checkout / "scripts" / "base-image", *arguments],
            env={"PATH": self._path, "STATE": str(self.state)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def pulled(self) -> list[str]:
        return re.findall(r"^docker pull -q (\S+)$", (self.state / "calls").read_text(), re.MULTILINE)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_first_pull_is_recorded_and_held_to(host: Host) -> None:
    host.publish(FIRST)
    assert host.run(DEBIAN).returncode == 0
    assert host.first_pulls.read_text() == f"{DEBIAN} {FIRST}\n"
    assert host.run(DEBIAN).returncode == 0
    assert host.pulled == [DEBIAN]
    (host.state / "here" / DEBIAN).write_text(SECOND)
    refused = host.run(DEBIAN)
    assert refused.returncode == 1
    assert f"it is {SECOND}, recorded is {FIRST}" in refused.stderr
    assert f"scripts/base-image --refresh {DEBIAN}" in refused.stderr


def test_what_is_recorded_is_what_is_pulled_whatever_the_tag_means_now(host: Host) -> None:
    host.publish(SECOND)
    host.lock.write_text(f"# images\n{DEBIAN} {FIRST}\n")
    assert host.run(DEBIAN).returncode == 0
    assert host.pulled == [f"debian@{FIRST}"]
    assert (host.state / "here" / DEBIAN).read_text() == FIRST
    assert not host.first_pulls.exists()


def test_a_change_that_is_meant_is_recorded_for_everybody(host: Host) -> None:
    host.publish(FIRST)
    host.run(DEBIAN)
    host.publish(SECOND)
    comments = host.lock.read_text()
    assert host.run("--refresh", DEBIAN).returncode == 0
    assert host.lock.read_text() == f"{comments}{DEBIAN} {SECOND}\n"
    assert host.run(DEBIAN).returncode == 0
    assert host.run("--env", DEBIAN).stdout == f"DEBIAN_IMAGE=debian@{SECOND}\n"


def test_an_image_of_no_registry_is_told_and_refused_where_one_is_recorded(host: Host) -> None:
    (host.state / "here" / DEBIAN).write_text("loaded")
    told = host.run(DEBIAN)
    assert (told.returncode, "NOTE" in told.stdout) == (0, True)
    host.lock.write_text(f"{DEBIAN} {FIRST}\n")
    refused = host.run(DEBIAN)
    assert (refused.returncode, "of no registry" in refused.stderr) == (1, True)


@pytest.mark.parametrize("recorded", ["", f"{DEBIAN} {FIRST}\n"])
def test_a_stand_in_is_never_used_without_a_word(host: Host, recorded: str) -> None:
    host.lock.write_text(recorded)
    for _ in range(2):
        done = host.run(DEBIAN)
        assert done.returncode == 0
        assert f"NOTE: {DEBIAN} is a STAND-IN made on this host" in done.stdout
    assert not host.first_pulls.exists()


@pytest.mark.parametrize("recorded", ["sha256:12", "latest", "sha256:" + "G" * 64])
def test_what_is_no_digest_is_refused(host: Host, recorded: str) -> None:
    host.publish(FIRST)
    host.lock.write_text(f"{DEBIAN} {recorded}\n")
    assert "is no digest" in host.run(DEBIAN).stderr
    assert not (host.state / "calls").exists() or host.pulled == []


@pytest.mark.parametrize("arguments", [[], ["--refresh"], ["debian"], ["--other", DEBIAN], ["-x:1"], ["a b:c"]])
def test_a_wrong_call_is_answered_with_the_right_one(host: Host, arguments: list[str]) -> None:
    done = host.run(*arguments)
    assert (done.returncode, "scripts/base-image [--refresh | --env] IMAGE" in done.stderr) == (2, True)


def test_every_base_image_can_be_named_by_digest() -> None:
    known = {"DEBIAN_IMAGE": DEBIAN, "NODE_IMAGE": NODE}
    compose = (ROOT / "docker-compose.yml").read_text()
    for path in ("Dockerfile", "deploy/engine_proxy/Dockerfile", "runtime_images/base/Dockerfile"):
        text = (ROOT / path).read_text()
        defaults = dict(re.findall(r"^ARG ([A-Z]+_IMAGE)=(\S+)$", text, re.MULTILINE))
        assert defaults.items() <= known.items()
        stages = set(re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE))
        for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
            assert base in stages or base in {f"${{{name}}}" for name in defaults}, (path, base)
        # Compose 1 gives a variable that is not set as an empty argument.
        for name, image in defaults.items():
            assert f"- {name}=${{{name}:-{image}}}\n" in compose


def test_what_is_recorded_in_the_repository_are_digests() -> None:
    for line in (ROOT / "runtime_images" / "base-images.lock").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"\S+:\S+ sha256:[0-9a-f]{64}", line), line
