"""`ConversationState`: what a program sees of its conversation."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self, overload

from agent_core.agent.base import AgentBase
from agent_core.events.branches import get_unmatched_actions
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.library.conversation_log import ConversationLog, ExecutionStatus, StatusFold, is_bookkeeping
from agent_core.library.run_loop import RunLoop
from agent_core.library.workspace import Workspace
from agent_core.llm.metrics import ConversationStats
from agent_core.memory.view import View
from agent_core.runtime.loop_thread import library_loop
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.confirmation import ConfirmationPolicy, policy_in_force
from agent_core.security.hooks import HookConfig
from agent_core.security.secrets import SecretRegistry, SecretValue
from agent_core.spelling import spelled

PAGE = 200
MAX_TAG_CHARS: Final = 256
_TAG_NAME: Final = re.compile(r"[a-z0-9]+")


@spelled
class ConversationState:
    """The state of a conversation, as its program and the factories of its tools see it (``conv_state``).

    Everything is as the log tells it at the moment of asking; nothing can be set here, the conversation's methods do.
    In a ``with`` block a thread of the program has it for itself: others that want it so wait, in the order of coming.
    The agent waits for nobody, so its log may grow meanwhile. `events` is like a list of what was said and done, `log`
    of all that is stored; names of skills are those that the model still knows.
    """

    def __init__(
        self, work: RunLoop, workspace: Workspace, persistence_dir: str | None, tags: Mapping[str, str]
    ) -> None:
        self.id = work.conversation_id
        self.workspace = workspace
        self.persistence_dir = persistence_dir
        self.events = Events(work.log)
        self.log = Events(work.log, whole=True)
        for name, value in tags.items():
            if not isinstance(name, str) or not _TAG_NAME.fullmatch(name):
                raise ValueError(f"tag {name!r}: a name has only lower-case letters and digits")
            if not isinstance(value, str):
                raise TypeError(f"tag {name!r}: its value is a {type(value).__name__}: give a text")
            if len(value) > MAX_TAG_CHARS:
                text = f"its value has {len(value)} characters; at most {MAX_TAG_CHARS} are allowed"
                raise ValueError(f"tag {name!r}: {text}")
        self.tags = dict(tags)
        self.secret_registry = SecretView(work)
        self._work = work
        self._lock = FairLock()

    @property
    def agent(self) -> AgentBase:
        return self._work.agent

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._lock.release()

    @property
    def execution_status(self) -> ExecutionStatus:
        return self._fold.status

    @property
    def max_iterations(self) -> int:
        return self._work.settings.max_iterations

    @property
    def stuck_detection(self) -> bool:
        return self._work.settings.stuck_detection

    @property
    def confirmation_policy(self) -> ConfirmationPolicy:
        """Which actions wait for the user: what the log says, else what was configured."""
        return policy_in_force(self._fold.core.policy, self._work.settings.policy)

    @property
    def security_analyzer(self) -> SecurityAnalyzer | None:
        return self._work.settings.analyzer

    @property
    def hook_config(self) -> HookConfig:
        """The given hooks; those of the project and of the user's home come after them."""
        return self._work.settings.hooks

    @property
    def stats(self) -> ConversationStats:
        return library_loop().run(self._work.stats())

    @property
    def view(self) -> View:
        return library_loop().run(self._work.log.view())

    @property
    def leaf_event_id(self) -> int | None:
        """Id of the newest event that counts, other than changes of state; None where there is none."""
        return self._fold.leaf

    @property
    def head_is_empty(self) -> bool:
        """Whether the conversation was taken back to before its first event, and nothing has happened since."""
        return self._fold.leaf is None and self._fold.branches.rewinds > 0

    def active_branch(self, limit: int | None = None) -> list[AnyEvent]:
        """The events that count, in order: all but what rewinds have undone; with `limit` the newest so many."""

        async def branch() -> deque[AnyEvent]:
            return deque([event async for event in self._work.log.branch()], maxlen=limit)

        return list(library_loop().run(branch()))

    get_unmatched_actions = staticmethod(get_unmatched_actions)

    @property
    def activated_knowledge_skills(self) -> list[str]:
        return list(self._fold.facts.recalled)

    @property
    def activated_path_rules(self) -> list[str]:
        return list(self._fold.facts.path_rules)

    @property
    def invoked_skills(self) -> list[str]:
        return list(self._fold.facts.invoked)

    @property
    def blocked_actions(self) -> dict[int, str]:
        """Why hooks refused actions, by id; `blocked_messages` likewise."""
        return dict(self._fold.facts.blocked_actions)

    @property
    def blocked_messages(self) -> dict[int, str]:
        return dict(self._fold.facts.blocked_messages)

    @property
    def last_user_message_id(self) -> int | None:
        return self._fold.facts.last_user_message_id

    @property
    def agent_state(self) -> dict[str, Any]:
        return {"iterative_refinement_iteration": self._fold.core.refinements}

    @property
    def _fold(self) -> StatusFold:
        return library_loop().run(self._work.log.present())


