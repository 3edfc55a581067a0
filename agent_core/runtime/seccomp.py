"""System calls of programs in sandboxes: a profile for containers, and a classic BPF program for local sandboxes.

The profile replaces the engine's own, which differs between versions: some let programs reach the hypervisor (vsock),
and use io_uring, which has its own ways around a filter. What is not named in it fails with EPERM, or ENOSYS. The
program refuses seldom used corners of the kernel (EPERM), and with ENOSYS calls of another machine, whose numbers
mean other calls, and those of kernels to come.
"""

from __future__ import annotations

import errno
import json
import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

FAMILIES = {"unix": 1, "inet": 2, "inet6": 10, "netlink": 16}
"""Kinds of sockets that programs may open; of netlink only what tells about networks and sockets."""

NETLINK_PROTOCOLS = {"route": 0, "sock_diag": 4}

_NAMESPACES = 0x7E020000

_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
_FIRST_WORD = 0xFFFFFFFF
"""The kernel takes a family to be 32 bits wide, whatever stands in the register's other half."""

_ALLOWED = """
accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmmsg_time64 recvmsg
sendmmsg sendmsg sendto setsockopt shutdown

access chdir chmod chown chown32 close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
fadvise64_64 arm_fadvise64_64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64
fdatasync fgetxattr flistxattr flock fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate
ftruncate64 futimesat getcwd getdents getdents64 getxattr getxattrat ioctl lchown lchown32 lgetxattr link linkat
listxattr listxattrat llistxattr _llseek lremovexattr lseek lsetxattr lstat lstat64 mkdir mkdirat mknod mknodat
newfstatat oldfstat oldlstat oldstat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read
readahead readdir readlink readlinkat readv removexattr removexattrat rename renameat renameat2 rmdir sendfile
sendfile64 setxattr setxattrat splice stat stat64 statfs statfs64 statx symlink symlinkat sync sync_file_range
sync_file_range2 arm_sync_file_range syncfs tee truncate truncate64 umask unlink unlinkat utime utimensat
utimensat_time64 utimes vmsplice write writev

epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 inotify_add_watch inotify_init
inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit
_newselect pipe pipe2 poll ppoll ppoll_time64 pselect6 pselect6_time64 select signalfd signalfd4

brk cachestat madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mmap2
mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_mrelease
remap_file_pages

ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink
msgctl msgget msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget

arch_prctl capget capset execve execveat exit exit_group fork get_robust_list get_thread_area getegid getegid32 geteuid
geteuid32 getgid getgid32 getgroups getgroups32 getpgid getpgrp getpid getppid getpriority getresgid getresgid32
getresuid getresuid32 getrlimit getrusage getsid gettid getuid getuid32 ioprio_get ioprio_set landlock_add_rule
landlock_create_ruleset landlock_restrict_self modify_ldt nice pidfd_open pidfd_send_signal prctl prlimit64 ptrace rseq
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler
sched_yield seccomp set_robust_list set_thread_area set_tid_address set_tls setfsgid setfsgid32 setfsuid setfsuid32
setgid setgid32 setgroups setgroups32 setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid
setresuid32 setreuid setreuid32 setrlimit setsid setuid setuid32 times ugetrlimit vfork wait4 waitid waitpid

futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake kill pause restart_syscall rt_sigaction
rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64
rt_tgsigqueueinfo sgetmask sigaction sigaltstack signal sigpending sigprocmask sigreturn sigsuspend ssetmask tgkill
tkill

adjtimex alarm clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64
clock_nanosleep clock_nanosleep_time64 getitimer gettimeofday nanosleep setitimer time timer_create timer_delete
timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime
timerfd_gettime64 timerfd_settime timerfd_settime64

breakpoint cacheflush getcpu getrandom olduname oldolduname riscv_flush_icache riscv_hwprobe sysinfo uname
"""

_ABSENT = ["clone3", "socketcall"]
"""A filter cannot see what these ask for; libraries go on to ``clone``, and to ``socket`` where they know it."""


@cache
def seccomp_profile() -> str:
    """The profile, as JSON; the same text each time."""
    rules: list[dict[str, Any]] = [
        _allow(_ALLOWED.split()),
        *(
            _allow(["socket", "socketpair"], _equals(0, family))
            for name, family in FAMILIES.items()
            if name != "netlink"
        ),
        *(
            _allow(["socket", "socketpair"], _equals(0, FAMILIES["netlink"]), _equals(2, protocol))
            for protocol in NETLINK_PROTOCOLS.values()
        ),
        _allow(["clone"], {"index": 0, "op": "SCMP_CMP_MASKED_EQ", "value": _NAMESPACES, "valueTwo": 0}),
        *(_allow(["personality"], {"index": 0, "op": "SCMP_CMP_EQ", "value": value}) for value in _PERSONALITIES),
        {"names": _ABSENT, "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
    ]
    profile = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]},
        ],
        "syscalls": rules,
    }
    return json.dumps(profile, separators=(",", ":"))


def _allow(names: list[str], *arguments: dict[str, Any]) -> dict[str, Any]:
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": list(arguments)}


def _equals(index: int, value: int) -> dict[str, Any]:
    return {"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": _FIRST_WORD, "valueTwo": value}


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

_COMMON = """
io_uring_setup=425 io_uring_enter=426 io_uring_register=427 open_tree=428 move_mount=429 fsopen=430
fsconfig=431 fsmount=432 fspick=433 mount_setattr=442 quotactl_fd=443
"""

_Step = tuple[int, int, int, int]


class _Machine(NamedTuple):
    audit: int
    sockets: tuple[int, int]
    refused: Mapping[str, int]


def _numbers(table: str) -> dict[str, int]:
    pairs = (word.partition("=") for word in (table + _COMMON).split())
    return {name: int(number) for name, _, number in pairs}


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        (41, 53),
        _numbers(
            """
            syslog=103 uselib=134 ustat=136 sysfs=139 pivot_root=155 chroot=161 acct=163 mount=165 umount2=166
            swapon=167 swapoff=168 reboot=169 iopl=172 ioperm=173 init_module=175 delete_module=176 quotactl=179
            lookup_dcookie=212 kexec_load=246 add_key=248 request_key=249 keyctl=250 unshare=272 perf_event_open=298
            fanotify_init=300 name_to_handle_at=303 open_by_handle_at=304 setns=308 finit_module=313 kexec_file_load=320
            bpf=321 userfaultfd=323
            """
        ),
    ),
    "aarch64": _Machine(
        0xC00000B7,
        (198, 199),
        _numbers(
            """
            lookup_dcookie=18 umount2=39 mount=40 pivot_root=41 chroot=51 quotactl=60 acct=89 unshare=97 kexec_load=104
            init_module=105 delete_module=106 syslog=116 reboot=142 add_key=217 request_key=218 keyctl=219 swapon=224
            swapoff=225 perf_event_open=241 fanotify_init=262 name_to_handle_at=264 open_by_handle_at=265 setns=268
            finit_module=273 bpf=280 userfaultfd=282 kexec_file_load=294
            """
        ),
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
    last = len(values) - 1
    compared = [(comparison, last - place, int(place == last), value) for place, value in enumerate(values)]
    return [*compared, (_RETURN, 0, 0, answer)]
