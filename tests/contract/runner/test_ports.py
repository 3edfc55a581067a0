"""Ports of the sandbox: which ones something listens on, and connections to them through the runner's one stream."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runtime_images.runner.tunnels.tunnels import TUNNEL_LIMIT
from runtime_images.runner.wire import TUNNEL_WINDOW as WINDOW
from tests.contract.runner.client import PATIENCE_SECONDS, Client, Runner, until

LISTEN = "python3 -c 'import socket; s = socket.create_server((\"{}\", {}), family=socket.{}); input()' & echo $!"


@contextlib.contextmanager
def listening(address: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.create_server((address, 0)) as server:
        server.settimeout(PATIENCE_SECONDS)
        yield server


@contextlib.contextmanager
def opened(client: Client, stream: int = 1) -> Iterator[socket.socket]:
    """The port's end of a new tunnel."""
    with listening() as server:
        client.send_to(stream, open={"port": server.getsockname()[1]})
        end, _ = server.accept()
        with end:
            end.settimeout(PATIENCE_SECONDS)
            assert client.wait_for_tunnel(stream).message == {"stream": stream, "opened": True}
            yield end


def entry(client: Client, port: int) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = client.call("ports.list").result["ports"]
    return next((one for one in found if one["port"] == port), None)


def received(client: Client, stream: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        frame = client.wait_for_tunnel(stream)
        assert frame.blob is not None, frame
        data += frame.blob
    return data


def test_what_a_command_listens_on_is_listed_with_its_program_and_is_gone_with_it(client: Client) -> None:
    pid = int(client.output("python3 -m http.server 0 --bind 127.0.0.1 >/dev/null 2>&1 & echo $!").split()[-1])

    def ports() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = client.call("ports.list").result["ports"]
        return [one for one in found if one["pid"] == pid]

    until(lambda: bool(ports()), "the port is listed")
    (found,) = ports()
    assert found["addresses"] == ["127.0.0.1"]
    assert found["process"].startswith("python3")
    assert "http.server 0" in found["command"]
    client.output(f"kill {pid}; wait {pid} 2>/dev/null || true")
    until(lambda: not ports(), "the port is gone")


def test_one_port_on_several_addresses_is_one_entry(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with socket.create_server(("127.0.0.2", port)):
            found = entry(client, port)
    assert found is not None
    assert sorted(found["addresses"]) == ["127.0.0.1", "127.0.0.2"]


def test_a_connected_socket_is_no_listening_one(client: Client) -> None:
    with listening() as server, socket.create_connection(server.getsockname()) as ours:
        assert entry(client, server.getsockname()[1]) is not None
        assert entry(client, ours.getsockname()[1]) is None


def test_helpers_of_the_runner_are_not_listed(client: Client) -> None:
    command = LISTEN.format("127.0.0.1", 0, "AF_INET")
    shown = int(client.output(f"sleep 100 | {command}").split()[-1])
    hidden = int(client.output(f"sleep 100 | DRYDOCK_OWN=x {command}").split()[-1])

    def pids() -> set[Any]:
        return {one["pid"] for one in client.call("ports.list").result["ports"]}

    until(lambda: shown in pids(), "the first is listed")
    until(lambda: "0A" in client.output(f"cat /proc/{hidden}/net/tcp"), "the second listens")
    assert hidden not in pids()


def test_a_sandbox_on_its_hosts_network_lists_and_reaches_its_own_ports_only(
    directory: Any, request: pytest.FixtureRequest
) -> None:
    runner = Runner(directory, env={"DRYDOCK_SANDBOX": "ours"})
    request.addfinalizer(runner.close)
    client = runner.connect()
    pid = int(client.output(f"sleep 100 | {LISTEN.format('127.0.0.1', 0, 'AF_INET')}").split()[-1])

    def own() -> list[int]:
        return [one["port"] for one in client.call("ports.list").result["ports"] if one["pid"] == pid]

    until(lambda: bool(own()), "the own port is listed")
    client.send_to(1, open={"port": own()[0]})
    assert client.wait_for_tunnel(1).message == {"stream": 1, "opened": True}
    with listening() as foreign:
        port = foreign.getsockname()[1]
        assert entry(client, port) is None
        client.send_to(2, open={"port": port})
        assert client.wait_for_tunnel(2).message["error"]["code"] == "refused"


def test_bytes_go_both_ways_unchanged_and_each_direction_ends_by_itself(client: Client) -> None:
    data = bytes(range(256)) * 64
    with opened(client) as end:
        client.send_to(1, data)
        client.send_to(1, end=True)
        got = b""
        while piece := end.recv(65536):
            got += piece
        assert got == data
        end.sendall(data[::-1])
        assert received(client, 1, len(data)) == data[::-1]
        end.shutdown(socket.SHUT_WR)
        assert client.wait_for_tunnel(1).message == {"stream": 1, "end": True}
    client.send_to(1, b"late")  # nobody is there any more: left alone
    assert client.call("ping").result["journal"] == "ok"


def test_a_port_on_ipv6_only_is_reached(client: Client) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        client.send_to(1, open={"port": server.getsockname()[1]})
        assert client.wait_for_tunnel(1).message == {"stream": 1, "opened": True}


def test_a_port_on_another_address_is_reached(client: Client) -> None:
    with socket.create_server(("127.0.0.5", 0)) as server:
        client.send_to(1, open={"port": server.getsockname()[1]})
        assert client.wait_for_tunnel(1).message == {"stream": 1, "opened": True}


def test_what_is_no_port_is_refused(client: Client) -> None:
    for stream, given in enumerate([{}, {"port": 0}, {"port": 65536}, {"port": "80"}, {"port": True}, 80, None]):
        client.send_to(stream, open=given)
        assert client.wait_for_tunnel(stream).message["error"]["code"] == "bad_request"


def test_a_port_without_a_listener_is_refused_at_once(client: Client) -> None:
    with listening() as server:
        port = server.getsockname()[1]
    client.send_to(1, open={"port": port})
    assert client.wait_for_tunnel(1).message["error"]["code"] == "refused"


def flood(end: socket.socket) -> None:
    """Send until nobody takes any more."""
    end.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            end.send(bytes(1 << 20))


def test_a_flood_waits_in_the_port_until_it_is_granted(client: Client, runner: Runner) -> None:
    with opened(client) as end:
        before = runner.memory_kilobytes()
        flood(end)
        received(client, 1, WINDOW)
        flood(end)
        assert client.call("ping").result["journal"] == "ok"
        assert not client._tunnels.get(1)  # nothing of the tunnel came before the answer
        assert runner.memory_kilobytes() - before < 8 * 1024
        client.send_to(1, credit=1000)
        assert len(received(client, 1, 1000)) == 1000


def test_what_the_port_does_not_read_is_not_granted_anew(client: Client) -> None:
    with opened(client) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        left, granted = WINDOW, 0
        while True:
            client.send_to(1, bytes(left))
            granted += left
            left = 0
            client.call("ping")
            client.call("ping")
            while client._tunnels.get(1):
                left += client.wait_for_tunnel(1).message["credit"]
            if not left:
                break
            assert granted < 64 * 1024 * 1024, "the window never closes"
        client.send_to(1, bytes(WINDOW + 1))
        assert client.wait_for_tunnel(1).message["error"]["code"] == "protocol"


def test_commands_are_answered_while_a_download_is_not_read(client: Client) -> None:
    with opened(client) as end:
        client.send_to(1, credit=1 << 40)
        flood(end)
        number = client.send("ping")
        behind = 0
        while True:
            frame = client.receive()
            if frame.message.get("id") == number:
                break
            behind += len(frame.blob or b"")
    assert behind < 4 * 1024 * 1024  # the kernel's buffers and the room of the connection, not the whole window


def test_a_reset_closes_the_port_and_a_lost_server_closes_all(client: Client, connect: Callable[[], Client]) -> None:
    with opened(client, 1) as first, opened(client, 2) as second:
        client.send_to(1, reset=True)
        assert first.recv(1) == b""
        connect()
        assert second.recv(1) == b""


def test_a_port_that_breaks_off_is_told(client: Client) -> None:
    with opened(client) as end:
        client.send_to(1, b"never read")
        until(lambda: len(end.recv(64, socket.MSG_PEEK)) == 10, "it is there")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    assert client.wait_for_tunnel(1).message["error"]["code"] == "reset"


def test_there_is_a_bound_on_tunnels(client: Client) -> None:
    with listening() as server:
        server.listen(TUNNEL_LIMIT + 8)
        for stream in range(TUNNEL_LIMIT + 1):
            client.send_to(stream, open={"port": server.getsockname()[1]})
        assert client.wait_for_tunnel(TUNNEL_LIMIT).message["error"]["code"] == "busy"
        assert client.wait_for_tunnel(TUNNEL_LIMIT - 1).message["opened"] is True
        client.send_to(0, reset=True)
        client.send_to(TUNNEL_LIMIT + 1, open={"port": server.getsockname()[1]})
        assert client.wait_for_tunnel(TUNNEL_LIMIT + 1).message == {"stream": TUNNEL_LIMIT + 1, "opened": True}
