"""What providers say that they take in the schemas of tools holds for every tool that they are offered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema.validators import Draft202012Validator

from agent_core.agent.client_tool import ClientTool
from agent_core.agent.toolbox import shown_to_model
from agent_core.events.messages import Message, MessageToolCall
from agent_core.llm.features import features_of
from agent_core.llm.llm import LLM
from agent_core.llm.tool_schemas import ToolDialect, fitted, fitted_parameters, safe_key, safe_name
from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool

DIALECTS: tuple[ToolDialect, ...] = ("usual", "gemini", "anthropic", "nova", "mistral")
EXAMPLES = {
    "usual": "openai/gpt-5",
    "gemini": "gemini/gemini-2.5-pro",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "nova": "bedrock/us.amazon.nova-pro-v1:0",
    "mistral": "mistral/mistral-large-latest",
}

HARD: dict[str, Any] = {
    "nothing": {},
    "no type": {"properties": {"a": {"type": "string"}}},
    "references": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}, "tree": {"$ref": "#/$defs/T"}, "gone": {"$ref": "#/$defs/X"}},
        "$defs": {
            "A": {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b", "z"]},
            "T": {"type": "object", "properties": {"next": {"$ref": "#/$defs/T"}}},
        },
    },
    "a reference at the top": {"$ref": "#/definitions/All", "definitions": {"All": {"properties": {"q": {}}}}},
    "either at the top": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["a"],
        "anyOf": [{"required": ["b"]}, {"required": ["a"]}],
    },
    "one of several objects": {
        "oneOf": [
            {"type": "object", "properties": {"a": {"type": "string"}, "c": {}}, "required": ["a", "c"]},
            {"type": "object", "properties": {"b": {"type": "string"}, "c": {}}, "required": ["b", "c"]},
        ]
    },
    "all of several": {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]},
    "values": {
        "type": "object",
        "additionalProperties": False,
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Args",
        "properties": {
            "maybe": {"anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}], "default": None, "title": "M"},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "An id."},
            "nullable": {"type": ["integer", "null"], "exclusiveMinimum": 0, "minimum": 1},
            "many": {"type": ["string", "array", "null"], "items": {"type": "string"}},
            "fixed": {"const": "yes"},
            "number": {"type": "integer", "enum": [1, 2, None]},
            "words": {"enum": ["", "a"]},
            "pattern": {"type": "string", "pattern": "^a", "minLength": 1, "format": "date-time"},
            "list": {"type": "array"},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]},
            "free": {"type": "object", "additionalProperties": {"type": "string"}, "required": ["x"]},
            "any": {},
            "true": True,
            "nested": {"anyOf": [{"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "array"}]},
            "limits": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}}},
            "$filter": {"type": "string"},
        },
        "required": ["$filter", "maybe"],
    },
    "an early draft": {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            "t": {"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "integer"}},
        },
    },
}


def parts(schema: Any, path: str = "parameters") -> Iterator[tuple[str, dict[str, Any]]]:
    """The schema and all that stand in it, with their places."""
    yield path, schema
    for key, value in schema.get("properties", {}).items():
        yield from parts(value, f"{path}.properties[{key}]")
    if isinstance(schema.get("items"), dict):
        yield from parts(schema["items"], f"{path}.items")
    for number, value in enumerate(schema.get("anyOf", [])):
        yield from parts(value, f"{path}.any_of[{number}]")


def problems_for_gemini(schema: dict[str, Any]) -> Iterator[str]:
    """Google's rules: https://ai.google.dev/api/caching#Schema, and what its errors say beside them."""
    fields = {"type", "format", "description", "nullable", "enum", "maxItems", "minItems", "properties", "required"}
    fields |= {"anyOf", "items", "minimum", "maximum"}
    formats = {"string": {"enum", "date-time"}, "number": {"float", "double"}, "integer": {"int32", "int64"}}
    for place, part in parts(schema):
        kind = part.get("type")
        if unknown := part.keys() - fields:
            yield f'Unknown name "{sorted(unknown)[0]}" at {place}: Cannot find field.'
        if "anyOf" in part:
            if part.keys() != {"anyOf"}:
                yield f"{place}: when using any_of, it must be the only field set"
        elif kind not in ("string", "number", "integer", "boolean", "array", "object"):
            yield f"{place}: type {kind!r}"
        if "enum" in part and (kind != "string" or not all(isinstance(one, str) and one for one in part["enum"])):
            yield f"{place}: enum: only allowed for STRING type, and cannot be empty"
        if part.get("format", "") and part["format"] not in formats.get(str(kind), set()):
            yield f"{place}: format {part['format']!r}"
        if (kind == "array") != ("items" in part):
            yield f"{place}.items: missing field, or only allowed for ARRAY type"
        if kind != "object" and part.keys() & {"properties", "required"}:
            yield f"{place}: properties and required: only allowed for OBJECT type"
        if part.get("properties") == {}:
            yield f"{place}.properties: should be non-empty for OBJECT type"
        if set(part.get("required", ())) - part.get("properties", {}).keys():
            yield f"{place}.required: property is not defined"


