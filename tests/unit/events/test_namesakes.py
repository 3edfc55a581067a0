"""A program's own actions and observations may be called like those of built-in tools, as in the seeds."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message
from agent_core.events.schema import Action, Observation, UnknownAction, UnknownObservation
from agent_core.events.serialization import from_payload, to_payload
from agent_core.tools import file_search


def own_classes() -> tuple[Any, Any]:
    class GlobAction(Action):
        pattern: str
        depth: int = 1

    class GlobObservation(Observation):
        count: int = 0

    return GlobAction, GlobObservation


def back(event: Any) -> Any:
    return from_payload(to_payload(event), 1)


def test_each_is_read_back_as_what_it_was() -> None:
    own_action, own_observation = own_classes()
    for action in (own_action(pattern="a", depth=2), file_search.GlobAction(pattern="a", path="/b")):
        read = back(ActionEvent(id=1, action=action, tool_name="glob")).action
        assert (type(read), read) == (type(action), action)
    for observation in (
        own_observation(count=3),
        file_search.GlobObservation(files=["a"], pattern="a", search_path="/"),
    ):
        event = ObservationEvent(
            id=1, source="agent", cause=0, observation=observation, tool_name="glob", tool_call_id="c"
        )
        read = back(event).observation
        assert (type(read), read) == (type(observation), observation)


def test_of_a_class_that_this_process_does_not_have_all_is_kept() -> None:
    refused = file_search.GlobObservation.from_text("no", is_error=True)
    stored = to_payload(ObservationEvent(id=1, cause=0, observation=refused, tool_name="glob"))
    unknown = stored.replace(b"GlobObservation", b"BoatObservation")
    assert unknown != stored
    read = from_payload(unknown, 1)
    assert isinstance(read, ObservationEvent)
    observation = read.observation
    assert isinstance(observation, UnknownObservation)
    assert (observation.original_kind, observation.text, observation.is_error) == ("BoatObservation", "no", True)
    assert set(observation.data) >= {"files", "pattern", "search_path"}

    action = to_payload(ActionEvent(id=1, action=file_search.GlobAction(pattern="a"), tool_name="glob"))
    seen = from_payload(action.replace(b"GlobAction", b"BoatAction"), 1)
    assert isinstance(seen, ActionEvent)
    assert isinstance(seen.action, UnknownAction)
    assert (seen.action.original_kind, seen.action.data["pattern"]) == ("BoatAction", "a")


def test_the_name_that_a_client_gave_is_stored_where_there_is_one() -> None:
    plain = MessageEvent(id=1, source="user", llm_message=Message.user("hi"))
    assert b"client_key" not in to_payload(plain)
    assert back(plain.model_copy(update={"client_key": "k-1"})).client_key == "k-1"


def test_the_newest_of_a_programs_own_counts_first() -> None:
    older, newer = own_classes()[0], own_classes()[0]
    assert older is not newer
    assert type(back(ActionEvent(id=1, action=older(pattern="a"), tool_name="glob")).action) is newer


def test_a_built_in_class_that_is_loaded_later_does_not_take_the_place() -> None:
    program = """
from agent_core import Action
from agent_core.events.llm_events import ActionEvent
from agent_core.events.serialization import from_payload, to_payload
class GrepAction(Action):
    pattern: str
from agent_core.tools.file_search import GrepAction as BuiltIn
read = from_payload(to_payload(ActionEvent(id=1, action=GrepAction(pattern="a"), tool_name="grep")), 1).action
print(type(read) is GrepAction, isinstance(read, BuiltIn))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("True False\n", "")


def test_what_fits_none_of_them_is_passed_over() -> None:
    own_classes()
    payload = to_payload(ActionEvent(id=1, action=file_search.GlobAction(pattern="a"), tool_name="glob"))
    assert not isinstance(from_payload(payload.replace(b'"pattern"', b'"nonsense"'), 1), ActionEvent)
