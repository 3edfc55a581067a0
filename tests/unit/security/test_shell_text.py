"""The text of a script is read as bash reads it: joined lines, white space, here-documents, descriptors."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.security.shell.judge import judge

JOINED_ANYWHERE = [
    "rm -rf /",
    "ls&&rm -rf /",
    "if true;then rm -rf /;fi",
    'echo "$(rm -rf /)"',
    "echo `rm -rf /`",
    "cat <<EOF\n$(rm -rf /)\nEOF\n",
    "for x in / ;do rm -rf $x;done",
    "case a in a)rm -rf /;;esac",
    "f(){ rm -rf /;};f",
    'bash <<<"rm -rf /"',
    "echo $((1+$(rm -rf /)))",
]


@pytest.mark.parametrize("command", JOINED_ANYWHERE)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_a_line_that_is_continued_between_any_two_characters_hides_nothing(command: str, data: st.DataObject) -> None:
    places = sorted(data.draw(st.sets(st.integers(0, len(command)), min_size=1, max_size=6)), reverse=True)
    for place in places:
        command = command[:place] + "\\\n" + command[place:]
    assert judge(command).risk in {"HIGH", "UNKNOWN"}, command


@pytest.mark.parametrize(
    ("command", "risk"),
    [
        ("# a comment ends with its line \\\nrm -rf /", "HIGH"),
        ("ls # so does this \\\n\\\nrm -rf /", "HIGH"),
        ("ls \\\n# a comment\nrm -rf /", "HIGH"),
        ("ls a\\\n# no comment; rm -rf /", "HIGH"),
        ("echo a\\\\\nrm -rf /", "HIGH"),
        ("echo a\\\\\\\nrm -rf /", "LOW"),
        ("echo 'a\\\n' rm -rf /", "LOW"),
        ("$'r\\\nm' -rf /", "UNKNOWN"),
        ("bash -c 'r\\\nm -rf /'", "HIGH"),
        ("cat <<EOF\nno end \\\nEOF\nrm -rf /\nEOF\n", "LOW"),
        ("cat <<EOF\nan end\nE\\\nOF\nrm -rf /", "HIGH"),
        ("cat <<'EOF'\nan end \\\nEOF\nrm -rf /", "HIGH"),
        ("cat <<'EOF'\nno end\nE\\\nOF\nrm -rf /", "LOW"),
        ("cat <<'A' <<B\na\\\nA\nb\\\nB\nb\nB\nrm -rf /", "HIGH"),
        ("cat <<'EOF' | sh\nrm -rf \\\n/\nEOF", "HIGH"),
        ("cat > Dockerfile <<'EOF'\nRUN make \\\n && make install\nEOF", "MEDIUM"),
        ("git commit \\\n  --all \\\n  --message x", "MEDIUM"),
    ],
)
def test_lines_are_joined_where_bash_joins_them(command: str, risk: str) -> None:
    assert judge(command).risk == risk


@pytest.mark.parametrize("text", ["# a \\\n", "cat <<'A'\nb\\\nA\n", "'\\\n'", "$'\\\n'"])
def test_parting_lines_again_costs_bounded_time(text: str) -> None:
    started = time.process_time()
    judge((text * 100_000)[:400_000])
    assert time.process_time() - started < 20


@pytest.mark.parametrize("character", ["\r", "\f", "\v", "\u00a0", "\u2003", "\u3000"])
def test_only_blanks_tabs_and_newlines_are_white_space(character: str) -> None:
    assert judge(f"rm{character}-rf /").risk == "UNKNOWN"
    assert judge(f"echo a{character}; rm -rf /").risk == "HIGH"
    assert judge(f"echo{character}# no comment; rm -rf /").risk == "HIGH"
    assert judge(f"ls &&{character}rm -rf /").risk == "UNKNOWN"
    assert judge(f"if{character}true").risk == "UNKNOWN"


@pytest.mark.parametrize(
    ("command", "risk"),
    [
        ("ls <&-", "LOW"),
        ("ls >&- 2>&-", "LOW"),
        ("ls 3>&1-", "LOW"),
        ("exec 3>&1 4<&0", "UNKNOWN"),
        ("ls &>> x", "MEDIUM"),
        ("ls >| x", "MEDIUM"),
        ("ls 3<> x", "MEDIUM"),
        ("ls >& x", "MEDIUM"),
        ("exec > x 2>&1; make", "UNKNOWN"),
        ("bash <<< ls 3<<< 'rm -rf /'", "LOW"),
        ("ls &>> /etc/passwd", "HIGH"),
        ("ls >| /dev/sda", "HIGH"),
        ("ls <> /dev/sda", "HIGH"),
        ("ls >& /etc/passwd", "HIGH"),
        ("ls >&-; rm -rf /", "HIGH"),
        ("ls <&- rm | rm -rf /", "HIGH"),
        ("bash <<< 'rm -rf /' 3<<< ls", "HIGH"),
        ("bash /dev/fd/3 3<<< 'rm -rf /'", "UNKNOWN"),
        (". /proc/self/fd/7 7<<< 'rm -rf /'", "UNKNOWN"),
        ("exec 3<<< 'rm -rf /'; bash <&3", "UNKNOWN"),
        ("exec < <(echo rm -rf /); bash", "UNKNOWN"),
        ("if exec <<< 'rm -rf /'; then sh; fi", "UNKNOWN"),
        ("echo 'rm -rf /' | cat /dev/stdin | sh", "UNKNOWN"),
        ("exec > x.sh; echo rm -rf /; exec > /dev/tty; bash x.sh", "UNKNOWN"),
    ],
)
def test_redirections_are_read_as_bash_reads_them(command: str, risk: str) -> None:
    assert judge(command).risk == risk
