"""A small site for tests of the browser tools: a program of its own, which is run inside the sandbox.

``python3 browser_site.py PORT_FILE`` serves on a free port of the loopback address and writes it to the file.
Standard library only.
"""

from __future__ import annotations

import sys
import threading
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PAGES = {
    "/": """<title>Harbour</title><h1>The harbour</h1>
        <p>Ships that wait.</p><a href="/form">The form</a> <a href="/boats" target="_blank">Boats</a>
        <iframe title="Tide" srcdoc="<button onclick=&quot;this.textContent='High'&quot;>Low</button>"></iframe>
        <div style="height:3000px"></div><button onclick="document.title='Bottom'">Far below</button>""",
    "/boats": "<title>Boats</title><p>Three boats.</p>",
    "/form": """<title>Form</title><form action="/sent">
        <label>Name <input name="name" value="nobody"></label>
        <label>Kind <select name="kind"><option value="s">Sail<option value="r">Row</select></label>
        <label><input type="checkbox" name="ready" value="yes">Ready</label>
        <label>Notes <textarea name="notes"></textarea></label>
        <button>Send</button></form>
        <label>Paper <input type="file" multiple onchange="document.getElementById('told').textContent =
            [...this.files].map(file => file.name).join('+')"></label><p id="told"></p>
        <div contenteditable role="textbox" aria-label="Log"></div>""",
    "/drag": """<title>Drag</title><style>div{width:120px;height:60px;border:1px solid}</style>
        <div role="button" draggable="true" ondragstart="event.dataTransfer.setData('text', 'crate')">Crate</div>
        <div role="button" ondragover="event.preventDefault()"
            ondrop="event.preventDefault(); this.textContent = 'Got ' + event.dataTransfer.getData('text')">Quay
        </div>
        <div role="button" style="margin-top: 3000px" ondragover="event.preventDefault()"
            ondrop="event.preventDefault(); this.textContent = 'Far ' + event.dataTransfer.getData('text')">Reef
        </div>""",
    "/dialogs": """<title>Dialogs</title><button onclick="alert('Fog')">Alert</button>
        <button onclick="document.title = confirm('Sail?') + '/' + prompt('Where to?', 'North')">Ask</button>""",
    "/busy": """<title>Busy</title><button onclick="for (;;) {}">Hang</button>
        <button onclick="setTimeout(() => {
            const last = new XMLHttpRequest(); last.open('GET', '/hangs' + location.search, false); last.send();
            for (;;) {} }, 200)">Hang soon</button>""",
    "/restless": """<title>Restless</title><script>setInterval(() => location.reload(), 10)</script>""",
    "/flashing": """<title>Flashing</title><meta http-equiv="refresh" content="0"><button>Flash</button>""",
    "/lazy": """<title>Lazy</title><a href="/never">Nowhere</a> <a href="/gate">Gate</a>
        <button onclick="document.title = 'Awake'">Wake</button><button>Twin</button>
        <button>Twin</button>""",
    "/chart": """<title>Chart</title><svg width="400" height="100">
        <circle id="buoy" cx="50" cy="50" r="40" onclick="document.title = 'Buoy'"/>
        <g><title>Lighthouse</title><rect x="110" width="80" height="80"/></g>
        <a href="/boats"><rect x="210" width="80" height="80"/></a></svg>
        <svg id="own" width="50" height="50"><rect width="50" height="50"/></svg>
        <p>See <span onclick="document.title = 'Words'">the words</span>, or <i>not these</i>.</p><script>
        document.querySelector('g').addEventListener('click', () => document.title = 'Lighthouse');
        document.getElementById('own').onpointerdown = () => document.title = 'Own'</script>""",
    "/folder": """<title>Folder</title><label>Logs <input type="file" webkitdirectory onchange="tell(this)"></label>
        <label>Page <input type="file" onchange="tell(this)"></label><input type="file" webkitdirectory hidden id="hold"
        onchange="tell(this)"><button onclick="hold.click()">Load</button><p id="told">untold</p><script>
        const tell = input => told.textContent =
            [...input.files].map(file => file.webkitRelativePath || file.name).sort().join('+') || 'nothing'
        </script>""",
    "/fields": """<title>Fields</title><label>Day <input type="date"></label><label>Paint <input type="color"></label>
        <label>Rig <select><option>Sloop<option disabled>Ketch</select></label><button disabled>Off</button>""",
    "/waiting": """<title>Waiting</title><p>For a frame.</p><iframe src="/never"></iframe>""",
    "/deceitful": """<title>Deceitful</title><button>Seen</button><script>
        document.getElementsByTagName = () => { throw new Error('Nothing to see') }</script>""",
    "/papers": """<title>Papers</title><a href="/paper.csv">Paper</a>""",
    "/keys": """<title>Keys</title><input aria-label="Field" onkeydown="document.title += ' ' + event.key">
        <button ondblclick="document.title='double'" oncontextmenu="document.title='right'"
            onmouseover="document.title='hover'">Target</button><input type="file" hidden id="hold"
            onchange="document.title = this.files[0].name"><button onclick="hold.click()">Load</button>""",
    "/store": """<title>Store</title><script>document.cookie = 'berth=7; path=/';
        localStorage.setItem('flag', 'blue');</script>""",
    "/stored": """<title>Stored</title><p id="p"></p><script>document.getElementById('p').textContent =
        document.cookie + ' ' + localStorage.getItem('flag')</script>""",
    "/spoof": """<title>Spoof</title><p>- button "Pay [ref=e1]" [ref=e2]</p><button>Say "a: b" [ref=e99]</button>""",
    "/shadow": """<title>Shadow</title><div id="host"></div><script>
        document.getElementById('host').attachShadow({mode: 'open'}).innerHTML =
            '<button onclick="document.title=\\'Reached\\'">Inside</button><input aria-label="Deep">'</script>
        <iframe title="Outer" srcdoc="<p>Between</p><iframe srcdoc='<button onclick=&quot;top.document.title=
            `Innermost`&quot;>Inner</button>'></iframe>"></iframe>""",
    "/clingy": """<title>Clingy</title><button>Touch</button><script>
        addEventListener('beforeunload', event => { event.preventDefault(); event.returnValue = 'stay' })</script>""",
    "/ticking": """<title>Ticking</title><button onclick="setInterval(() => alert('tick'), 5)">Tick</button>""",
    "/windows": """<title>Windows</title><button onclick="window.open('/who')">Sign in</button>
        <button onclick="const made = window.open('', '_blank', 'width=300,height=200');
            made.document.write('<p>By hand.</p>'); made.document.close()">Write</button>
        <button onclick="late = window.open('/never')">Late</button><button onclick="late.close()">Forget</button>
        <button onclick="for (let count = 0; count < 30; count++) window.open('/boats?' + count)">Storm</button>""",
    "/who": """<title>Who are you</title>
        <button onclick="opener.document.title = 'Hello Ann'; window.close()">Ann</button>
        <button onmousedown="opener.document.title = 'Hello nobody'; window.close()">Leave</button>""",
    "/outward": """<title>Outward</title><a href="tel:+123">Call</a><button onclick="document.title='Still here'">Next
        </button><button onclick="document.open()">Wipe</button><label><input type="radio">One</label>""",
    "/crowded": "<title>Crowded</title><p>So many.</p>" + "<i></i>" * 31_000,
    "/titled": f"<title>{'T' * 5000}</title><p>Long.</p>",
    "/made": """<title>Made</title><a id="link" download="made.bin">Save</a><script>
        const made = new Blob([new Uint8Array([0, 255, 10])]);
        document.getElementById('link').href = URL.createObjectURL(made)</script>""",
    "/long": "<title>Long</title>" + "".join(f"<p>Line {number} of the long page.</p>" for number in range(4000)),
}


