"""How far an agent may go without its user."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Limits:
    """How far an agent may go without its user: responses of the model, and US dollars (None: no limit).

    With `per_run` the responses are counted from the beginning of each run, else from that of the conversation.
    """

    max_iterations: int
    max_budget: float | None = None
    per_run: bool = False
    iteration_limit: int = 0
    budget_limit: float | None = None

    def __post_init__(self) -> None:
        self.iteration_limit = self.max_iterations
        self.budget_limit = self.max_budget

    def begin_run(self, iterations: int) -> None:
        """A run begins: where responses are counted per run, they are counted anew."""
        if self.per_run:
            self.iteration_limit = iterations + self.max_iterations

    def extend(self, iterations: int, cost: float) -> None:
        """The agent begins to work: a limit that was hit is raised by its initial amount."""
        if self.per_run or iterations >= self.iteration_limit:
            self.iteration_limit = iterations + self.max_iterations
        if self.max_budget is not None and self.budget_limit is not None and cost >= self.budget_limit:
            self.budget_limit = cost + self.max_budget
