"""A runner whose disk fails: an uploaded file, an edited one and restored ones are the old or the new, and no part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.runner.client import Answer, Client, Runner
from tests.storage.faults import NUMBERS, Faults, build

OLD, NEW = "old " * 5_000, "new " * 5_000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("library"))


@pytest.fixture
def faults(library: Path, directory: Path) -> Faults:
    return Faults(library, directory)


@pytest.fixture
def failing(faults: Faults, directory: Path) -> Iterator[Client]:
    (directory / "data").mkdir()
    runner = Runner(directory / "data", env=faults.environment)
    try:
        yield runner.connect()
    finally:
        runner.close()


def upload(client: Client) -> Answer:
    begun = client.call("transfer.write", path="file")
    if begun.message["ok"] is not True:
        return begun
    put = client.call("transfer.put", id=begun.result["id"], offset=0, blob=NEW.encode())
    kept = client.call("transfer.keep" if put.message["ok"] else "transfer.drop", id=begun.result["id"])
    return kept if put.message["ok"] else put


def edit(client: Client) -> Answer:
    return client.call("file.write", path=f"{client.hello['workspace']}/file", blob=NEW.encode())


def restore(client: Client) -> Answer:
    return client.call("workspace.restore", names=["c:new"], keep="c:kept")


@pytest.mark.parametrize("act", [upload, edit, restore])
def test_a_file_is_the_old_or_the_new_and_no_part_of_it_is_left(
    act: Callable[[Client], Answer], failing: Client, faults: Faults, directory: Path
) -> None:
    file = directory / "data" / "workspace" / "file"
    file.write_text(NEW)
    failing.call("workspace.snapshot", name="c:new")
    tried = 0
    for call in ("write", "open", "rename", "unlink"):
        for skip in range(8):
            for count in (1, -1):
                file.write_text(OLD)
                faults.switch(f"{call} {NUMBERS['ENOSPC']} {skip} {count}")
                answer = act(failing)
                failed = [path for _, has_failed, path in faults.calls() if has_failed]
                faults.switch("")
                what = f"{call} {skip} {count}: {failed} {answer.message}"
                assert file.read_text() == (NEW if answer.message["ok"] else OLD), what
                assert answer.message["ok"] or answer.error["code"] in ("no_space", "interrupted", "not_possible"), what
                assert [path.name for path in file.parent.iterdir()] == ["file"], what
                tried += bool(failed)
    assert tried >= 4
    file.write_text(OLD)
    act(failing).result  # noqa: B018
    assert file.read_text() == NEW