def problems_for_all(schema: dict[str, Any]) -> Iterator[str]:
    """Of OpenAI, Anthropic and Bedrock alike: an object, without unions at the top; and arrays say of what they are."""
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        yield "schema must have type 'object'"
    if found := schema.keys() & {"oneOf", "anyOf", "allOf", "enum", "not", "const"}:
        yield f"{found} at the top level"
    for place, part in parts({**schema}):
        if part.get("type") == "array" and "items" not in part:
            yield f"{place}: array schema missing items"


def problems_for_anthropic(schema: dict[str, Any]) -> Iterator[str]:
    try:
        Draft202012Validator.check_schema(schema)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it
        yield f"JSON schema is invalid: it must match draft 2020-12: {error}"
    for key in schema["properties"]:
        if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key):
            yield f"property keys should match pattern: {key}"


def keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            yield key, value
            yield from (pair for one in (value.values() if key == "properties" else [value]) for pair in keywords(one))
    elif isinstance(schema, list):
        yield from (pair for one in schema for pair in keywords(one))


def problems(schema: dict[str, Any], dialect: ToolDialect) -> list[str]:
    if dialect == "gemini" and schema.get("properties") == {}:
        return []  # the tool is sent without parameters then
    found = list(problems_for_all(without_booleans(schema)))
    if dialect == "gemini":
        found += problems_for_gemini(schema)
    if dialect == "anthropic":
        found += problems_for_anthropic(schema)
    if dialect == "nova" and schema.keys() - {"type", "properties", "required"}:
        found.append("only type, properties and required are supported in the top-level object")
    if dialect == "mistral":
        refused = [(key, value) for key, value in keywords(schema) if key in ("$id", "$schema", "$ref")]
        found += [f"{key}: {value}" for key, value in refused]
        found += [key for key, value in keywords(schema) if key == "additionalProperties" and value is False]
    if dialect == "nova":
        found += [f"{key}: {value}" for key, value in keywords(schema) if key == "$ref"]
    return found


def without_booleans(schema: Any) -> Any:
    """Schemas that are only true or false are none to look into."""
    if isinstance(schema, dict):
        return {
            key: {name: without_booleans(one if isinstance(one, dict) else {}) for name, one in value.items()}
            if key == "properties"
            else without_booleans(value)
            for key, value in schema.items()
        }
    return [without_booleans(one if isinstance(one, dict) else {}) for one in schema] if is_parts(schema) else schema


def is_parts(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(one, dict) for one in value)


def sent(schema: dict[str, Any], dialect: ToolDialect, name: str = "tool") -> dict[str, Any]:
    """The function as it is sent."""
    function = {"name": name, "description": "Does it.", "parameters": schema}
    (tool,) = fitted([{"type": "function", "function": function}], dialect).schemas
    found: dict[str, Any] = tool["function"]
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", HARD)
def test_a_schema_of_a_server_or_a_client_is_sent_as_its_provider_takes_it(name: str, dialect: ToolDialect) -> None:
    function = sent(HARD[name], dialect)
    assert problems(function.get("parameters", {"type": "object", "properties": {}}), dialect) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_tools_that_are_built_in_are_sent_as_each_provider_takes_them(dialect: ToolDialect) -> None:
    names = "terminal file_editor task_tracker grep glob delegate task execute_ipython_cell apply_patch think finish"
    tools = [
        shown_to_model(tool) for name in (*names.split(), "browser_tool_set") for tool in resolve_tool(Tool(name=name))
    ]
    for tool in fitted(tools, dialect).schemas:
        assert problems(tool["function"]["parameters"], dialect) == [], tool["function"]["name"]
        assert "summary" in tool["function"]["parameters"]["properties"]


