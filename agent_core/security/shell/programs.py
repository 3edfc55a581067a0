"""The table of programs: what each is, and which options and words do more; one that is not here is MEDIUM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent_core.events.risk import SecurityRisk


@dataclass(frozen=True, slots=True)
class Program:
    """Its rule (`kind`; "own" is its name), its risk, words that `ask` (UNKNOWN), words that `stop` (HIGH)."""

    kind: str
    risk: SecurityRisk
    ask: Sequence[str] = ()
    stops: str = ""
    stop: Sequence[str] = ()
    options: str = ""


_PROGRAMS: Final = """
looks | LOW | | | | pwd grep basename bc cat clear cmp comm column cut df diff dirname dirs du egrep expr false fgrep
    free groups head help id jq ls md5sum nl nproc od paste pgrep ps readlink realpath rev seq sha1sum sha256sum
    sha512sum size sleep stat strings tac tail tr true tput type ulimit umask uname uptime wc which who whoami yes zgrep
    netstat break continue return exit uniq xxd hostname shift disown fg bg :
looks | LOW | -o -O -x -X --output --compress-program --exec --exec-batch | | | sort shuf tree iconv locate lsof top
looks | LOW | --pre --hostname-bin --plugin --pager | | | rg ag nm objdump readelf
looks | LOW | -C -D -K -f -i -m -s --compile --diag --file --inplace --kill --magic-file --set | | | date file ss yq
looks | LOW | - + | | | man apt-cache jobs history less more zless
own | LOW | | | | echo printf trap sed xargs git
cd | LOW | | | | cd pushd popd
declare | LOW | -k keyword lastpipe extglob expand_aliases | | | set shopt
decode | LOW | | | | base64 base32 uudecode zcat
decode | MEDIUM | | | | openssl gpg gunzip unxz bunzip2
declare | LOW | -i -n -a +i +n +a | | | declare typeset local readonly export printenv
names | LOW | -C | | | getopts read mapfile readarray unset
test | LOW | | | | test [ wait
opaque | UNKNOWN | | | | split csplit let compgen complete vim vi nvim nano view su runuser script pkexec run0
    systemd-run alias unalias hash enable fc bind rename ed ex emacs gdb m4 dc expect csh tcsh fish nsenter screen tmux
    ansible ansible-playbook pwsh osascript tclsh Rscript at batch coproc parallel chrt taskset unbuffer catchsegv
    ltrace toybox flock chronic eatmydata fakeroot torsocks faketime caffeinate setarch xvfb-run unshare chroot setpriv
    prlimit numactl dbus-run-session cpulimit firejail bwrap dmesg
eval | LOW | | | | eval watch
source | MEDIUM | | | | source .
shell | LOW | | | | sh bash dash zsh ksh ash mksh rbash yash
python | MEDIUM | | | | python python2 python3 pypy pypy3 ipython
language | MEDIUM | | | | perl ruby node nodejs deno bun php lua
awk | LOW | | | | awk gawk mawk nawk
write | MEDIUM | | | | tee touch mkdir truncate fallocate mkfifo dd
copy | MEDIUM | -b -S --backup --suffix | | | cp mv ln install
delete | MEDIUM | | catastrophic-delete | --no-preserve-root | rm shred unlink rmdir srm trash rimraf
permissions | MEDIUM | --reference | | | chmod chown chgrp chattr setfacl chcon
opaque | MEDIUM | | kill-all | -1 1 | kill skill
opaque | MEDIUM | | kill-all | -u -U -v --euid --user --inverse . .* | pkill killall
find | LOW | -execdir -okdir | | | find
find | LOW | -x -X --exec --exec-batch | | | fd fdfind
launch | LOW | | | | nohup setsid nice ionice timeout stdbuf command builtin exec time strace busybox env sudo doas
fetch | MEDIUM | -K -n -Q --config --netrc --quote --unix-socket | | | curl
fetch | MEDIUM | -e -i --execute --input-file | | | wget aria2c axel http https xh lynx w3m links
connect | MEDIUM | | | | dig nslookup host ping ping6 traceroute whois resolvectl
connect | MEDIUM | | reverse-shell | -e -c --exec --sh-exec --lua-exec | nc ncat netcat telnet
connect | UNKNOWN | | | | ssh mosh autossh nmap socat ftp sftp tftp lftp mail mailx mutt sendmail msmtp
remote | MEDIUM | -e --rsh -S -o -F --rsync-path | | | scp rsync
remote | MEDIUM | | remote-delete | rm rb delete purge deletefile terminate-instances delete-bucket | rclone s3cmd
    gsutil azcopy aws gcloud az mc
database | MEDIUM | | | | psql mysql mariadb sqlite3 mongo mongosh redis-cli cqlsh clickhouse
opaque | HIGH | | database | | dropdb dropuser
pack | MEDIUM | -I -F --to-command --use-compress-program --checkpoint-action --rsh-command --info-script
    --new-volume-script --rmt-command --transform --xform -TT --unzip-command | | | tar bsdtar zip unzip 7z rar cpio
    gzip xz bzip2 zstd
opaque | MEDIUM | --eval -f --file --makefile -E SHELL= | | | make gmake ninja just
opaque | MEDIUM | -exec -toolexec -vettool -ldflags -overlay -modfile | | | go
opaque | MEDIUM | -c --call --config --script-shell | publish | publish unpublish deploy yank owner | npm npx pnpm yarn
    cargo
opaque | MEDIUM | -o --option -c --config-file | | | apt apt-get aptitude dnf yum apk pacman zypper dpkg
opaque | MEDIUM | | publish | publish upload gist secret delete | gh glab bunx pip pip3 pipx uv uvx poetry twine gem
    conda mamba bundle mvn gradle dotnet nuget composer snap flatpak brew
container | MEDIUM | | container | --privileged --pid=host --userns=host --ipc=host --cap-add --device prune push login
    | docker podman nerdctl docker-compose
opaque | MEDIUM | | remote-delete | delete destroy drain uninstall apps:destroy rm | kubectl oc helm terraform tofu
    pulumi heroku vercel fly flyctl
opaque | MEDIUM | | power | poweroff reboot halt rescue isolate kexec suspend hibernate emergency 0 1 6 s S | systemctl
    init telinit
opaque | MEDIUM | | kernel | -w --write -p --load --system | sysctl
opaque | HIGH | | power | | shutdown reboot halt poweroff killall5
opaque | HIGH | | accounts | | useradd adduser usermod userdel deluser groupadd groupmod gpasswd passwd chpasswd visudo
    vipw newusers chsh
opaque | HIGH | | kernel | | insmod modprobe rmmod depmod kexec setenforce iptables ip6tables nft ufw firewall-cmd
    pivot_root setcap mount swapon swapoff
opaque | HIGH | | disk | | mkfs mke2fs mkswap wipefs fdisk sfdisk cfdisk parted gparted sgdisk gdisk blkdiscard hdparm
    nvme lvremove cryptsetup vgremove pvremove lvreduce mdadm zpool zfs btrfs badblocks dmsetup losetup partprobe
    tune2fs debugfs mkdosfs mkntfs fsfreeze efibootmgr grub-install flashrom fsck
opaque | UNKNOWN | | schedule | -r - | crontab
"""
# Of a program, or of a kind of them, as `getopt` takes them; with a "+" the first operand ends them.
_OPTION_ROWS: Final = """
sed nEre:sul:zb --quiet --silent --expression: --regexp-extended --separate --null-data
awk +F:v:f: --field-separator: --assign: --file:
xargs +0d:E:I:L:n:P:prs:tx --null --delimiter: --max-args: --max-procs: --max-lines: --no-run-if-empty
timeout +k:s:v --kill-after: --signal: --foreground --preserve-status --verbose
command +pvV
env +i0vu:C:S: --ignore-environment --null --unset: --chdir: --split-string:
sudo +AbEeHhiKklnPSsVu:g:p:C:r:t:T:U:D:R: --user: --group: --non-interactive --preserve-env --login --stdin --shell
curl 0123469fgGhiIjJkLNOpqRsSvVZ#A:b:c:d:D:e:F:H:m:o:r:T:u:w:x:X: --output: --data: --data-raw: --data-binary:
    --data-urlencode: --json: --form: --form-string: --upload-file: --header: --request: --user: --user-agent:
    --cookie-jar: --max-time: --connect-timeout: --write-out: --proxy: --retry: --output-dir: --url: --dump-header:
    --silent --show-error --fail --location --insecure --head --include --verbose --compressed --get --remote-name
    --no-buffer --create-dirs --version --help --trace: --proto: --tlsv1.2
fetch bcdEFhHkKLmnNpqrSvVx46O:o:P:t:U:a:w:A:R:l: --output-document: --output-file: --directory-prefix: --tries:
    --timeout: --user-agent: --header: --post-data: --post-file: --body-data: --body-file: --method: --quiet
    --no-verbose --show-progress --no-check-certificate --spider --continue --recursive --no-parent --version
python +bBdEhiIOPqRsStuvVxX:W:c:m: --version --help
copy abcdDfFHilLnpPrRsTuvxZm:o:g:S:t: --target-directory: --recursive --force --archive --verbose --parents --no-clobber
delete rRfidpvIuzxn:s: --recursive --force --dir --verbose --no-preserve-root --parents
permissions RvcfhHLP --recursive --verbose --changes --quiet --silent
chmod RvcfrwxXst --recursive --verbose --changes --quiet --silent
language +wv --version
launch +
shell +abcefhiklmnprstuvxBCEHPTDo:O: --login --norc --noprofile --posix --version
"""
_LISTS: Final = """
git looks: status log diff show blame grep describe rev-parse rev-list ls-files ls-tree shortlog cat-file reflog version
    merge-base check-ignore show-ref
git changes: add commit checkout switch restore reset clean merge rebase cherry-pick revert stash tag branch fetch pull
    clone init mv rm am apply push worktree remote submodule bisect config gc archive format-patch ls-remote lfs help
git calm options: --no-pager --version --help -P --no-optional-locks -h
git forces: -f -d --force --force-with-lease --force-if-includes --mirror --delete --prune + :
git asks: -O --open-files-in-pager --ext-diff --textconv --output --upload-pack --receive-pack --exec -x --extcmd
    --template --config --config-env --git-dir --work-tree --exec-path --remote --edit -e clone-u clone-c
git calm: clean-x clean-e cherry-pick-x branch--remote grep-e log--remote
git settings: user. color. advice. init.defaultbranch core.quotepath pull. push. fetch. branch. safe.directory log.
run as code: BROWSER CVS_RSH EDITOR FCEDIT GIT_ASKPASS GIT_EDITOR GIT_EXTERNAL_DIFF GIT_PAGER GIT_PROXY_COMMAND
    GIT_SEQUENCE_EDITOR GIT_SSH GIT_SSH_COMMAND LESSCLOSE LESSOPEN MAKEFLAGS MANPAGER PAGER PROMPT_COMMAND PS0 PS1 PS2
    PS4 RSYNC_RSH SSH_ASKPASS SUDO_ASKPASS VISUAL
changes programs: LD_ DYLD_ BASH_ ENV SHELLOPTS BASHOPTS GIT_ PERL5 PYTHONSTARTUP PYTHONINSPECT PYTHONHOME
    PYTHONBREAKPOINT PYTHONWARNINGS RUBYOPT NODE_OPTIONS JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS MAKEFILES
    TAR_OPTIONS SHELL GCONV_PATH HOME PWD OLDPWD CDPATH GLOBIGNORE HOSTALIASES LOCPATH GLIBC_TUNABLES
    RIPGREP_CONFIG_PATH CURL_HOME WGETRC XDG_CONFIG_HOME LESS MORE MAN AWKPATH AWKLIBPATH PSQL_EDITOR PSQL_PAGER SQLITE
    npm_config_script_shell FPATH ZDOTDIR
calm variables: GIT_AUTHOR_ GIT_COMMITTER_ GIT_TERMINAL_PROMPT GIT_MERGE_AUTOEDIT LESSCHARSET
recipes: .babelrc .cargo .envrc .npmrc .pre-commit-config.yaml CMakeLists.txt Cargo.toml GNUmakefile Gemfile Makefile
    Rakefile build.gradle build.ninja build.rs conftest.py justfile makefile noxfile.py package.json pom.xml
    pyproject.toml setup.cfg setup.py sitecustomize.py tox.ini usercustomize.py
fetch sends: -d -F --data --data-binary --data-raw --data-urlencode --form --form-string --json --body-data --post-data
fetch uploads: -T --upload-file --post-file --body-file
fetch saves: -o -O -D -c --output --output-document --output-file --dump-header --cookie-jar --trace
"""
REASONS: Final = {
    "catastrophic-delete": "deletes without protection of the root directory",
    "reverse-shell": "hands a program over to whoever is at the other end",
    "schedule": "changes which commands run at set times",
    "publish": "makes something public, or gives it away",
    "remote-delete": "deletes things elsewhere",
    "container": "reaches the host from a container, removes what is not in use, or sends images out",
    "database": "deletes a database, a table or all of its rows",
    "kill-all": "ends every process, of a user or of all, or the first one",
    "power": "stops the machine",
    "accounts": "changes who may log in",
    "kernel": "changes the kernel, what is mounted, the network's rules or the borders of the sandbox",
    "disk": "changes disks and what is on them",
}


def _rows(table: str) -> list[str]:
    return table.strip().replace("\n    ", " ").split("\n")


_OPTIONS: Final = dict(row.split(" ", 1) for row in _rows(_OPTION_ROWS))
PROGRAMS: Final = {
    name: Program(
        name if kind == "own" else kind,
        SecurityRisk(risk),
        ask.split(),
        rule,
        stop.split(),
        _OPTIONS.get(name) or _OPTIONS.get(kind, ""),
    )
    for kind, risk, ask, rule, stop, names in (map(str.strip, row.split("|")) for row in _rows(_PROGRAMS))
    for name in names.split()
}
LISTS: Final = {name: tuple(words.split()) for name, _, words in (row.partition(":") for row in _rows(_LISTS))}
READS_AT_MOST: Final = {"uniq": 1, "xxd": 1, "hostname": 0}  # they write to what the next operand names


def program_named(name: str) -> Program | None:
    """What is known of a program, by its plain name, whatever its version (``python3.12``)."""
    return PROGRAMS.get(name) or PROGRAMS.get(name.rstrip("0123456789.")) or PROGRAMS.get(name.partition(".")[0])
