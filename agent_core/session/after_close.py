"""What becomes of a sandbox when its session is closed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from agent_core.errors import SandboxError
from agent_core.runtime.connection import SandboxConnection
from agent_core.runtime.shared_sandbox import SharedSandbox

logger = logging.getLogger(__name__)

AfterClose = Literal["keep", "pause", "stop", "destroy"]


async def let_go(sandbox: SandboxConnection | SharedSandbox, after: AfterClose) -> None:
    """Do that to the sandbox, and close the connection; a sandbox that does not obey is logged."""
    actions: dict[AfterClose, Callable[[], Awaitable[None]]] = {
        "pause": sandbox.pause,
        "stop": sandbox.stop,
        "destroy": sandbox.destroy,
    }
    try:
        if (action := actions.get(after)) is not None:
            await action()
    except SandboxError as error:
        where = sandbox.sandbox.spec.conversation_id if isinstance(sandbox, SandboxConnection) else "of a sub-agent"
        logger.warning("conversation %s: %s of its sandbox failed: %s", where, after, error)
    finally:
        await sandbox.close()
