"""A command arrives byte for byte, runs as at a prompt, and what it prints comes back as text."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from tests.contract.runner.client import Client, Runner


@pytest.mark.parametrize(
    "text",
    [
        "tab\there and \\ back, $HOME `id` !! ~ * ?",
        "  leading and trailing blanks  ",
        "quotes ' \" '\\'' \\\"",
        "ünïcödé 漢字 🙂 \u202e\u2028",
        "control \x01 \x02 \x03 \x04 \x1a \x1b[A \x7f",
        "carriage \r return",
        "x" * 10_000,
    ],
    ids=["tab", "blanks", "quotes", "unicode", "control", "return", "long"],
)
def test_a_command_arrives_byte_for_byte(client: Client, workspace: Path, text: str) -> None:
    quoted = "'" + text.replace("'", "'\\''") + "'"
    client.output(f"printf %s {quoted} > file")
    assert (workspace / "file").read_bytes() == text.encode()


def test_a_script_of_100_kilobytes_runs(client: Client, workspace: Path) -> None:
    lines = [f"echo 'line {n}: \t{'é' * 30}'" for n in range(2000)]
    script = "{\n" + "\n".join(lines) + "\n} > file\ncat <<'END'\n" + "x" * 20_000 + "\nEND"
    assert len(script) > 100_000
    assert client.output(script) == "x" * 20_000 + "\n"
    assert (workspace / "file").read_text().count("\n") == 2000


def test_heredocs_keep_tabs_and_blanks(client: Client) -> None:
    assert client.output("cat <<'END'\n\ta\n  b \n\nEND\ncat <<-END\n\tc $((1+1))\n\tEND") == "\ta\n  b \n\nc 2\n"


def test_statements_run_in_order_and_the_last_decides_the_status(client: Client) -> None:
    result = client.run("echo one\nfalse\necho two; echo three &&\n  false || (exit 4)")
    assert (result["output"], result["exit_code"]) == ("one\ntwo\nthree\n", 4)


@pytest.mark.parametrize(
    "command",
    ["echo 'unterminated", 'echo "unterminated', "if true; then", "echo )", "for", "$(", "case x in", "done"],
)
def test_a_syntax_error_is_bashs_own_and_the_shell_goes_on(client: Client, command: str) -> None:
    result = client.run(f"echo before\n{command}")
    assert result["exit_code"] != 0
    assert result["output"].startswith("before\n" if command != "done" else "")
    assert "bash: " in result["output"]
    assert client.output("echo fine") == "fine\n"


def test_an_unterminated_heredoc_runs_with_a_warning(client: Client) -> None:
    result = client.run("cat <<END\ntext")
    assert "text\n" in result["output"]
    assert client.output("echo fine") == "fine\n"


def test_history_is_not_expanded_and_tabs_complete_nothing(client: Client) -> None:
    assert client.output('echo "wow!!"; echo a\tb; echo !x') == "wow!!\na b\n!x\n"


def test_a_comment_alone_is_a_command(client: Client) -> None:
    assert client.run("# nothing")["status"] == "completed"
    assert client.run("  \n ")["status"] == "completed"


def test_an_unset_variable_under_set_u_ends_the_command_not_the_shell(client: Client) -> None:
    result = client.run("kept=1; set -u; echo $nope; echo not reached")
    assert result["exit_code"] == 1
    assert "nope: unbound variable" in result["output"]
    assert "not reached" not in result["output"]
    assert client.output("set +u; echo $kept") == "1\n"


def test_programs_have_a_terminal(client: Client) -> None:
    assert client.output("test -t 0 && test -t 1 && test -t 2 && tty").startswith("/dev/pts/")
    assert client.output("stty size; tput cols 2>/dev/null || echo 256") == "200 256\n256\n"


def test_pagers_do_not_wait(client: Client) -> None:
    client.output("git init -q . && git -c user.name=a -c user.email=b commit -q --allow-empty -m subject")
    assert "subject" in client.output("git log --oneline")


def test_what_is_printed_comes_back_exactly(client: Client) -> None:
    assert client.output("printf 'a\\tb  \\n\\n  c'") == "a\tb  \n\n  c"
    assert client.output("cat <<'END'\nüñí 漢字 🙂\nEND") == "üñí 漢字 🙂\n"
    long = "x" * 25_000
    assert client.output(f"echo {long}") == long + "\n"


def test_binary_output_is_text_with_replacement_characters(client: Client) -> None:
    assert client.output("printf 'a\\xff\\xfeb\\n'") == "a\ufffd\ufffdb\n"
    assert client.run("head -c 300000 /dev/urandom")["status"] == "completed"
    assert client.output("echo fine") == "fine\n"


def test_colours_and_progress_bars_are_readable(client: Client) -> None:
    assert client.output(r"printf '\e[1;31mred\e[0m plain\n'") == "red plain\n"
    assert client.output(r"for n in 1 2 3; do printf '\r%d%%' $n; done; printf '\rdone\e[K\n'") == "done\n"
    assert client.output(r"printf 'one\ntwo\n\e[2A\e[KONE\n\e[KTWO\n'") == "ONE\nTWO\n"


def test_output_over_the_limit_is_cut_in_the_middle(client: Client) -> None:
    result = client.run("seq 1 20000", max_output=1000)
    assert len(result["output"]) <= 1000
    assert result["output"].startswith("1\n2\n")
    assert result["output"].endswith("19999\n20000\n")
    whole = sum(len(str(n)) + 1 for n in range(1, 20001))
    assert str(result["omitted"]) in result["output"]
    shown = result["output"].partition("\n[…")[0] + result["output"].partition("…]\n")[2]
    assert result["omitted"] == whole - len(shown)


def test_the_whole_of_a_cut_output_is_in_a_file_that_the_notice_names(client: Client) -> None:
    whole = "".join(f"{n}\n" for n in range(1, 20001))
    shown = client.run("seq 1 20000", max_output=1000)["output"]
    assert len(shown) == 1000
    found = re.search(r"all of it is in (\S+), where line (\d+) is the first that is hidden here", shown)
    assert found is not None, shown
    path, line = Path(found[1]), int(found[2])
    assert path.read_text() == whole
    assert path.name == f"terminal_output_{hashlib.sha256(whole.encode()).hexdigest()[:8]}.txt"
    head, _, rest = shown.partition("\n[…")
    assert whole.startswith(head)
    assert whole.endswith(rest.partition("…]\n")[2])
    assert line == head.count("\n") + 1
    assert client.run("seq 1 20000", max_output=1000)["output"] == shown
    assert client.output(f"ls -A {path.parent}") == f"{path.name}\n"


def test_a_cut_output_that_no_disk_takes_is_cut_all_the_same(client: Client, runner: Runner) -> None:
    (runner.state / "outputs").write_text("in the way")
    result = client.run("seq 1 20000", max_output=1000)
    assert result["exit_code"] == 0
    assert len(result["output"]) == 1000
    assert "left out here …]" in result["output"]


def test_output_up_to_the_limit_is_whole(client: Client) -> None:
    result = client.run("head -c 1000 /dev/zero | tr '\\0' x", max_output=1000)
    assert (result["output"], result["omitted"]) == ("x" * 1000, 0)
    assert client.run("echo something", max_output=0)["output"] == ""


def test_a_flood_of_output_takes_bounded_memory(client: Client, runner: Runner) -> None:
    client.run("true")
    before = runner.memory_kilobytes()
    number = client.send("shell.run", command="yes 'some line of text' | head -c 200000000; echo; echo end")
    answer = client.wait(number)
    assert answer.result["output"].endswith("end\n")
    assert answer.result["omitted"] > 190_000_000
    assert runner.memory_kilobytes() - before < 12_000
    assert sum(map(len, answer.live)) < 40_000_000


def test_a_line_without_end_takes_bounded_memory(client: Client, runner: Runner) -> None:
    client.run("true")
    before = runner.memory_kilobytes()
    result = client.run("head -c 50000000 /dev/zero | tr '\\0' x")
    assert result["omitted"] > 49_000_000
    assert runner.memory_kilobytes() - before < 12_000


def test_output_is_seen_while_the_command_runs(client: Client) -> None:
    number = client.send("shell.run", command="echo first; read x; echo second", soft_timeout=20)
    assert client.wait_for_output(number, "first") == "first\n"
    client.call("shell.run", command="go", is_input=True)
    assert client.wait(number).result["output"] == "first\nsecond\n"


def test_live_output_of_a_progress_bar_is_free_of_escape_codes(client: Client) -> None:
    number = client.send("shell.run", command=r"printf '\e[32m10%%\r20%%\e[K'; read x", soft_timeout=20)
    seen = client.wait_for_output(number, "20%")
    assert "\x1b" not in seen
    client.call("shell.run", command="ENTER", is_input=True)
    assert client.wait(number).result["output"] == "20%"
