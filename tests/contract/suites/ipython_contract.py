"""The conformance suite of the IPython tool: what its kernels do alike in every provider's sandboxes.

A test module inherits from this class and gives it a fixture ``notebook`` (`NotebookKit`), one for the module: a kernel
takes a while to start.
"""

from __future__ import annotations

import asyncio
import zipfile
from io import BytesIO

from agent_core.runtime.action_runner import DirectContext
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.channel.tunnels import listening
from agent_core.testing.sandbox_contract import output
from agent_core.tools.ipython import IPythonAction, IPythonExecutor, IPythonObservation


class NotebookKit:
    """A sandbox, and cells in its kernel."""

    def __init__(self, sandbox: SandboxConnection) -> None:
        self.sandbox = sandbox
        self.executor = IPythonExecutor()
        self.seen_live = asyncio.Event()
        self._count = 0

    async def cell(self, code: str, *, limit: float | None = None, extra: bool = False) -> IPythonObservation:
        """Run one cell, with a time limit in seconds; `extra` is its `include_extra`."""
        context = DirectContext(self.sandbox)
        self._count += 1
        context.idempotency_key = f"{self.sandbox.sandbox.spec.conversation_id}:{self._count}"
        context.hard_timeout = limit
        context.emit_output = self._show  # type: ignore[method-assign] # what is shown live is looked at
        return await self.executor.acall(IPythonAction(code=code, include_extra=extra), context)

    def _show(self, text: str) -> None:
        if "begun" in text:
            self.seen_live.set()

    async def text(self, code: str) -> str:
        """Run a cell that must go well; what a model reads."""
        seen = await self.cell(code)
        assert (seen.status, seen.is_error) == ("completed", False), seen.text
        return seen.text


# One transparent point.
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_SHOW = (
    f"from IPython.display import Image, display; from base64 import b64decode; shown = Image(b64decode('{_PNG}'))\n"
)


