"""What a step pays for the agent's view of its log, as the log grows: events in, condenser, prompt out."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator

from agent_core.controller.stuck import StuckDetector
from agent_core.events.control import Condensation
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent, SystemPromptEvent
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM
from agent_core.llm.transport.exchange import Chunk, CompletionRequest, Endpoint
from agent_core.memory.condenser import Condenser
from agent_core.memory.condensers import get_default_condenser
from agent_core.memory.transcript import PromptCache
from agent_core.memory.view import View
from agent_core.tools.terminal import TerminalAction, TerminalObservation
from bench.figures import Figure, p50
from bench.stage import Stage

LENGTHS = (1_000, 5_000, 20_000)
FEW_LENGTHS = (100, 300, 600)
"""In a quick run; the longest is summed up more than once."""
STEPS = 200
"""So many steps at the end of each log are measured."""

GROWTH = 1.5
"""How much more a step may take in the longest log than in the shortest: what is measured is never quite the same."""


class Summing:
    """A way to a model that sums up at once."""

    async def prepare(self, endpoint: Endpoint) -> None:
        """Nothing takes long here."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        """The same summary each time."""
        del request
        yield Chunk(text="What came before. " * 100, has_choice=True, finish_reason="stop")


async def measure(stage: Stage) -> list[Figure]:
    """Processor time of the median step, without a condenser and with the one that conversations get by default."""
    figures: list[Figure] = []
    summing = LLM(model="openai/summing").using(Summing())
    steps = stage.few(STEPS, 20)
    lengths = FEW_LENGTHS if stage.quick else LENGTHS
    for name, condenser in (("without a condenser", None), ("default condenser", get_default_condenser(summing))):
        stage.say(f"view {name}: logs of {', '.join(f'{length:,}' for length in lengths)} events")
        readers = [_Reader(length // 2, condenser) for length in lengths]
        for reader in readers:
            for _ in range(reader.steps - steps):
                await reader.step()
        spent: list[list[float]] = [[] for _ in readers]
        for _ in range(steps):  # in turns, so that what else the machine does falls on all of them
            for reader, times in zip(readers, spent, strict=True):
                times.append(await reader.step() * 1e6)
        found = [p50(times) for times in spent]
        for length, value in zip(lengths, found, strict=True):
            figures.append(Figure(f"view per step, {name}, {length:,} events", value, "µs"))
        figures.append(Figure(f"  {lengths[-1]:,} events against {lengths[0]:,}", found[-1] / found[0], "×", GROWTH))
    return figures


class _Reader:
    """What a session does with its log before it asks the model, step by step."""

    def __init__(self, steps: int, condenser: Condenser | None) -> None:
        self.steps = steps
        self._condenser = condenser
        self._llm = LLM(model="openai/instant")
        self._view, self._stuck, self._prompts = View(), StuckDetector(), PromptCache(self._llm.render)
        self._log = _log(steps)
        self._condensations = 0
        for _ in range(2):
            self._view.add(next(self._log))

    async def step(self) -> float:
        """Take the next call and its result in; returns the seconds of processor time that it took."""
        new = (next(self._log), next(self._log))
        before = time.process_time()
        for event in new:
            self._view.add(event)
            self._stuck.fold(event)
        self._stuck.pattern()
        shown: View | Condensation = self._view
        if self._condenser is not None:
            shown = await self._condenser.acondense(self._view, self._llm)
        if isinstance(shown, Condensation):
            self._condensations += 1
            self._view.add(shown.stored_as(10**9 + self._condensations))
            shown = self._view
        self._prompts.prompt(shown.transcript)
        return time.process_time() - before


def _log(steps: int) -> Iterator[AnyEvent]:
    """A conversation in which an agent runs so many commands."""
    tools = [{"type": "function", "function": {"name": "terminal", "description": "x" * 8000}}]
    yield SystemPromptEvent(id=0, system_prompt=TextContent(text="Be good. " * 500), tools=tools)
    yield MessageEvent(id=1, source="user", llm_message=Message.user("Build a boat."))
    for number in range(steps):
        call = MessageToolCall(id=f"call_{number}", name="terminal", arguments=f'{{"command": "make part-{number}"}}')
        yield ActionEvent(
            id=2 + 2 * number,
            thought=[TextContent(text=f"Now part {number}.")],
            action=TerminalAction(command=f"make part-{number}"),
            tool_name="terminal",
            tool_call_id=call.id,
            tool_call=call,
            llm_response_id=f"resp_{number}",
        )
        yield ObservationEvent(
            id=3 + 2 * number,
            cause=2 + 2 * number,
            observation=TerminalObservation.from_text(f"part {number} is made\n" * 20, command="make", exit_code=0),
            tool_name="terminal",
            tool_call_id=call.id,
        )
