"""Functions as tools: their schema comes of their signature, and nothing else reaches them."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import pathlib
import threading
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict, Union

import anyio
import pytest
from hypothesis import given, strategies as st
from tests.thorough import examples

from atoll.agent.functions import tool, tool_of, tools_of
from atoll.agent.toolspec import MOST_TEXT, Outcome, check_arguments
from atoll.errors import InvalidInput


def called(made, text="{}"):
    """As the loop does it: check, then call."""
    return anyio.run(made.call, check_arguments(made.parameters, text))


def search(query: str, limit: int = 10, *, exact: Annotated[bool, "No guesses."] = False) -> list[str]:
    """Search the shop
    for things.

    More that a model need not know.

    Args:
        query: What to look for,
            in words: any.
        limit (int): How many.

    Returns:
        Names: of things.
    """
    return [query, limit, exact]


def test_the_schema_comes_of_signature_hints_and_docstring():
    made = tool_of(search)
    assert (made.name, made.description, made.idempotent) == ("search", "Search the shop for things.", False)
    assert made.parameters == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, in words: any."},
            "limit": {"type": "integer", "description": "How many.", "default": 10},
            "exact": {"type": "boolean", "description": "No guesses.", "default": False},
        },
        "additionalProperties": False,
        "required": ["query"],
    }
    assert called(made, '{"query": "a", "limit": 3.0}') == Outcome('["a", 3, false]')


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(NamedTuple):
    x: int
    y: float = 0.5


@dataclasses.dataclass
class Box:
    place: Place
    colours: set[Colour]
    hidden: int = dataclasses.field(default=1, init=False)


class Options(TypedDict, total=False):
    deep: typing.Required[bool]
    names: list[str]


UserId = typing.NewType("UserId", int)

HINTS = [
    (str, '"a"', "a"),
    (int, "2.0", 2),
    (float, "2", 2.0),
    (bool, "true", True),
    (None, "null", None),
    (Any, '{"a": [1]}', {"a": [1]}),
    (list, '[1, "a"]', [1, "a"]),
    (list[int], "[1, 2]", [1, 2]),
    (typing.List, "[1]", [1]),  # noqa: UP006 - people write it
    (Sequence[float], "[1]", [1.0]),
    (tuple[str, int], '["a", 1]', ("a", 1)),
    (tuple[int, ...], "[1, 2]", (1, 2)),
    (tuple, "[1]", (1,)),
    (set[str], '["a", "a"]', {"a"}),
    (frozenset[int], "[1]", frozenset([1])),
    (dict, '{"a": 1}', {"a": 1}),
    (dict[str, Place], '{"a": {"x": 1}}', {"a": Place(1)}),
    (Mapping[str, int], '{"a": 1}', {"a": 1}),
    (Literal["a", 1, False], '"a"', "a"),
    (Colour, '"blue"', Colour.BLUE),
    (Optional[int], "null", None),  # noqa: UP045 - people write it
    (Union[int, list[Colour]], '["red"]', [Colour.RED]),  # noqa: UP007 - people write it
    (int | str, '"1"', "1"),
    (Place, '{"x": 1, "y": 2}', Place(1, 2.0)),
    (Box, '{"place": {"x": 1}, "colours": ["red"]}', Box(Place(1), {Colour.RED})),
    (Options, '{"deep": true, "names": ["a"]}', {"deep": True, "names": ["a"]}),
    (pathlib.Path, '"/tmp/x"', pathlib.Path("/tmp/x")),
    (UserId, "5", 5),
    (Annotated[int, "How many.", object()], "1", 1),
]


@pytest.mark.parametrize(("hint", "text", "value"), HINTS, ids=[str(row[0]).partition(" at 0x")[0] for row in HINTS])
def test_what_is_hinted_at_is_what_arrives(hint, text, value):
    got = []

    def take(it):
        got.append(it)

    take.__annotations__["it"] = hint
    made = tool_of(take)
    json.dumps(made.parameters)
    assert called(made, f'{{"it": {text}}}') == Outcome("null")
    assert got == [value]
    assert type(got[0]) is type(value)


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (str, "1"), (int, '"1"'), (int, "1.5"), (int, "true"), (float, '"x"'), (bool, "1"), (list[int], '["a"]'),
        (tuple[str, int], '["a"]'), (tuple[str, int], '["a", 1, 2]'), (dict[str, int], '{"a": "b"}'),
        (Literal["a"], '"b"'), (Colour, '"green"'), (int | None, '"x"'), (Place, '{"y": 1}'),
        (Place, '{"x": 1, "z": 1}'),
        (Box, '{"place": {"x": 1}, "colours": [], "hidden": 2}'), (Options, '{"names": []}'), (pathlib.Path, "5"),
    ],
)  # fmt: skip
def test_what_does_not_fit_never_reaches_the_function(hint, text):
    def take(it):
        pytest.fail("it was called")

    take.__annotations__["it"] = hint
    with pytest.raises(InvalidInput, match="The argument `it"):
        called(tool_of(take), f'{{"it": {text}}}')


class Node(TypedDict):
    below: list[Node]


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        (bytes, "has the type bytes, which no JSON schema tells; use str"),
        (dict[int, str], "keys of int; JSON has strings only"),
        (complex, "has the type complex"),
        (Literal[b"a"], "which JSON cannot tell"),
        (Node, "contains itself"),
        ("Missing", "cannot be resolved: NameError"),
    ],
)
def test_types_that_json_cannot_tell_are_refused(hint, told):
    def take(it):
        pass

    take.__annotations__["it"] = hint
    with pytest.raises(InvalidInput, match=told):
        tool_of(take)


def many(*args):
    pass


def keywords(**more):
    pass


def positional(a, /):
    pass


def generator():
    yield 1


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (many, r"takes '\*args'"),
        (keywords, r"takes '\*\*more'"),
        (positional, "takes 'a'"),
        (generator, "is a generator: return a list"),
        (lambda a: a, "'<lambda>' cannot be the name"),
        (functools.partial(search), "has no name"),
        (5, "A tool is a function, not 5"),
    ],
)
def test_what_cannot_be_a_tool_is_refused(function, told):
    with pytest.raises(InvalidInput, match=told):
        tool_of(function)


def test_what_has_no_hints_takes_anything():
    def anything(a, b=(1, 2), c=Odd):
        return [a, list(b)]

    made = tool_of(anything)
    assert made.parameters["properties"] == {"a": {}, "b": {"default": [1, 2]}, "c": {}}
    assert called(made, '{"a": {"deep": null}}').text == '[{"deep": null}, [1, 2]]'


def test_an_optional_one_that_is_not_hinted_so_may_be_null():
    def take(a: int = None):  # noqa: RUF013 - people write it
        return a

    assert called(tool_of(take), '{"a": null}').text == "null"
    assert called(tool_of(take), '{"a": 2.0}').text == "2"


class Shop:
    """A shop."""

    def __init__(self):
        self.sold = []

    def sell(self, what: str) -> None:
        """Sell one."""
        self.sold.append(what)

    def __call__(self, n: int) -> int:
        """Count to n."""
        return n


def test_methods_objects_and_partials_are_functions_too():
    shop = Shop()
    made = tool_of(shop.sell)
    assert (made.name, made.description) == ("sell", "Sell one.")
    assert called(made, '{"what": "apple"}').text == "null"
    assert shop.sold == ["apple"]
    counter = tool_of(shop, name="count")
    assert counter.description == "Count to n."
    assert called(counter, '{"n": 3}').text == "3"
    partly = tool_of(functools.partial(search, limit=3), name="few")
    assert partly.description == "Search the shop for things."
    assert called(partly, '{"query": "a"}').text == '["a", 3, false]'


def test_plain_functions_run_in_a_thread_and_others_on_the_loop():
    def plain():
        return threading.current_thread() is threading.main_thread()

    async def awaited():
        return threading.current_thread() is threading.main_thread()

    assert called(tool_of(plain)).text == "false"
    assert called(tool_of(awaited)).text == "true"
    assert called(tool_of(lambda now=True: awaited() if now else None, name="handed_on")).text == "true"


def test_a_function_that_does_not_end_can_be_given_up():
    began, may_end = threading.Event(), threading.Event()

    def endless():
        began.set()
        may_end.wait()

    async def give_up():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tool_of(endless).call, {})
            await anyio.to_thread.run_sync(began.wait)
            tasks.cancel_scope.cancel()
        may_end.set()

    anyio.run(give_up)


def test_what_is_raised_is_told_without_a_traceback():
    class Wordless(Exception):
        def __str__(self):
            raise RuntimeError

    def fail(how: str):
        raise {"value": ValueError("no such thing"), "exit": SystemExit(3), "wordless": Wordless()}[how]

    async def fail_later(how: str):
        fail(how)

    for made in (tool_of(fail), tool_of(fail_later)):
        assert called(made, '{"how": "value"}') == Outcome("ValueError: no such thing", failed=True)
        assert called(made, '{"how": "exit"}') == Outcome("SystemExit: 3", failed=True)
        assert called(made, '{"how": "wordless"}') == Outcome("Wordless", failed=True)


class Odd:
    def __repr__(self):
        return "<odd>"


@pytest.mark.parametrize(
    ("given_back", "text"),
    [
        ("as it is\n", "as it is\n"),
        (None, "null"),
        ({"a": [1, Colour.RED]}, '{"a": [1, "red"]}'),
        (Box(Place(1), {Colour.BLUE}), '{"place": [1, 0.5], "colours": ["blue"], "hidden": 1}'),
        (pathlib.Path("/x"), '"/x"'),
        (Odd(), "<odd>"),
        ([Odd()], "[<odd>]"),
        (b"x", "b'x'"),
        ("half \ud800", "half ?"),
        ("é", "é"),
    ],
)
def test_what_is_given_back_is_text(given_back, text):
    assert called(tool_of(lambda: given_back, name="it")) == Outcome(text)


def test_an_outcome_is_given_back_as_it_is_and_no_text_is_without_end():
    made = Outcome("seen", images=(("image/png", "aGk="),))
    assert called(tool_of(lambda: made, name="it")) == made
    assert len(called(tool_of(lambda: "x" * (2 * MOST_TEXT), name="it")).text) < MOST_TEXT + 100


def test_a_decorator_marks_a_function_and_leaves_it_as_it_is():
    @tool
    def plain():
        return 1

    @tool(name="other", idempotent=True)
    def marked():
        return 2

    assert (plain(), marked()) == (1, 2)
    one, two = tools_of([plain, marked])
    assert (one.name, one.idempotent) == ("plain", False)
    assert (two.name, two.idempotent) == ("other", True)
    assert tools_of([two]) == [two]
    assert tool_of(marked, name="third").name == "third"
    with pytest.raises(InvalidInput, match="Two tools have the name 'other'"):
        tools_of([marked, two])
    with pytest.raises(InvalidInput, match="cannot be the name"):
        tool(name="not a name")


PLAIN_HINTS = st.sampled_from([str, int, float, bool, None, Any, Colour, Place, Literal["a", 2], pathlib.Path])
ALL_HINTS = st.recursive(
    PLAIN_HINTS,
    lambda inner: st.one_of(
        inner.map(lambda each: list[each]),
        inner.map(lambda each: dict[str, each]),
        st.tuples(inner, inner).map(lambda pair: tuple[pair]),
        st.tuples(inner, inner).map(lambda pair: Union[pair]),  # noqa: UP007 - made of values
    ),
    max_leaves=5,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.sampled_from(["a", "red", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)


@examples(2000, 150)
@given(ALL_HINTS, VALUES)
def test_whatever_is_hinted_at_a_call_is_refused_or_arrives(hint, value):
    got = []

    async def take(it):
        got.append(it)

    take.__annotations__["it"] = hint
    made = tool_of(take)
    try:
        arguments = check_arguments(made.parameters, json.dumps({"it": value}))
    except InvalidInput:
        assert hint is not Any
        return
    with pytest.raises(StopIteration) as ended:
        made.call(arguments).send(None)
    assert ended.value.value == Outcome("null"), "what fits can be made into what is hinted at"
    assert len(got) == 1
