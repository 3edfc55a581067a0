"""Programs that delete, overwrite, or open up files and disks."""

from __future__ import annotations

import re

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Call, Program, Programs, shown
from agent_core.security.shell.marks import UNKNOWN, derived, is_known
from agent_core.security.shell.paths import GRAVE, Scope, is_secret

DAMAGING = Programs()

RECURSIVE_FORCED_DELETE = "recursive-forced-delete"
_OPEN_TO_ALL = re.compile(r"[0-7]?[0-7][0-7][2367]\Z|(?:[ugo]*[oa][ugoa]*)?\+[rxXst]*w|a[+=]rwx|o[+=]\w*w")
_SET_ID = re.compile(r"[2467][0-7]{3}\Z|0[2467][0-7]{3}\Z|[ugoa]*[+=][rwxX]*s")


@DAMAGING.rule("rm", "shred", "unlink", "rmdir", "srm", "trash", "rimraf")
def remove(call: Call) -> str:
    """Deletes files."""
    is_recursive = call.has("-r", "-R", "--recursive") or call.name == "rimraf"
    is_forced = call.has("-f", "--force") or call.name == "rimraf"
    operands = call.operands("-n", "-s", "--iterations", "--size") if call.name == "shred" else call.operands()
    if call.name == "rm" and any(argument and argument[0] == UNKNOWN for argument in call.arguments):
        call.unknown("unknown-delete", "deletes something that is not known")
    if call.has("--no-preserve-root"):
        call.high("catastrophic-delete", "deletes without protection of the root directory")
    if is_recursive and is_forced:
        call.note(SecurityRisk.MEDIUM, RECURSIVE_FORCED_DELETE, "deletes folders without asking")
    for path in operands:
        _judge_removed(call, path, is_recursive=is_recursive)
    return ""


def _judge_removed(call: Call, path: str, *, is_recursive: bool) -> None:
    scope = call.scope(path)
    if scope in GRAVE or (is_recursive and scope in {Scope.WHOLE, Scope.OUTSIDE}):
        call.high("catastrophic-delete", f"deletes {shown(path)}, which no single task needs gone")
    elif is_recursive and scope is Scope.UNKNOWN:
        call.unknown("unknown-delete", f"deletes a folder that is not known ({shown(path)})")
    elif is_secret(path, call.shell.folder):
        call.note(SecurityRisk.MEDIUM, "secret", f"deletes {shown(path)}, which usually holds a secret")


@DAMAGING.rule("dd")
def copy_blocks(call: Call) -> str:
    """Copies blocks, often to devices."""
    printed = derived(call.stdin)
    for argument in call.arguments:
        key, _, value = argument.partition("=")
        if key == "if":
            printed = call.read(value)
    for argument in call.arguments:
        key, _, value = argument.partition("=")
        if key == "of":
            call.write(value, printed)
            return ""
        if not is_known(key):
            call.unknown("unknown-file", "writes to a file that is not known")
    return printed


@DAMAGING.rule("truncate", "fallocate")
def resize(call: Call) -> str:
    """Cuts files off."""
    for path in call.operands("-s", "--size", "-r", "-l", "-o"):
        call.write(path, "")
    return ""


_DISKS = """
mkfs mkfs.* mke2fs mkswap wipefs fdisk sfdisk cfdisk parted gparted sgdisk gdisk blkdiscard hdparm nvme lvremove
cryptsetup
vgremove pvremove lvreduce mdadm zpool zfs btrfs badblocks dmsetup losetup partprobe tune2fs debugfs mkdosfs mkntfs
swapoff format fsck.* fsfreeze efibootmgr grub-install flashrom
"""


def _disk(call: Call) -> str:
    call.high("disk", f"{call.name} changes disks and what is on them")
    return ""


for _name in _DISKS.split():
    DAMAGING[_name] = Program(SecurityRisk.MEDIUM, _disk)


@DAMAGING.rule("chmod", "chown", "chgrp", "chattr", "setfacl", "chcon", "setcap")
def permissions(call: Call) -> str:
    """Changes who may do what with files."""
    words = [
        word
        for word in call.arguments
        if not re.match(r"--?(?:[RvcfhHLP]+|recursive|verbose|changes|silent|quiet)\Z", word)
    ]
    mode, paths = (words[0] if words else ""), words[1:]
    is_recursive = call.has("-R", "--recursive")
    opens = call.name == "chmod" and bool(_OPEN_TO_ALL.match(mode))
    if call.name == "setcap" or (call.name == "chmod" and _SET_ID.match(mode)):
        call.high("privileges", "gives a program the rights of another user")
    for path in paths:
        scope = call.scope(path)
        if scope in GRAVE or (scope in {Scope.WHOLE, Scope.OUTSIDE} and is_recursive and opens):
            call.high("permissions", f"changes the permissions of {shown(path)}")
        elif scope is Scope.UNKNOWN and is_recursive:
            call.unknown("permissions", "changes the permissions of a folder that is not known")
    return ""


_POWER = "shutdown reboot halt poweroff init telinit systemctl-poweroff killall5"
_ACCOUNTS = (
    "useradd adduser usermod userdel deluser groupadd groupmod gpasswd passwd chpasswd visudo vipw newusers chsh"
)
_KERNEL = "insmod modprobe rmmod depmod kexec setenforce iptables ip6tables nft ufw firewall-cmd pivot_root nsenter"
_GROUPS = {
    "power": (_POWER, "stops the machine"),
    "accounts": (_ACCOUNTS, "changes who may log in"),
    "kernel": (_KERNEL, "changes the kernel, the network's rules or the borders of the sandbox"),
}


def _always_high(rule: str, reason: str) -> Program:
    def judge(call: Call) -> str:
        call.high(rule, f"{call.name} {reason}")
        return ""

    return Program(SecurityRisk.MEDIUM, judge)


for _rule, (_names, _reason) in _GROUPS.items():
    for _name in _names.split():
        DAMAGING[_name] = _always_high(_rule, _reason)


@DAMAGING.rule("kill", "pkill", "killall", "skill")
def kill(call: Call) -> str:
    """Ends processes."""
    targets = [word for word in call.arguments if word in {"1", "-1", "0"}]
    signals = [word for word in call.arguments if word.startswith("-")]
    if call.name == "kill" and ("1" in targets or (call.arguments[-1:] == ["-1"] and len(call.arguments) > 1)):
        call.high("kill-all", "ends every process, or the first one")
    if call.name != "kill" and (call.has("-u", "--euid", "--user") or "." in call.arguments or ".*" in call.arguments):
        call.high("kill-all", "ends every process of a user")
    if call.name == "kill" and call.has("-l", "-L") and len(signals) == len(call.arguments):
        return derived("")
    return ""


@DAMAGING.rule("mount", "umount", "swapon", "sysctl", "systemctl", "service", "update-rc.d", "chkconfig")
def administer(call: Call) -> str:
    """Changes the running system."""
    words = call.arguments
    if call.name == "systemctl" and {"poweroff", "reboot", "halt", "rescue", "isolate", "kexec"} & set(words):
        call.high("power", "stops the machine")
    elif call.name == "sysctl" and (call.has("-w", "--write", "-p") or any("=" in word for word in words)):
        call.high("kernel", "changes the kernel's settings")
    elif call.name == "mount" and words:
        call.high("mount", "changes which file systems are mounted")
    return derived("")


@DAMAGING.rule("history", risk=SecurityRisk.LOW)
def history(call: Call) -> str:
    """Shows the commands so far, or forgets them."""
    if call.has("-c", "-d"):
        call.note(SecurityRisk.MEDIUM, "traces", "forgets which commands were run")
    return derived("")
