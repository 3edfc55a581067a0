"""System calls that programs in a local sandbox may not make: the kernel's seldom used corners, as engines refuse them.

A classic BPF program for seccomp, as bubblewrap loads it. Refused calls fail with EPERM; those of another machine
(32-bit programs) with ENOSYS, because their numbers mean other calls, and so do calls of kernels to come, about which
nobody can know yet what they let in. Sockets are of the kinds that containers may have (`docker_filter`).
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from typing import NamedTuple

from agent_core.runtime.docker.seccomp import FAMILIES, NETLINK_PROTOCOLS

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_IF_GREATER_OR_EQUAL = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_NUMBER_AT, _MACHINE_AT = 0, 4  # in struct seccomp_data
_FAMILY_AT, _PROTOCOL_AT = 16, 32  # the lower halves of the first and third argument: both machines begin with those
_ALLOW = 0x7FFF0000
_FAIL = 0x00050000
_NEXT = 467
"""The first number that was not given away when this was written; alike on all machines."""

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
    "mount_setattr": 442,
    "quotactl_fd": 443,
}

_Step = tuple[int, int, int, int]
"""Code, steps to leave out when it holds, steps to leave out when it does not, operand."""


class _Machine(NamedTuple):
    audit: int
    sockets: tuple[int, int]
    refused: Mapping[str, int]


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        (41, 53),
        {
            **_COMMON,
            "syslog": 103,
            "uselib": 134,
            "ustat": 136,
            "sysfs": 139,
            "pivot_root": 155,
            "chroot": 161,
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
            "fanotify_init": 300,
            "name_to_handle_at": 303,
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
        (198, 199),
        {
            **_COMMON,
            "lookup_dcookie": 18,
            "umount2": 39,
            "mount": 40,
            "pivot_root": 41,
            "chroot": 51,
            "quotactl": 60,
            "acct": 89,
            "unshare": 97,
            "kexec_load": 104,
            "init_module": 105,
            "delete_module": 106,
            "syslog": 116,
            "reboot": 142,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "swapon": 224,
            "swapoff": 225,
            "perf_event_open": 241,
            "fanotify_init": 262,
            "name_to_handle_at": 264,
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
    refused, fine = _FAIL | errno.EPERM, _ALLOW
    plain = [number for name, number in FAMILIES.items() if name != "netlink"]
    steps: list[_Step] = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_JUMP_IF_EQUAL, 1, 0, found.audit),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER_AT),
        # Also the second interface of x86_64, whose numbers are above all of these.
        *_returning(_JUMP_IF_GREATER_OR_EQUAL, [_NEXT], _FAIL | errno.ENOSYS),
        *_returning(_JUMP_IF_EQUAL, sorted(found.refused.values()), refused),
        (_JUMP_IF_EQUAL, 2, 0, found.sockets[0]),
        (_JUMP_IF_EQUAL, 1, 0, found.sockets[1]),
        (_RETURN, 0, 0, fine),
        (_LOAD, 0, 0, _FAMILY_AT),
        *_returning(_JUMP_IF_EQUAL, plain, fine),
        (_JUMP_IF_EQUAL, 1, 0, FAMILIES["netlink"]),
        (_RETURN, 0, 0, refused),
        (_LOAD, 0, 0, _PROTOCOL_AT),
        *_returning(_JUMP_IF_EQUAL, list(NETLINK_PROTOCOLS.values()), fine),
        (_RETURN, 0, 0, refused),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _returning(comparison: int, values: list[int], answer: int) -> list[_Step]:
    """Steps that end with this answer when one of the values compares so, and go on behind them otherwise."""
    last = len(values) - 1
    compared = [(comparison, last - place, int(place == last), value) for place, value in enumerate(values)]
    return [*compared, (_RETURN, 0, 0, answer)]
