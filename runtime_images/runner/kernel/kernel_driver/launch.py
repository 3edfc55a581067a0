"""Starts a kernel through jupyter_client, on sockets in a folder of its own, and notices its end."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager

_PATH_LIMIT = 90
_LAST_WORDS = 2000
_BOOT = """
import importlib.util, os, site, sys
runner, library, first = sys.argv[1:4]
del sys.argv[1:4]
if site.ENABLE_USER_SITE:
    own = site.getusersitepackages()
    try:
        os.makedirs(own, exist_ok=True)
    except OSError:
        pass
    site.addsitedir(own)
if library:
    sys.path.insert(1 if first else len(sys.path), library)
spec = importlib.util.spec_from_file_location(
    "drydock_runner", runner + "/__init__.py", submodule_search_locations=[runner]
)
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])
del importlib, runner, library, first, spec
from drydock_runner.kernel.kernel_driver.inside import main
main()
"""


class _OurKernel(KernelSpecManager):
    """Knows one kernel, ours, whatever is installed elsewhere."""

    command: List[str] = []  # noqa: RUF012 - replaced in each instance

    def get_kernel_spec(self, kernel_name: str) -> Any:
        return KernelSpec(argv=self.command, display_name=kernel_name, language="python", interrupt_mode="signal")


class Launched:
    """A kernel's process, from its start to its end."""

    def __init__(self, workspace: str, library: str, folder: str, *, library_first: bool = False) -> None:
        """Start it; ``library`` is where ipykernel is when this Python does not have it, "" when it does.

        What the user has installed counts before the library, unless ``library_first``.
        """
        self._folder = _short_folder(folder)
        words_in, words_out = os.pipe()
        self.words = words_in
        self._last_words = b""
        os.set_blocking(words_in, False)
        kernels = _OurKernel()
        runner = str(Path(os.path.abspath(__file__)).parents[2])
        command = [sys.executable, "-c", _BOOT, runner, library, "first" if library_first else ""]
        kernels.command = [*command, "-f", "{connection_file}"]
        self._manager = KernelManager(
            transport="ipc",
            ip=os.path.join(self._folder, "s"),
            connection_file=os.path.join(self._folder, "kernel.json"),
            kernel_spec_manager=kernels,
            shutdown_wait_time=0.5,
        )
        try:
            self._manager.start_kernel(
                cwd=workspace, env=_environment(), stdout=_nowhere(), stderr=words_out, independent=False
            )
        except BaseException:
            self.close()
            raise
        finally:
            os.close(words_out)
        provisioner: Any = self._manager.provisioner  # the local one, which has the process
        self._process = provisioner.process
        self.pid: int = self._process.pid
        self.client: Any = self._manager.blocking_client()
        self.client.context.rcvhwm = 0  # nothing is dropped: the kernel bounds what it sends
        self.client.start_channels(stdin=False, hb=False)

    def exit_code(self) -> Optional[int]:
        """How it ended, a negative number for a signal; None while it runs."""
        code: Optional[int] = self._process.poll()
        return code

    def read_words(self) -> bool:
        """Take what it has written to its real error stream; False when nothing will come any more."""
        try:
            said = os.read(self.words, 65536)
        except OSError:
            return True  # nothing there now
        self._last_words = (self._last_words + said)[-_LAST_WORDS:]
        return bool(said)

    def last_words(self) -> str:
        """The last line of what it wrote there."""
        self.read_words()
        lines = self._last_words.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][-300:] if lines else ""

    def close(self) -> None:
        """End it and remove its sockets."""
        try:
            if self._manager.has_kernel:
                self._manager.shutdown_kernel(now=True)
        finally:
            os.close(self.words)
            shutil.rmtree(self._folder, ignore_errors=True)


def _short_folder(folder: str) -> str:
    """A folder for sockets: below the given one, or, where such paths are too long for sockets, a temporary one."""
    if len(folder) <= _PATH_LIMIT:
        shutil.rmtree(folder, ignore_errors=True)  # of a kernel that could not remove it itself
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return tempfile.mkdtemp(dir=folder)
    return tempfile.mkdtemp(prefix="kernel-", dir="/tmp")  # nobody else may enter it


def _environment() -> Dict[str, str]:
    """The sandbox's variables; plain text is wanted, whoever prints it."""
    return {
        **os.environ,
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