def test_the_tool_of_a_client_is_sent_as_gemini_takes_it() -> None:
    (tool,) = ClientTool.create(name="2 files", description="Looks.", schema=HARD["values"], timeout=3)
    fitting = fitted([shown_to_model(tool)], "gemini")
    function = fitting.schemas[0]["function"]
    assert problems(function["parameters"], "gemini") == []
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", function["name"])
    assert fitting.names == {function["name"]: "2 files"}


def test_gemini_is_told_in_its_own_words_what_json_schema_says() -> None:
    found = fitted_parameters(HARD["values"], "gemini")["properties"]
    assert found["maybe"] == {"type": "string", "nullable": True}
    described = {"description": "An id."}
    assert found["either"] == {"anyOf": [{"type": "string", **described}, {"type": "integer", **described}]}
    assert found["nullable"] == {"type": "integer", "nullable": True, "minimum": 1}
    many = [{"type": "string", "nullable": True}, {"type": "array", "nullable": True, "items": {"type": "string"}}]
    assert found["many"] == {"anyOf": many}
    assert found["fixed"] == {"type": "string", "enum": ["yes"]}
    assert found["number"] == {"type": "integer", "nullable": True, "description": "One of: 1, 2."}
    assert found["words"] == {"type": "string", "description": 'One of: "", "a".'}
    assert found["pattern"] == {"type": "string", "format": "date-time"}
    assert found["list"] == {"type": "array", "items": {"type": "string"}}
    assert found["free"] == {"type": "object"}
    assert found["limits"] == {"type": "object", "properties": {"a": {"type": "string"}}}
    tree = fitted_parameters(HARD["references"], "gemini")["properties"]
    assert tree["a"] == {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
    assert tree["tree"] == {"type": "object", "properties": {"next": {"type": "object"}}}


def test_a_tool_without_arguments_is_sent_to_gemini_without_parameters() -> None:
    assert "parameters" not in sent({"type": "object", "properties": {}}, "gemini")
    assert sent({}, "usual")["parameters"] == {"type": "object", "properties": {}}


def test_what_has_to_be_given_in_every_case_still_has_to_be() -> None:
    assert fitted_parameters(HARD["one of several objects"], "usual")["required"] == ["c"]
    assert fitted_parameters(HARD["either at the top"], "usual")["required"] == ["a"]
    assert fitted_parameters(HARD["all of several"], "usual")["required"] == ["a"]


def test_an_early_draft_is_sent_to_anthropic_as_the_present_one() -> None:
    found = fitted_parameters(HARD["an early draft"], "anthropic")["properties"]
    assert found["n"] == {"type": "integer", "exclusiveMinimum": 0}
    assert found["t"] == {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}


def test_a_schema_that_everybody_takes_is_sent_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^x"}}, "required": ["a"]}
    for dialect in ("usual", "anthropic", "nova", "mistral"):
        assert fitted_parameters(schema, dialect) == schema


def test_definitions_that_use_one_another_end() -> None:
    definitions = {
        f"D{one}": {"type": "object", "properties": {f"p{two}": {"$ref": f"#/$defs/D{two}"} for two in range(12)}}
        for one in range(12)
    }
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/D0"}}, "$defs": definitions}
    found = fitted_parameters(schema, "gemini")
    assert problems(found, "gemini") == []
    assert len(json.dumps(found)) < 2_000_000


def test_a_schema_that_is_nested_without_end_is_cut() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        schema = {"type": "object", "properties": {"a": schema}}
    shallow: tuple[ToolDialect, ...] = ("gemini", "nova", "mistral")
    for dialect in shallow:
        found = json.dumps(fitted_parameters(schema, dialect))
        assert found.count("properties") < 100, dialect
    assert json.dumps(fitted_parameters(schema, "anthropic")).count("properties") == 300, "its depth is not bounded"


SCHEMAS = st.recursive(
    st.sampled_from([{}, True, {"type": "string"}, {"type": ["integer", "null"]}, {"const": 3}, {"enum": ["", None]}])
    | st.just({"$ref": "#/$defs/A"}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", ["object", "null"], "null"]),
            "properties": st.dictionaries(st.sampled_from(["a", "b", "ä", "a b", ""]), inner, max_size=3),
            "required": st.lists(st.sampled_from(["a", "b", "zz"]), max_size=2),
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "enum": st.lists(st.sampled_from(["x", "", 1, None, {"a": 1}]), min_size=1, max_size=3),
            "description": st.sampled_from(["", "Says it."]),
            "format": st.sampled_from(["uri", "int32", "date-time"]),
            "additionalProperties": st.booleans(),
        },
    ),
    max_leaves=12,
)


