"""Texts that bash expands again, and names that it takes from texts."""

from __future__ import annotations

import pytest

from agent_core.security.shell.judge import judge
from agent_core.security.shell.numbers import computed
from agent_core.security.shell.printing import decode_echo, printed_by

SUBSCRIPT = "a='x[$(rm -rf /)]'; "
HIGH = [
    *(
        SUBSCRIPT + command
        for command in (
            "echo $((a))",
            "echo $[a + 1]",
            "((a))",
            "let a",
            "echo ${b[a]}",
            "b[a]=1",
            "echo ${b:a}",
            "[[ a -eq 1 ]]",
            "[[ $b -gt $a ]]",
            "[[ -v $a ]]",
            'test -v "$a"',
            "declare -i n=a",
            "declare -i n; n=a",
            "for ((i = a; i < 1; i++)); do ls; done",
            "RANDOM=a",
            'read "$a" <<< 1',
            'printf -v "$a" x',
            'declare "$a=1"',
            'unset "$a"',
            "echo ${!a}",
            'declare -n r="$a"; r=1',
            "c=a; echo $((c))",
        )
    ),
    "let 'x[$(rm -rf /)]'",
    "x='rm -rf /'; y=x; ${!y}",
    "x='rm -rf /' y=x; eval ${!y}",
    "x='rm -rf /'; eval '$x'",
    "x='rm -rf /'; bash -c \"$x\"",
    "printf -v x '%s' 'rm -rf /'; $x",
    "mapfile -t x <<< 'rm -rf /'; ${x[0]}",
    "mapfile -C 'rm -rf / ;' -c 1 x < f",
    "declare -l x=RM; $x -rf /",
    "declare -u x=rm; $x -rf /",
    "x=RM; ${x@L} -rf /",
    "x=ls; declare -n r=x; r=rm; $x -rf /",
    "x=rm; declare -n r=x; $r -rf /",
    "x=rm\nreadonly x\nx=ls\n$x -rf /",
    "x=ls; trap '$x -rf /' EXIT; x=rm",
    "x=ls; PROMPT_COMMAND='$x -rf /'; x=rm",
    "x=ls; x=rm eval '$x -rf /'",
    "x=ls; x=rm bash -c '$x -rf /'",
    "x=ls; bash -c '${x:-rm} -rf /'",
    "x=build; bash -c 'rm -rf $x/'",
    "x=rm; f() { local x=ls; }; f; $x -rf /",
    "x=rm; f() { declare x=ls; }; f; $x -rf /",
    "f() { declare -g x=rm; }; f; $x -rf /",
    'a=(ls -rf /); a=rm; "${a[@]}"',
    'a=(ls -rf /); a[0]=rm; "${a[@]}"',
    'a=(rm); a+=(-rf); a+=(/); "${a[@]}"',
    "a=(x rm); ${a[1]} -rf /",
    "read x <<< 'r\\m'; $x -rf /",
    "read -ra x <<< 'rm -rf /'; \"${x[@]}\"",
    "read PROMPT_COMMAND <<< 'rm -rf /'",
    ": ${PROMPT_COMMAND:='rm -rf /'}",
    "echo 'rm -rf /' > x; BASH_ENV=x bash -c ls",
    "env 'BASH_FUNC_ls%%=() { rm -rf /; }' bash -c ls",
    "env x=rm bash -c '$x -rf /'",
    "compgen -W '$(rm -rf /)'",
    "complete -C 'rm -rf /' ls",
    "bind -x '\"\\C-x\": rm -rf /'",
    "$(echo -e '\\0162\\0155') -rf /",
    "$(printf %.2s rmx) -rf /",
    '$(printf "\\\\$(printf %o 114)")m -rf /',
    "$(printf \\\\$((160 + 2)))m -rf /",
    "$(printf %b '\\0162')m -rf /",
    "rm() { ls; }; command rm -rf /",
    "alias rm=ls\n\\rm -rf /",
    "alias x='rm '\nalias y='-rf /'\nx y",
    "cd /bin; ./rm -rf /",
    "echo 'rm -rf /' > x; PATH=.:$PATH; x",
    "x=rm; trap '$x -rf /' EXIT; exit; x=ls",
    "x=rm; f() { return; x=ls; }; f; $x -rf /",
    "for i in 1; do x=rm; break; x=ls; done; $x -rf /",
    "x=rm; (x=ls); $x -rf /",
    "x=rm; x=ls | cat; $x -rf /",
    "f() { rm -rf /; }; export -f f; bash -c f",
    "f() { f() { \"$@\"; }; export -f f; bash -c 'f rm -rf /'; }; f",
    "$(echo rm 3>&1 >&3) -rf /",
    "a=(ls rm); x=${a[1]}; $x -rf /",
    "a=(ls rm); x=${a[-1]}; $x -rf /",
    "x=$( { echo rm >&2; } 2>&1 ); $x -rf /",
    "x=$( { echo rm >&2; } 2>&1 >/dev/null ); $x -rf /",
    "{ echo 'rm -rf /' >&2; } |& bash",
    "x=$(exec 2>&1; echo rm >&2); $x -rf /",
    "echo rm > f; x=$(< f); $x -rf /",
    "echo 'rm -rf /' > f; false && echo ls > f; bash f",
    "echo ls > f; (sleep 1; bash f) & echo 'rm -rf /' > f; wait",
    "echo ls > k; ln k l; echo 'rm -rf /' > k; bash k",
    "x=rm; local x=ls; $x -rf /",
    "if true; then x=rm; else x=ls; fi; printf -v y '%s -rf /' $x; $y",
    'if true; then x=rm; else x=ls; fi; mapfile -t y <<< $x; ${y[0]} -rf /; eval "$x -rf /"',
    "for i in 1 2; do declare -n y=x; x=rm; $y -rf /; done",
    "declare -n y=x; for y in z; do y=rm; done; $z -rf /",
    "x=; : ${x=ls}; x=${x:-rm}; $x -rf /",
    ".venv/bin/python -c 'import os; os.system(\"rm -rf /\")'",
]
UNKNOWN = [
    "n=161; ((n++)); $(printf \\\\$n)m -rf /",
    "$(printf \\\\16$?)m -rf /",
    "$(printf 'r\\0m') -rf /",
    'a=(rm -rf /); a[7]=x; "${a[@]}"',
    "_=ls; echo rm; $_ -rf /",
    "BASH_ALIASES[ls]=rm",
    "cp /bin/rm x; ./x -rf /",
    "fc -s",
    'if true; then set -- rm; fi; "$@" -rf /',
    'set -- rm; false && set -- ls; "$@" -rf /',
    "x=ls; trap 'x=rm' ERR; false; $x -rf /",
    "shopt -s lastpipe; x=ls; echo rm | read -r x; $x -rf /",
    "echo ls > k; ln -s k l; echo 'rm -rf /' > k; bash l",
    "$(false && echo ls; echo rm) -rf /",
    "$(if false; then echo ls; else echo rm; fi) -rf /",
    "$(f() { return; echo ls; }; f; echo rm) -rf /",
    "$(for i in; do echo ls; done; echo rm) -rf /",
    "x=ls; if true; then x=rm; fi; $(echo $x) -rf /",
    "$(exec true; echo ls) rm -rf build",
    "$(find / -maxdepth 0 -printf rm) -rf /",
    "$(find . -maxdepth 0 -exec echo rm {} +) -rf /",
    "read -n 2 x <<< rmx; $x -rf /",
    'declare "$name=rm"',
    "let 'x[$(]'",
]
NO_DANGER = [
    "i=0; while ((i < 3)); do echo $i; ((i++)); done",
    "sleep $((n * 2))",
    "echo ${a[1]} ${a[i]} ${#a[@]} ${a[@]:1} ${x:0:8} ${!a[@]}",
    'IFS=, read -ra parts <<< "$x"; echo ${parts[0]}',
    'while IFS= read -r line; do echo "$line"; done < x',
    "declare -A m; m[x]=1; echo ${m[x]}",
    "x=$(( $(date +%s) - start )); echo $x",
    '[ -v x ] && [[ -v y ]] && [[ $(wc -l < x) -gt 3 ]] && test "$a" = "x[$(date)]"',
    "set -euo pipefail; trap 'echo bye' EXIT",
    "export A=1; bash -c 'echo $A'",
    "printf '%-10s|%5d\\n' a 1",
    "init() { ls; }; init",
    "f() { if true; then return 1; fi; echo x; }; x=$(f) || exit 1; echo $x",
    "for i in 1 2 3; do [ -f x ] && break; sleep 1; done",
]


