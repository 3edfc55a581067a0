"""`python3 -m deploy.engine_proxy`: serve until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from pathlib import Path

from deploy.engine_proxy.ownership import ServedInstance
from deploy.engine_proxy.proxy import EngineProxy


async def _serve(host: str, port: int, engine_socket: str, instance: ServedInstance) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with EngineProxy(engine_socket, instance).serving(host, port) as bound_port:
        logging.getLogger("engine_proxy").info("listening on %s:%d for %s", host, bound_port, engine_socket)
        await stopped.wait()


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(prog="engine_proxy", description="Filtering proxy before a Docker engine.")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - an internal network
    parser.add_argument("--port", type=int, default=2375)
    parser.add_argument("--engine", default="/var/run/docker.sock", help="path of the engine's unix socket")
    parser.add_argument(
        "--instance",
        type=Path,
        default=Path("/var/lib/engine-proxy/instance"),
        help="file that keeps which Drydock is served; its folder must outlive this program",
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        instance = ServedInstance(options.instance)
    except (OSError, ValueError) as problem:
        parser.error(str(problem))
    asyncio.run(_serve(options.host, options.port, options.engine, instance))


if __name__ == "__main__":
    main()
