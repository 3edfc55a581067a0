"""System calls that programs in a local sandbox may not make: the kernel's seldom used corners, as engines refuse them.

A classic BPF program for seccomp, as bubblewrap loads it. Refused calls fail with EPERM; those of another machine
(32-bit programs) with ENOSYS, because their numbers mean other calls.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from typing import NamedTuple

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_IF_GREATER_OR_EQUAL = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_NUMBER_AT, _MACHINE_AT = 0, 4  # in struct seccomp_data
_ALLOW = 0x7FFF0000
_FAIL = 0x00050000
_X32 = 0x40000000  # numbers from here on are those of a second interface of x86_64
_COMMON = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
}


class _Machine(NamedTuple):
    audit: int
    refused: Mapping[str, int]


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        {
            **_COMMON,
            "pivot_root": 155,
            "acct": 163,
            "mount": 165,
            "umount2": 166,
            "swapon": 167,
            "swapoff": 168,
            "reboot": 169,
            "iopl": 172,
            "ioperm": 173,
            "init_module": 175,
            "delete_module": 176,
            "quotactl": 179,
            "lookup_dcookie": 212,
            "kexec_load": 246,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "unshare": 272,
            "perf_event_open": 298,
            "open_by_handle_at": 304,
            "setns": 308,
            "finit_module": 313,
            "kexec_file_load": 320,
            "bpf": 321,
            "userfaultfd": 323,
        },
    ),
    "aarch64": _Machine(
        0xC00000B7,
        {
            **_COMMON,
            "lookup_dcookie": 18,
            "umount2": 39,
            "mount": 40,
            "pivot_root": 41,
            "quotactl": 60,
            "acct": 89,
            "unshare": 97,
            "kexec_load": 104,
            "init_module": 105,
            "delete_module": 106,
            "reboot": 142,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "swapon": 224,
            "swapoff": 225,
            "perf_event_open": 241,
            "open_by_handle_at": 265,
            "setns": 268,
            "finit_module": 273,
            "bpf": 280,
            "userfaultfd": 282,
            "kexec_file_load": 294,
        },
    ),
}


def filter_program(machine: str) -> bytes:
    """The filter for a machine as ``uname -m`` names it; empty where we have none (there only namespaces protect)."""
    found = _MACHINES.get(machine)
    if found is None:
        return b""
    numbers = sorted(found.refused.values())
    steps: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_JUMP_IF_EQUAL, 1, 0, found.audit),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_IF_GREATER_OR_EQUAL, len(numbers) + 2, 0, _X32),
    ]
    # Each match jumps to the EPERM at the end; a step's jump counts the steps in between.
    steps += [(_JUMP_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    steps += [
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