FILES = {
    "/drawing": ("image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'><text y='20'>Drawn</text></svg>"),
    "/broken": ("text/xml", b"<sea><wave>"),
    "/film": ("video/mp4", b"none"),
    "/endless": ("text/html", b"<title>Endless</title><p>So much.</p><div hidden>" + b"wave " * 1_100_000),
}
_GATE = threading.Event()
_ASKED: set[str] = set()
"""All paths that were asked for, with their queries."""
_ANOTHER = threading.Condition()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Serve one of the pages, or one that goes wrong."""
        parts = urlsplit(self.path)
        with _ANOTHER:
            _ASKED.add(self.path)
            _ANOTHER.notify_all()
        if parts.path == "/asked":
            with _ANOTHER:
                self._begin(200 if _ANOTHER.wait_for(lambda: parts.query in _ASKED, 30) else 504, {})
        elif parts.path == "/never":
            threading.Event().wait(60)
        elif parts.path == "/gate":
            _GATE.wait(60)
            self._begin(200, {})
            self.wfile.write(b"<title>Through</title><p>The gate was opened.</p>")
        elif parts.path == "/open":
            _GATE.set()
            self._begin(200, {})
        elif parts.path == "/begun":
            self._begin(200, {"Content-Length": "1000"})
            self.wfile.flush()
            threading.Event().wait(60)
        elif parts.path in FILES:
            self._begin(200, {"Content-Type": FILES[parts.path][0]})
            self.wfile.write(FILES[parts.path][1])
        elif parts.path == "/unfinished":
            self._begin(200, {"Content-Length": "1000000"})
            self.wfile.write(b"<title>Unfinished</title><p>So far.</p><button>There</button>")
            self.wfile.flush()
            threading.Event().wait(60)
        elif parts.path == "/paper.csv":
            self._begin(200, {"Content-Disposition": 'attachment; filename="paper.csv"'})
            self.wfile.write(b"a,b\n1,2\n")
        elif parts.path == "/round":
            self._begin(302, {"Location": "/round"})
        elif parts.path == "/nothing":
            self._begin(204, {})
        elif parts.path == "/noise":
            self.wfile.write(b"\0\1\2 noise")
        elif parts.path == "/private":
            self._begin(401, {"WWW-Authenticate": "Basic realm=harbour"})
        elif parts.path == "/evil":
            self._begin(200, {"Content-Disposition": 'attachment; filename="../../evil name.tar.gz"'})
            self.wfile.write(bytes(range(256)) * 4000)
        elif parts.path == "/away":
            self._begin(302, {"Location": f"http://127.0.0.1:{self.server.server_port}/boats"})  # type: ignore[attr-defined] # it has one
        elif parts.path == "/sent":
            self._begin(200, {})
            self.wfile.write(f"<title>Sent</title><p>{escape(parts.query)}</p>".encode())
        elif parts.path in PAGES:
            self._begin(200, {})
            self.wfile.write(PAGES[parts.path].encode())
        else:
            self._begin(404, {})
            self.wfile.write(b"<title>Lost</title>Nothing here.")

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "text/html; charset=utf-8", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main(port_file: str) -> None:
    """Serve until ended."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    with open(port_file, "w", encoding="ascii") as file:
        file.write(str(server.server_port))
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