class IPythonContract:
    """State, output, pictures, interrupts, ends of the kernel, and the helpers."""

    async def test_the_value_of_the_last_line_is_shown(self, notebook: NotebookKit) -> None:
        seen = await notebook.cell("1+1", extra=True)
        where = notebook.sandbox.working_dir
        assert seen.text.startswith(f"2\n[Jupyter current working directory: {where}]\n[Jupyter Python interpreter: /")
        assert (seen.code, seen.image_urls, seen.omitted) == ("1+1", None, 0)

    async def test_variables_imports_and_functions_are_kept(self, notebook: NotebookKit) -> None:
        assert await notebook.text("import math\ndef twice(x): return 2*x\nkept = 4") == (
            "[Code executed successfully with no output]"
        )
        assert await notebook.text("twice(kept), math.floor(2.5)") == "(8, 2)"
        assert await output(notebook.sandbox, "echo -${kept}-") == "--"  # the terminal has its own

    async def test_prints_values_and_displays_come_in_their_order(self, notebook: NotebookKit) -> None:
        code = "import sys\nprint('a', end='')\ndisplay(1)\nprint('b', file=sys.stderr)\nprint('c')\ndisplay('d')\n5"
        assert await notebook.text(code) == "a\n1\nb\nc\n'd'\n5"

    async def test_an_error_is_told_with_its_traceback_without_colours(self, notebook: NotebookKit) -> None:
        seen = await notebook.cell("print('before')\n1/0", extra=True)
        assert (seen.status, seen.is_error) == ("error", False)
        assert seen.text.startswith("before\n")
        assert "ZeroDivisionError: division by zero\n[Jupyter current" in seen.text
        assert "\x1b" not in seen.text
        broken = await notebook.cell("print('", extra=True)
        assert "SyntaxError: unterminated string literal" in broken.text.split("\n")[-3]
        group = await notebook.cell("raise ExceptionGroup('some', [ValueError('one')])")
        assert group.status == "error"
        assert "ValueError: one" in group.text
        endless = await notebook.cell("def f(n): return f(n + 1)\nf(0)")
        assert "frames in the middle of the calls are left out here]" in endless.text
        assert endless.text.endswith("RecursionError: maximum recursion depth exceeded")

    async def test_magics_and_commands_work(self, notebook: NotebookKit) -> None:
        assert await notebook.text("!echo one; echo two") == "one\ntwo"
        assert (await notebook.text("%pip --version")).startswith("pip ")
        assert "timeit" in await notebook.text("%lsmagic")
        assert await notebook.text("mine = 1\n%reset -f\n'mine' in globals(), callable(open_file)") == "(False, True)"
        assert await notebook.text("%%bash\necho from bash") == "from bash"
        assert await notebook.text("word = 'x'\n!echo {word} $word $$HOME | wc -w; cat; exit 3") == "3"
        assert await notebook.text("_exit_code") == "3"
        assert await notebook.text("!sleep 2004 & echo started") == "started"

    async def test_what_pip_installs_can_be_imported_at_once(self, notebook: NotebookKit) -> None:
        info = "mooring-1.0.dist-info"
        wheel = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        files = {"mooring.py": "ropes = 4", f"{info}/WHEEL": wheel}
        files[f"{info}/METADATA"] = "Metadata-Version: 2.1\nName: mooring\nVersion: 1.0\n"
        files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
        path = f"{notebook.sandbox.working_dir}/mooring-1.0-py3-none-any.whl"
        await notebook.sandbox.request("file.write", {"path": path}, blob=_zip(files))
        assert "ERROR" not in await notebook.text(f"%pip install --quiet --no-index {path}")
        assert await notebook.text("import mooring; mooring.ropes") == "4"
        assert (await output(notebook.sandbox, "python3 -c 'import mooring; print(mooring.ropes)'")) == "4"

    async def test_help_is_shown_and_lost_streams_come_back(self, notebook: NotebookKit) -> None:
        assert "Show the next 100 lines of the open file." in await notebook.text("scroll_down?")
        for code in ("import sys; sys.stdout = None", "sys.stdout.close(); sys.stderr = None"):
            await notebook.text(code)
            assert await notebook.text("print(1)") == "1"

    async def test_text_of_all_kinds_arrives(self, notebook: NotebookKit) -> None:
        assert await notebook.text("print('é ✓ 😀\\tx')") == "é ✓ 😀\tx"
        assert await notebook.text("print('\\ud800')") == "\\ud800"
        assert await notebook.text("print('10%\\r20%'); print('\\x1b[31mred\\x1b[0m')") == "20%\nred"
        seen = await notebook.cell("raise ValueError('\\udcff')")
        assert "ValueError: \\udcff" in seen.text

    async def test_pictures_are_data_urls_beside_the_text(self, notebook: NotebookKit) -> None:
        seen = await notebook.cell(f"{_SHOW}display(shown)\nprint('behind')")
        assert seen.image_urls == [f"data:image/png;base64,{_PNG}"]
        assert seen.text.endswith("behind")
        many = await notebook.cell("for _ in range(30): display(shown)")
        assert many.image_urls is not None
        assert len(many.image_urls) == 10
        assert "[Pictures left out: 20; of a cell at most 10 are shown" in many.text

    async def test_displays_that_are_cleared_or_changed_show_their_last_state(self, notebook: NotebookKit) -> None:
        code = "from IPython.display import clear_output\nfor i in range(50):\n    clear_output(wait=True); display(i)"
        assert await notebook.text(code) == "49"
        assert (await notebook.text("h = display(1, display_id=True)\nfor i in range(9): h.update(i)")).endswith("\n8")

    async def test_a_flood_is_cut_in_the_middle_and_what_is_missing_is_counted(self, notebook: NotebookKit) -> None:
        seen = await notebook.cell("print('first')\nfor _ in range(30_000): print('x' * 99)\nprint('last')")
        assert seen.text.startswith("first\nxxx")
        assert seen.text.endswith("xxx\nlast")
        assert len(seen.text) <= 30_000
        assert seen.omitted + len(seen.text) > 3_000_000
        value = await notebook.cell("'y' * 2_000_000")
        assert len(value.text) <= 30_000
        raw = await notebook.cell("import os; os.system('head -c 6000000 /dev/zero | tr \\\\0 y'); print('end')")
        assert "end" in raw.text[-20_000:]
        assert raw.omitted > 4_000_000
        async with asyncio.timeout(60):
            while await notebook.text("1") != "1":  # on a busy machine the rest of it comes behind its cell
                pass

    async def test_output_is_shown_while_the_cell_runs(self, notebook: NotebookKit) -> None:
        notebook.seen_live = asyncio.Event()
        running = asyncio.create_task(notebook.cell("import time\nprint('begun')\ntime.sleep(60)"), name="cell")
        async with asyncio.timeout(60):
            await notebook.seen_live.wait()
        running.cancel()
        await asyncio.wait({running})
        assert await notebook.text("1") == "1"

    async def test_a_cell_ends_at_its_time_limit_and_its_state_is_kept(self, notebook: NotebookKit) -> None:
        await notebook.text("mine = 5")
        seen = await notebook.cell("print('so far')\nimport time\ntime.sleep(60)", limit=0.5)
        assert (seen.status, seen.text) == ("timeout", "so far\n[Execution timed out (0.5 seconds).]")
        for code in ("import asyncio; await asyncio.sleep(60)", "!sleep 60", "while True: pass"):
            seen = await notebook.cell(code, limit=0.2)
            assert (seen.status, seen.text) == ("timeout", "[Execution timed out (0.2 seconds).]")
        assert await notebook.text("mine") == "5"

    async def test_what_a_stopped_cell_has_started_is_gone_but_not_what_others_have(
        self, notebook: NotebookKit
    ) -> None:
        # Processes are told apart by when they began, in hundredths of a second.
        await notebook.text("import subprocess, time\nother = subprocess.Popen(['sleep', '1001']); time.sleep(0.03)")
        code = "subprocess.Popen(['sleep', '1002'], start_new_session=True)\nsubprocess.run(['sleep', '1003'])"
        assert (await notebook.cell(code, limit=0.5)).status == "timeout"
        left = await output(notebook.sandbox, "ps -eo args | grep '^sleep 100' | sort || true")
        assert left == "sleep 1001"
        await notebook.text("other.kill(); other.wait(); None")

    async def test_a_kernel_that_does_not_listen_is_ended_and_another_is_there(self, notebook: NotebookKit) -> None:
        deaf = "while True:\n    try:\n        import time; time.sleep(9)\n    except KeyboardInterrupt: pass"
        seen = await notebook.cell(deaf, limit=1)
        assert seen.status == "timeout"
        assert "[Execution timed out (1 seconds).]" in seen.text
        assert "A new one is started: all variables, imports and functions are gone." in seen.text
        assert await notebook.text("'deaf' in globals()") == "False"

    async def test_a_kernel_that_dies_is_told_and_another_is_there(self, notebook: NotebookKit) -> None:
        number = await notebook.text("import os, time; os.getpid()")
        notebook.seen_live.clear()
        dying = asyncio.create_task(notebook.cell("print('last words, begun'); time.sleep(60)"))
        async with asyncio.timeout(60):  # what a process that ends at once has printed just before may be lost
            await notebook.seen_live.wait()
        await output(notebook.sandbox, f"kill -9 {number}")
        seen = await dying
        assert (seen.status, seen.is_error) == ("kernel_died", False)
        assert seen.text.startswith("last words, begun\n[The kernel was killed by SIGKILL, as happens when")
        assert seen.text.endswith("A new one is started: all variables, imports and functions are gone.]")
        assert await notebook.text("1") == "1"

    async def test_packages_that_a_user_installs_do_not_cost_the_kernel(self, notebook: NotebookKit) -> None:
        where = await notebook.text("import site; print(site.getusersitepackages())")
        await output(notebook.sandbox, f"mkdir -p {where}/traitlets; echo 1/0 > {where}/traitlets/__init__.py")
        assert "The kernel was restarted" in (await notebook.cell("exit()")).text
        assert await notebook.text("1") == "1"
        await output(notebook.sandbox, f"rm -r {where}/traitlets")

    async def test_a_cell_can_ask_for_a_new_kernel(self, notebook: NotebookKit) -> None:
        where = await notebook.text("old = 1; import site; print(site.getusersitepackages())")
        await output(notebook.sandbox, f"echo 'mine = 7' > {where}/pypdf.py")
        seen = await notebook.cell("%restart")
        assert (seen.status, "The kernel was restarted, as the cell wished" in seen.text) == ("completed", True)
        for _ in range(2):  # the code to begin with is run once
            arguments = {"code": "made += 1; made", "init_code": "made = 10; print('unseen')"}
            reply = await notebook.sandbox.request("kernel.run", arguments)
        assert reply.result["output"] == "12"
        assert await notebook.text("'old' in globals()") == "False"
        assert await notebook.text("import pypdf, sys; del sys.modules['pypdf']; pypdf.mine") == "7"
        await output(notebook.sandbox, f"rm {where}/pypdf.py")

    async def test_a_question_is_refused_at_once_in_words(self, notebook: NotebookKit) -> None:
        seen = await notebook.cell("name = input('Who? ')")
        assert seen.status == "error"
        assert "[A cell cannot ask for input: put the value into the code.]" in seen.text
        assert await notebook.text("import sys; sys.stdin.read()") == "''"

    async def test_the_ports_of_a_notebook_are_those_that_its_cells_listen_on(self, notebook: NotebookKit) -> None:
        pid = int(await notebook.text("import os; os.getpid()"))

        async def ports() -> list[int]:
            return [one.port for one in await listening(notebook.sandbox) if one.pid == pid]

        assert await ports() == []
        code = "import socket; heard = socket.create_server(('127.0.0.1', 0)); heard.getsockname()[1]"
        port = int(await notebook.text(code))
        assert await ports() == [port]
        await notebook.text("heard.close()")

    async def test_what_a_fork_prints_is_shown(self, notebook: NotebookKit) -> None:
        fork = "import os, time\nif not (pid := os.fork()):\n    print('from the fork', flush=True)\n    os._exit(0)\n"
        # It comes by a way of its own, and nobody knows when: the cell has to be there still.
        for seconds in (0.1, 1, 10):
            shown = await notebook.text(f"{fork}os.waitpid(pid, 0); time.sleep({seconds})")
            if shown == "from the fork":
                return
        raise AssertionError(shown)

    async def test_the_kernel_goes_where_the_terminal_goes(self, notebook: NotebookKit) -> None:
        where = notebook.sandbox.working_dir
        await output(notebook.sandbox, "mkdir -p below; cd below")
        assert await notebook.text("import os; os.getcwd()") == f"'{where}/below'"
        await notebook.text("os.chdir('/')")
        assert await notebook.text("os.getcwd()") == "'/'"  # until the terminal goes elsewhere
        await output(notebook.sandbox, "cd ..")
        assert await notebook.text("os.getcwd()") == f"'{where}'"

    async def test_secrets_that_a_cell_names_are_variables_for_it_and_for_no_other(self, notebook: NotebookKit) -> None:
        await notebook.text("import os; os.environ['OWN'] = 'own'")
        arguments = {"code": "import os; os.environ['TOKEN']", "env": {"TOKEN": "it's \\ secret", "OWN": "lent"}}
        reply = await notebook.sandbox.request("kernel.run", arguments, key="secret:1")
        assert reply.result["output"] == '"it\'s \\\\ secret"'
        assert await notebook.text("os.environ.get('TOKEN'), os.environ['OWN']") == "(None, 'own')"
        assert "secret" not in await notebook.text("%history")

    async def test_a_cell_is_never_run_twice(self, notebook: NotebookKit) -> None:
        await notebook.text("count = 0")
        arguments = {"code": "count += 1; count"}
        first = await notebook.sandbox.request("kernel.run", arguments, key="once:1")
        again = await notebook.sandbox.request("kernel.run", arguments, key="once:1")
        assert (first.result["output"], again.result) == ("1", first.result)
        assert await notebook.text("count") == "1"

    async def test_helpers_show_a_window_of_a_file(self, notebook: NotebookKit) -> None:
        path = f"{notebook.sandbox.working_dir}/lines.txt"
        written = f"with open('{path}', 'w') as file: file.write(''.join(f'line {{n}}\\n' for n in range(1, 301)))"
        top = await notebook.text(f"{written}\nopen_file('{path}')")  # they are there in the first cell
        assert top.startswith(f"[File: {path} (300 lines total)]\n(this is the beginning of the file)\n1|line 1\n")
        assert top.endswith("\n100|line 100\n(200 more lines below)")
        down = await notebook.text("scroll_down()")
        assert (down.split("\n")[1], down.split("\n")[-1]) == ("(50 more lines above)", "(150 more lines below)")
        assert (await notebook.text("goto_line(300)")).endswith("300|line 300\n(this is the end of the file)")
        assert "150|line 150" in await notebook.text("scroll_up(); scroll_up()")
        assert await notebook.text("goto_line(301)") == "ERROR: The line number must be between 1 and 300."
        assert (await notebook.text(f"open_file('{path}', 10, 4)")).count("|line") == 4
        found = f'[Found 2 matches for "line 30" in {path}]\nLine 30: line 30\nLine 300: line 300\n'
        assert (await notebook.text("search_file('line 30')")).startswith(found)

    async def test_helpers_find_files_and_text(self, notebook: NotebookKit) -> None:
        await output(notebook.sandbox, "mkdir -p many; for i in $(seq 101); do echo needle > many/f$i.txt; done")
        assert "More than 100 files" in await notebook.text("search_dir('needle', 'many')")
        await output(notebook.sandbox, "rm many/f1.txt")
        assert (await notebook.text("search_dir('needle', 'many')")).startswith("[Found 100 matches")
        assert "many/f77.txt" in await notebook.text("find_file('f77')")
        found = await notebook.text("open('shop.py', 'w').write('def total(): pass'); search_code_snippets(['total'])")
        assert "[function shop.py:total, lines 1 to 1]" in found
        assert await notebook.text("find_file('nothing', 'many')") == 'No matches found for "nothing" in many'

    async def test_helpers_read_documents(self, notebook: NotebookKit) -> None:
        word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
        drawing = "http://schemas.openxmlformats.org/drawingml/2006/main"
        text = f"<d xmlns:w='{word}'><w:p><w:r><w:t>Hello</w:t><w:tab/><w:t>Word</w:t></w:r></w:p></d>"
        slide = f"<d xmlns:a='{drawing}'><a:p><a:r><a:t>Hello slide</a:t></a:r></a:p></d>"
        files = {"a.docx": _zip({"word/document.xml": text}), "a.pptx": _zip({"ppt/slides/slide1.xml": slide})}
        files["a.tex"] = b"\\documentclass{article}\n\\section{Title} % gone\n50\\% \\textbf{bold}"
        for name, content in files.items():
            await notebook.sandbox.request(
                "file.write", {"path": f"{notebook.sandbox.working_dir}/{name}"}, blob=content
            )
        assert (await notebook.text("parse_docx('a.docx')")).endswith("\nHello\tWord")
        assert (await notebook.text("parse_pptx('a.pptx')")).endswith("\n@@ Slide 1 @@\nHello slide")
        assert (await notebook.text("parse_latex('a.tex')")).endswith("\nTitle \n50% bold")
        assert "cannot be read as a PDF file" in await notebook.text("parse_pdf('a.docx')")
        await notebook.text("import pypdf; w = pypdf.PdfWriter(); w.add_blank_page(72, 72); w.write('a.pdf'); None")
        assert (await notebook.text("parse_pdf('a.pdf')")).startswith("[Reading PDF file from a.pdf]\n@@ Page 1 @@")

    async def test_helpers_edit_files_as_the_editor_tool_does(self, notebook: NotebookKit) -> None:
        path = f"{notebook.sandbox.working_dir}/edited.txt"
        assert "created successfully" in await notebook.text(f"print(file_editor('create', '{path}', file_text='one'))")
        change = f"print(file_editor('str_replace', '{path}', old_str='one', new_str='two'))"
        assert "two" in await notebook.text(change)
        undone = await notebook.sandbox.request("file.edit", {"command": "undo_edit", "path": path})
        assert "one" in undone.result["text"]
        assert (await notebook.text(f"print(file_editor('create', '{path}', file_text='x'))")).startswith("ERROR:\n")


def _zip(entries: dict[str, str]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return buffer.getvalue()