@given(SCHEMAS)
def test_whatever_a_server_says_gemini_takes(schema: Any) -> None:
    root = {"type": "object", "properties": {"v": schema}, "$defs": {"A": schema}}
    assert problems(fitted_parameters(root, "gemini"), "gemini") == []
    top = schema if isinstance(schema, dict) else {}
    assert problems(fitted_parameters({**top, "$defs": {"A": {"type": "string"}}}, "gemini"), "gemini") == []


def test_names_that_are_refused_are_marked_so_that_no_two_become_one() -> None:
    names = ["a.b", "a_b", "a:b", "a b", "2b", "", "ü", "x" * 65, "x" * 66, "terminal"]
    safe = [safe_name(name) for name in names]
    assert len(set(safe)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", one) for one in safe)
    assert safe_name("terminal") == "terminal"
    assert all(safe_name(one) == one for one in safe), "what is safe stays as it is"
    keys = [safe_key(key) for key in ("$top", "$skip", "", "a b", "k" * 99)]
    assert len(set(keys)) == 5
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", key) for key in keys)


def test_a_call_comes_back_as_the_tool_itself_names_things_and_goes_out_again_as_the_provider_does() -> None:
    tool = {"type": "function", "function": {"name": "odata.query", "parameters": HARD["values"]}}
    fitting = fitted([tool], "anthropic")
    function = fitting.schemas[0]["function"]
    key = safe_key("$filter")
    assert key in function["parameters"]["properties"]
    assert key in function["parameters"]["required"]
    call = MessageToolCall(id="c", name=function["name"], arguments=json.dumps({key: "a eq 1", "maybe": None}))
    answer = fitting.restored(Message(role="assistant", content=[], tool_calls=[call]))
    (restored,) = answer.tool_calls or []
    assert restored.name == "odata.query"
    assert json.loads(restored.arguments) == {"$filter": "a eq 1", "maybe": None}
    for model in (LLM(model=EXAMPLES["anthropic"]), LLM(model=EXAMPLES["usual"])):
        wire = model.render(answer)["tool_calls"][0]["function"]
        assert wire["name"] == function["name"]
    wire = LLM(model=EXAMPLES["anthropic"]).render(answer)["tool_calls"][0]["function"]
    assert json.loads(wire["arguments"]) == {key: "a eq 1", "maybe": None}
    broken = call.model_copy(update={"arguments": '{"$filter": '})
    (left,) = fitting.restored(Message(role="assistant", content=[], tool_calls=[broken])).tool_calls or []
    assert left.arguments == '{"$filter": ', "the agent says what is wrong with it"


@pytest.mark.parametrize(("dialect", "model"), EXAMPLES.items())
def test_a_dialect_goes_by_the_models_name(dialect: str, model: str) -> None:
    assert features_of(model).tools == dialect
    assert features_of("litellm_proxy/gemini-3-pro").tools == "gemini"
    assert features_of("vertex_ai/claude-sonnet-4-5").tools == "anthropic"
    assert LLM(model="openai/fast", model_canonical_name="gemini/gemini-2.5-pro").features.tools == "gemini"


def test_a_set_of_tools_is_worked_out_once() -> None:
    tools = [{"type": "function", "function": {"name": "one", "parameters": HARD["values"]}}]
    assert fitted(tools, "gemini") is fitted([dict(tools[0])], "gemini")
