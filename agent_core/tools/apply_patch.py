"""The apply_patch tool: changes to several files at once, in one patch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.tools.context import ToolContext
from agent_core.tools.execution import SandboxExecutor
from agent_core.tools.file_editor import LIMIT_SECONDS, FileTool
from agent_core.tools.registry import built_in
from agent_core.tools.spec import ToolAnnotations

_HEADER: Final = re.compile(r"^\*\*\* (?:Update File|Delete File|Add File|Move to): (.+?)\s*$", re.MULTILINE)


class ApplyPatchAction(Action):
    """One patch."""

    patch: str = Field(
        min_length=1,
        max_length=1024 * 1024,
        description="The patch, from the line *** Begin Patch to the line *** End Patch.",
    )

    @property
    def paths(self) -> list[str]:
        return list(dict.fromkeys(_HEADER.findall(self.patch)))


class ApplyPatchObservation(Observation):
    """The files that were written or removed, and their unified diff. `fuzz` 0: all places were found exactly."""

    paths: list[str] = Field(default_factory=list)
    diff: str | None = None
    fuzz: int = 0


class ApplyPatchExecutor(SandboxExecutor[ApplyPatchAction, ApplyPatchObservation]):
    """Has the sandbox apply it, at most once."""

    async def carry_out(self, action: ApplyPatchAction, context: ToolContext, key: str | None) -> ApplyPatchObservation:
        reply = await context.sandbox.request(
            "patch.apply", {"patch": action.patch}, key=key, limit_seconds=LIMIT_SECONDS
        )
        result = reply.result
        fields = {name: result[name] for name in ("is_error", "paths", "diff", "fuzz")}
        return ApplyPatchObservation.from_text(result["text"], **fields)


_DESCRIPTION = """Change files of the workspace by a patch. All of it is applied, or nothing.

*** Begin Patch
*** Update File: src/main.py
*** Move to: src/app.py
@@ def greet():
     name = "you"
-    print(name)
+    print(f"Hello {name}")
*** Add File: notes.txt
+One line of the new file.
*** Delete File: old.txt
*** End Patch

- A hunk begins with @@ and, where that is needed to tell the place, a line that stands above it. Its lines begin with a
  blank (stays), - (goes) or + (comes). Give about three unchanged lines before and after a change.
- *** End of File after a hunk says that it is at the end. *** Move to is for renaming only.
- Paths are relative to the workspace."""


@built_in
class ApplyPatchTool(FileTool[ApplyPatchAction, ApplyPatchObservation]):
    """The `apply_patch` tool."""

    journaled = True
    tool_name = "apply_patch"
    executor_class = ApplyPatchExecutor
    description: str = _DESCRIPTION
    annotations: ToolAnnotations = ToolAnnotations(title="Apply patch", openWorldHint=False)

    def touched(self, action: ApplyPatchAction) -> Iterable[str]:
        return action.paths
