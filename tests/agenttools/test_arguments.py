"""What a model writes as arguments reaches a tool only if it fits, and the refusal says what to write instead."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st
from tests.thorough import examples

from atoll.agent.toolspec import MOST_ARGUMENTS, MOST_TEXT, Outcome, Tool, bounded, by_name, check_arguments, check_name
from atoll.errors import InvalidInput
from atoll.schema import fitting

POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 10},
        "count": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10},
        "points": {"type": "array", "items": {"$ref": "#/$defs/point"}, "maxItems": 2},
        "mode": {"enum": ["read", "write", 1]},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "one": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
        "pair": {"prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": False},
        "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
        "fixed": {"const": True},
        "both": {"allOf": [{"minimum": 1}, {"maximum": 3}]},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {"point": POINT},
}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"count": 9},
        {"count": 2.0},
        {"points": [{"x": 1}, {"x": 1.5, "y": "unknown keys pass where nothing forbids them"}]},
        {"mode": "write"},
        {"mode": 1.0},
        {"either": None},
        {"one": 1.5},
        {"pair": ["a", True]},
        {"extra": {"a": 1}},
        {"fixed": True},
        {"both": 2},
    ],
)
def test_what_fits_passes_as_it_is(more):
    arguments = {"path": "a", **more}
    assert check_arguments(SCHEMA, json.dumps(arguments)) == arguments


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "`path` is missing: give a string"),
        ({"path": 5}, "`path` must be a string, not 5"),
        ({"path": ""}, "at least 1 characters"),
        ({"path": "x" * 11}, "at most 10 characters"),
        ({"path": "a", "pth": 1}, "`pth` is not known: did you mean 'path'"),
        ({"path": "a", "count": True}, "`count` must be a whole number, not true"),
        ({"path": "a", "count": 1.5}, "`count` must be a whole number"),
        ({"path": "a", "count": 0}, "`count` must be at least 1, not 0"),
        ({"path": "a", "count": 10}, "`count` must be less than 10"),
        ({"path": "a", "points": [{"x": 1}, {"x": "1"}]}, r"`points\[1\].x` must be a number, not \"1\""),
        ({"path": "a", "points": [{}]}, r"`points\[0\].x` is missing"),
        ({"path": "a", "points": [{"x": 1}] * 3}, "a list of at most 2"),
        ({"path": "a", "mode": "reed"}, '`mode` must be one of "read", "write", 1, not "reed"'),
        ({"path": "a", "mode": True}, "must be one of"),
        ({"path": "a", "either": 4}, "must be a string, not 4. Or: .*must be null"),
        ({"path": "a", "one": 1}, "fits 2 of the forms"),
        ({"path": "a", "pair": ["a", True, 1]}, r"`pair\[2\]` must be left out"),
        ({"path": "a", "extra": {"a": "b"}}, "`extra.a` must be a whole number"),
        ({"path": "a", "fixed": 1}, "must be true, not 1"),
        ({"path": "a", "both": 4}, "at most 3"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_write(arguments, told):
    with pytest.raises(InvalidInput, match=told):
        check_arguments(SCHEMA, json.dumps(arguments))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not valid JSON"),
        ("[1]", "a list of 1: write one JSON object"),
        ('"x"', "write one JSON object"),
        ("null", "write one JSON object"),
        ('{"path": NaN}', "NaN is not valid JSON"),
        ('{"path": 1e999}', "too large"),
        ('{"path": ' + "1" * 5000 + "}", "not valid JSON"),
        ('{"path": "\\ud800"}', "surrogate"),
        ('{"path": "\ud800"}', "surrogate"),
        ('{"path": "a", "path": "b"}', "'path' is there more than once"),
        ('{"path": ' * 100_000, "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        (" " * (MOST_ARGUMENTS + 1), "characters long"),
    ],
    ids=range(13),
)
def test_what_is_no_json_object_is_refused(text, told):
    with pytest.raises(InvalidInput, match=told):
        check_arguments(SCHEMA, text)


def test_nothing_stands_for_no_arguments():
    assert check_arguments({"type": "object"}, "") == {}
    assert check_arguments({"type": "object"}, " \n") == {}


def test_a_schema_that_goes_round_in_circles_ends():
    for schema in (
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}] * 9}}, "$ref": "#/$defs/a"},
    ):
        with pytest.raises(InvalidInput, match="too deeply"):
            check_arguments(schema, "{}")


def test_a_schema_may_contain_itself():
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    assert check_arguments(tree, '{"next": {"next": {}}}')
    with pytest.raises(InvalidInput, match=r"`next.next.nxt` is not known"):
        check_arguments(tree, '{"next": {"next": {"nxt": 1}}}')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
WORDS = st.sampled_from([
    "type", "properties", "required", "additionalProperties", "items", "prefixItems", "enum", "const", "anyOf",
    "oneOf", "allOf", "$ref", "minimum", "maximum", "minLength", "maxItems", "minProperties", "pattern", "format",
    "$defs",
])  # fmt: skip
HOSTILE = st.recursive(
    JSON | st.sampled_from(["#", "#/$defs/a", "string", "object", True, False]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.just("a"), inner, max_size=5),
    max_leaves=20,
)


@examples(3000, 200)
@given(st.dictionaries(WORDS, HOSTILE, max_size=6), st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_no_schema_makes_the_checker_fail_otherwise_than_by_a_sentence(schema, arguments):
    refusal = None
    try:
        assert check_arguments(schema, json.dumps(arguments)) == arguments
    except InvalidInput as error:
        refusal = str(error)
    assert refusal is None or 0 < len(refusal) < 20_000


@examples(3000, 200)
@given(st.text(max_size=60) | st.binary(max_size=40).map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_no_text_makes_the_parser_fail_otherwise_than_by_a_sentence(text):
    try:
        assert isinstance(check_arguments({"type": "object"}, text), dict)
    except InvalidInput:
        pass


@examples(2000, 200)
@given(JSON)
def test_every_value_fits_the_schema_that_tells_it_and_no_other_type(value):
    names = {"string": str, "integer": int, "boolean": bool, "null": type(None), "array": list, "object": dict}
    for name, kind in names.items():
        fits = type(value) is kind or (name == "integer" and type(value) is float and value.is_integer())
        if fits:
            fitting({"type": name}, value)
        else:
            with pytest.raises(InvalidInput):
                fitting({"type": name}, value)
    fitting({"const": value, "enum": [value]}, value)


async def nothing(_arguments):
    return Outcome("")


def test_a_tool_tells_itself_to_a_model():
    tool = Tool("look", "Looks.", {"type": "object"}, nothing)
    assert tool.definition() == {
        "type": "function",
        "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}},
    }
    assert not tool.idempotent


def test_names_that_no_model_can_call_are_refused():
    assert check_name("a-Z_9" + "x" * 59)
    for name in ("", "a b", "ä", "x" * 65, "a.b", "a\n"):
        with pytest.raises(InvalidInput, match="cannot be the name of a tool"):
            check_name(name)


def test_two_tools_of_one_name_are_refused():
    one, other = Tool("a", "", {}, nothing), Tool("b", "", {}, nothing)
    assert by_name([one, other]) == {"a": one, "b": other}
    with pytest.raises(InvalidInput, match="Two tools have the name 'a'"):
        by_name([one, other, one])


def test_what_is_too_long_is_cut_and_says_so():
    assert bounded("x" * MOST_TEXT) == "x" * MOST_TEXT
    assert bounded("x" * (MOST_TEXT + 7)).endswith("\n[7 more characters were cut off]")


@pytest.mark.parametrize("form", [{"enum": list(range(20_000))}, {"$ref": "#" + "/a" * 90_000}])
def test_a_schema_that_is_long_to_go_through_is_not_gone_through_for_ever(form):
    schema = {"type": "object", "properties": {"a": {"items": form}}}
    assert check_arguments(schema, json.dumps({"a": [19_999]})) == {"a": [19_999]}, "the control"
    with pytest.raises(InvalidInput, match="too many, to be checked"):
        check_arguments(schema, json.dumps({"a": [19_999] * 1000}))


def test_a_list_of_many_choices_is_checked():
    schema = {"type": "object", "properties": {"a": {"items": {"enum": [f"choice{number}" for number in range(500)]}}}}
    assert check_arguments(schema, json.dumps({"a": ["choice499"] * 2000}))
