"""What is lent to a command is in no file of the runner's."""

from __future__ import annotations

import base64
import signal
from pathlib import Path

from tests.contract.runner.client import Client, Runner

SECRET = "Zq7-marker/of+a=lent secret"
FORMS = (
    SECRET,
    base64.b64encode(SECRET.encode()).decode(),
    base64.b64encode(b"x" + SECRET.encode()).decode()[4:-4],
    SECRET.encode().hex(),
    SECRET[::-1],
    "Zq7-marker%2Fof%2Ba%3Dlent%20secret",
)
SHOW = """
import base64, os, urllib.parse
value = os.environ["LENT"]
print(value, base64.b64encode(value.encode()).decode(), base64.b64encode(b"x" + value.encode()).decode())
print(value.encode().hex(), urllib.parse.quote(value, safe=""))
"""


def found_in(folder: Path, forms: tuple[str, ...]) -> list[str]:
    """Files, as ``name: form``, in which one of the forms stands."""
    texts = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return [f"{path.name}: {form}" for path, text in texts.items() for form in forms if form.encode() in text]


def test_results_are_answered_whole_and_written_down_without(runner: Runner, client: Client) -> None:
    (runner.workspace / "show.py").write_text(SHOW)
    shown = client.call("shell.run", key="c:1", command="python3 show.py; echo $LENT | rev", env={"LENT": SECRET})
    assert all(form in shown.result["output"] for form in (SECRET, SECRET[::-1], SECRET.encode().hex()))
    kept = client.call("shell.run", key="c:2", command="echo kept=$kept", env={"OTHER": "short"})
    assert kept.result["exit_code"] == 0
    assert found_in(runner.state, FORMS) == []
    again = client.call("shell.run", key="c:1", command="must not run")
    assert again.result == shown.result
    assert "carried" not in str(again.message)


def test_the_whole_of_a_long_output_is_written_down_without(runner: Runner, client: Client) -> None:
    (runner.workspace / "show.py").write_text(SHOW)
    # Also where the pieces in which it comes tear the value apart.
    many = "for i in $(seq 3000); do printf '%s' \"$LENT\"; done; python3 show.py; seq 20000"
    result = client.call("shell.run", key="c:1", command=many, env={"LENT": SECRET}, max_output=2000).result
    assert "all of it is in" in result["output"]
    (whole,) = (runner.state / "outputs").iterdir()
    text = whole.read_text()
    assert text.count("<secret_hidden>") >= 3000
    assert text.rstrip().endswith("20000")
    assert found_in(runner.state, tuple(form for form in FORMS if form != SECRET[::-1])) == []


def test_the_next_runner_says_that_it_was_carried_out(runner: Runner, client: Client) -> None:
    client.call("shell.run", key="c:0", command="echo before")
    client.call("shell.run", key="c:1", command="echo x >> count; echo $LENT", env={"LENT": SECRET})
    client.call("ping")  # answered when the one before is written down
    runner.restart(signal.SIGKILL)
    after = runner.connect()
    assert after.call("shell.run", key="c:0", command="must not run").result["output"] == "before\n"
    answer = after.call("shell.run", key="c:1", command="echo x >> count")
    assert answer.message["error"]["code"] == "forgotten"
    assert (runner.workspace / "count").read_text() == "x\n"
