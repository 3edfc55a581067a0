"""`python -m bench.compare`: the same rounds against two servers, of which nothing is left."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agent_core.testing.model_server import ModelServer
from bench.compare import main
from bench.model_process import echo_steps
from tests.integration.server.conftest import MakeProcess

TOKEN = "a-token-of-twenty-four-characters-and-more"


async def test_two_servers_are_compared_in_turns_and_left_as_they_were(
    make_process: MakeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ModelServer(echo_steps(2)) as model:
        environment = {"LLM_MODEL": "openai/x", "LLM_BASE_URL": model.url, "LLM_API_KEY": "k"}
        environment["DRYDOCK_GENERATE_TITLES"] = "false"
        options = ("--sandbox", "unconfined")
        a = await make_process(*options, name="a", environment=environment)
        b = await make_process(*options, name="b", environment={**environment, "DRYDOCK_TOKEN": TOKEN})
        b.token = TOKEN
        file = tmp_path / "figures.json"
        words = ["--url", a.url, "--url", b.url, "--rounds", "2", "--output", str(file)]
        assert await asyncio.to_thread(main, words) == 1  # without the token of B
        assert "401" in capsys.readouterr().err
        monkeypatch.setenv("TOKEN_B", TOKEN)
        assert await asyncio.to_thread(main, words) == 0
        printed = capsys.readouterr().out
        assert "| steps | 3.0 | 3.0 | 1.00 | 0 of 2 |" in printed
        assert f"A is {a.url}, B is {b.url}; medians of 2 pairs" in printed
        assert len(json.loads(file.read_bytes())["rounds"]) == 2
        for server in (a, b):
            async with server.client() as client:
                assert (await client.get("/api/conversations")).json()["results"] == []


def test_two_servers_have_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--url", "http://127.0.0.1:1"])
    assert "name two servers: --url A --url B" in capsys.readouterr().err