class Events(Sequence[AnyEvent]):
    """The events of a conversation, in order; with `whole` also states, recalls, and sums of costs."""

    def __init__(self, log: ConversationLog, *, whole: bool = False) -> None:
        self._log = log
        self._whole = whole

    def __len__(self) -> int:
        return len(self._ids())

    @overload
    def __getitem__(self, index: int) -> AnyEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[AnyEvent]: ...
    def __getitem__(self, index: int | slice) -> AnyEvent | list[AnyEvent]:
        ids = self._ids()
        if isinstance(index, slice):
            return [self._read(event_id, 1)[0] for event_id in ids[index]]
        if not -len(ids) <= index < len(ids):
            raise IndexError(f"event {index} of {len(ids)}")
        return self._read(ids[index], 1)[0]

    def __iter__(self) -> Iterator[AnyEvent]:
        position = 0
        while page := self._read(position, PAGE):
            yield from (event for event in page if self._whole or not is_bookkeeping(event))
            position = page[-1].id + 1

    def _ids(self) -> Sequence[int]:
        fold = library_loop().run(self._log.present())
        return range(fold.last_id + 1) if self._whole else fold.shown

    def _read(self, start: int, count: int) -> list[AnyEvent]:
        stored = library_loop().run(self._log.store.read(self._log.conversation_id, after=start - 1, limit=count))
        return [from_payload(record.payload, record.id, self._log.conversation_id) for record in stored]


class SecretView:
    """Names and descriptions of the present secrets; iterating gives the names. Shows no value."""

    def __init__(self, work: RunLoop) -> None:
        self._work = work

    def __iter__(self) -> Iterator[str]:
        return iter(self.descriptions())

    def __len__(self) -> int:
        return len(self.descriptions())

    def __contains__(self, name: object) -> bool:
        return name in self.descriptions()

    def __repr__(self) -> str:
        return f"SecretView({list(self)})"

    def descriptions(self) -> dict[str, str]:
        return self._registry().descriptions()

    def update(self, secrets: Mapping[str, SecretValue]) -> None:
        library_loop().run(self._work.sessions.update_secrets(dict(secrets)))

    def environment_for(self, command: str) -> dict[str, str]:
        """The variables with the values that a command gets which names them; those that cannot be had are left out."""
        return library_loop().run(self._registry().environment_for(command))

    def _registry(self) -> SecretRegistry:
        registry = SecretRegistry(lambda values: None)  # nothing is shown to anybody here
        context = self._work.agent.agent_context
        registry.update((context.secrets if context is not None else None) or {})
        registry.update(self._work.settings.named_secrets)
        return registry


class FairLock:
    """A reentrant lock of threads that is handed on in the order of coming: `turns` begin with its holder's."""

    def __init__(self) -> None:
        self.turns: deque[object] = deque()
        self._moved = threading.Condition(threading.Lock())
        self._holder = 0
        self._depth = 0

    def acquire(self) -> None:
        me = threading.get_ident()
        if self._holder != me:
            turn = object()
            with self._moved:
                self.turns.append(turn)
                try:
                    self._moved.wait_for(lambda: self.turns[0] is turn)
                    self._holder = me
                except BaseException:  # Ctrl-C: it is not waited for any more
                    self.turns.remove(turn)
                    self._moved.notify_all()
                    raise
        self._depth += 1

    def release(self) -> None:
        if self._holder != threading.get_ident():
            raise RuntimeError("the lock is not this thread's, so it cannot be released here")
        self._depth -= 1
        if not self._depth:
            with self._moved:
                self._holder = 0
                self.turns.popleft()
                self._moved.notify_all()
