"""Which files a call changes, so that calls for different ones may run together."""

from __future__ import annotations

import posixpath
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic

from typing_extensions import TypeVar

from agent_core.events.schema import Action, Observation
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.spec import DeclaredResources

ActionT = TypeVar("ActionT", bound=Action, default=Any)
ObservationT = TypeVar("ObservationT", bound=Observation, default=Any)


class FileTool(ToolDefinition[ActionT, ObservationT], Generic[ActionT, ObservationT]):
    """A tool whose calls name the files that they touch; the same file is the same however a call writes its path.

    Attributes:
        workspace: the folder from which relative paths count, where it is known.
    """

    workspace: str = ""

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
        return [cls.in_workspace(conv_state, cls._made(**params))]

    @classmethod
    def in_workspace(cls, conv_state: Any, made: FileTool[Any, Any]) -> ToolDefinition:
        """The definition, for the workspace of this conversation."""
        where = getattr(getattr(conv_state, "workspace", None), "working_dir", "")
        return made.model_copy(update={"workspace": where}) if isinstance(where, str) else made

    @abstractmethod
    def touched(self, action: Any) -> Iterable[str]:
        """The paths in the arguments of a call; none for one that touches no file."""

    def declared_resources(self, action: Action) -> DeclaredResources:
        paths = {posixpath.normpath(posixpath.join(self.workspace, path)) for path in self.touched(action) if path}
        return DeclaredResources(keys=tuple(f"file:{path}" for path in sorted(paths)), declared=True)