@pytest.mark.parametrize("command", HIGH)
def test_danger_in_a_text_that_bash_expands_again_is_found(command: str) -> None:
    assert judge(command).risk == "HIGH", judge(command).findings


@pytest.mark.parametrize("command", UNKNOWN)
def test_what_cannot_be_computed_is_not_guessed(command: str) -> None:
    assert judge(command).risk == "UNKNOWN", judge(command).findings


@pytest.mark.parametrize("command", NO_DANGER)
def test_usual_computing_is_harmless(command: str) -> None:
    assert judge(command).risk == "LOW", judge(command).findings


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /tmp/x$$",
        "rm -rf build$((n + 1))",
        "./bin/format x",
        "scripts/init",
        "trap 'rm -f \"$t\"' EXIT; t=$(mktemp)",
    ],
)
def test_a_number_that_is_not_known_makes_no_path_dangerous(command: str) -> None:
    assert judge(command).risk == "MEDIUM"


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("1 + 2 * 3", 7),
        ("010 + 0x10 + 2#11", 27),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("1 << 4 | 1", 17),
        ("~0", -1),
        ("1 / 0", None),
        ("x", None),
        ("2 ** 9", None),
        ("9" * 300, None),
        ("", None),
    ],
)
def test_expressions_are_computed_as_bash_computes_them(expression: str, number: int | None) -> None:
    assert computed(expression) == number


@pytest.mark.parametrize(
    ("form", "values", "printed"),
    [
        ("%s-%s\\n", ["a", "b", "c"], "a-b\nc-\n"),
        ("%5s|%-3s|", ["a", "b"], "    a|b  |"),
        ("%.1s%c", ["abc", "def"], "ad"),
        ("%*s", ["3", "a"], "  a"),
        ("%x %o %d %%", ["114", "114", "0x10"], "72 162 16 %"),
        ("%b", ["\\0162\\x6d\\cx"], "rm"),
        ("\\162", [], "r"),
        ("x", ["unused"], "x"),
    ],
)
def test_printf_prints_what_bash_prints(form: str, values: list[str], printed: str) -> None:
    assert printed_by(form, values) == printed


def test_echo_reads_escapes_as_bash_does() -> None:
    assert decode_echo("a\\0162\\\\0162\\tb") == ("ar\\0162\tb", False)
    assert decode_echo("a\\cb") == ("a", True)
