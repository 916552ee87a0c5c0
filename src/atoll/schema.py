"""JSON schema checker: the arguments of a tool, as a model wrote them, against the tool's schema.

Neither side is trusted: a model writes anything, and a schema may come from somebody's MCP server. What the checker
does not know (`format`, `pattern`, which can take for ever, references to other documents) is left to the tool.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any

from .errors import InvalidInput

_DEEPEST = 64
_STEPS = 100_000
_COMPARED_IN_A_STEP = 16

_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "integer": ("a whole number", lambda value: _is_number(value) and value % 1 == 0),
    "number": ("a number", lambda value: _is_number(value) and (isinstance(value, int) or isfinite(value))),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "null": ("null", lambda value: value is None),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("an object", lambda value: isinstance(value, dict)),
}

_Problem = str | None


def parsed(text: str, longest: int) -> dict[str, Any]:
    """The object that a JSON text holds.

    Raises:
        InvalidInput: it is too long, no JSON, no object, or says something that JSON cannot.
    """
    if len(text) > longest:
        raise InvalidInput(f"The arguments are {len(text)} characters long; write {longest} at the most.")
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_once)
        # Half a surrogate pair passes the parser and breaks whoever writes it down.
        json.dumps(value, ensure_ascii=False).encode()
    except InvalidInput:
        raise
    except UnicodeEncodeError:
        raise InvalidInput("The arguments hold half a surrogate pair (\\ud800 to \\udfff): write whole ones.") from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInput(f"The arguments are not valid JSON ({reason}): write one JSON object.") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"The arguments are {_shown(value)}: write one JSON object, with a key for each argument.")
    return value


def _no_constant(word: str) -> Any:
    raise InvalidInput(f"{word} is not valid JSON: write a number, a string or null.")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise InvalidInput(f"The number {digits[:40]} is too large: write a smaller one, or a string.")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        from collections import Counter

        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise InvalidInput(f"The key {twice[:80]!r} is there more than once: write it once.")
    return found


def fitting(schema: Mapping[str, Any], value: Any, *, size: int = 0) -> None:
    """Let pass what fits the schema.

    Raises:
        InvalidInput: the value does not fit, or it cannot be found out in a time that grows with its `size` only.
    """
    problem = _Check(schema, _STEPS + 16 * size).of(schema, value, "", 0)
    if problem is not None:
        raise InvalidInput(problem)


class _Check:
    def __init__(self, root: Mapping[str, Any], steps: int) -> None:
        self._root = root
        self._left = steps

    def of(self, schema: Any, value: Any, at: str, depth: int) -> _Problem:
        """What is wrong with a value, in a sentence, or None."""
        self._left -= 1 + _length(schema) // _COMPARED_IN_A_STEP
        if self._left < 0 or depth > _DEEPEST:
            # Not a problem of one alternative among others: no other may be tried, or this would take for ever.
            raise InvalidInput("The arguments are nested too deeply, or too many, to be checked: write simpler ones.")
        if schema is False:
            return f"{_place(at)} must be left out."
        if not isinstance(schema, Mapping):
            return None
        for problem in self._problems(schema, value, at, depth):
            if problem is not None:
                return problem
        return None

    def _problems(self, schema: Mapping[str, Any], value: Any, at: str, depth: int) -> Iterator[_Problem]:
        if isinstance(reference := schema.get("$ref"), str):
            yield self.of(self._target(reference), value, at, depth + 1)
        yield _of_type(schema, value, at)
        yield _of_choice(schema, value, at)
        yield _of_size(schema, value, at)
        if isinstance(value, dict):
            yield from self._object(schema, value, at, depth)
        if isinstance(value, list):
            yield from self._list(schema, value, at, depth)
        for part in _list_of(schema, "allOf"):
            yield self.of(part, value, at, depth + 1)
        for word in ("anyOf", "oneOf"):
            if alternatives := _list_of(schema, word):
                yield self._alternatives(alternatives, value, at, depth, exactly_one=word == "oneOf")

    def _target(self, reference: str) -> Any:
        """What a reference within the schema points to; True, which everything fits, for what is elsewhere."""
        if not reference.startswith("#"):
            return True
        target: Any = self._root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, Mapping) or key not in target:
                return True
            target = target[key]
        return target

    def _alternatives(self, alternatives: list[Any], value: Any, at: str, depth: int, *, exactly_one: bool) -> _Problem:
        problems = [self.of(each, value, at, depth + 1) for each in alternatives]
        fits = problems.count(None)
        if fits == 1 or (fits and not exactly_one):
            return None
        if fits:
            return f"{_place(at)} fits {fits} of the forms that it may have, and must fit one only."
        # What came furthest into the value tells the most.
        told = [problem for problem in problems if problem is not None]
        return told[0] if len(set(told)) == 1 else " Or: ".join(dict.fromkeys(told[:4]))

    def _object(self, schema: Mapping[str, Any], value: dict[str, Any], at: str, depth: int) -> Iterator[_Problem]:
        known = schema.get("properties")
        known = known if isinstance(known, Mapping) else {}
        others = schema.get("additionalProperties", True)
        missing = [name for name in _list_of(schema, "required") if isinstance(name, str) and name not in value]
        if missing:
            yield f"{_place(_beneath(at, missing[0]))} is missing: {_wanted(known.get(missing[0]))}."
        for name, each in value.items():
            if name in known:
                yield self.of(known[name], each, _beneath(at, name), depth + 1)
            elif others is False and "patternProperties" not in schema:
                yield _unknown(name, known, at)
            elif isinstance(others, Mapping):
                yield self.of(others, each, _beneath(at, name), depth + 1)

    def _list(self, schema: Mapping[str, Any], value: list[Any], at: str, depth: int) -> Iterator[_Problem]:
        first = _list_of(schema, "prefixItems")
        for index, each in enumerate(value):
            form = first[index] if index < len(first) else schema.get("items", True)
            if form is not True:
                yield self.of(form, each, f"{at}[{index}]", depth + 1)


def _of_type(schema: Mapping[str, Any], value: Any, at: str) -> _Problem:
    types = schema.get("type")
    kinds = [kind for each in (types if isinstance(types, list) else [types]) if (kind := _kind(each))]
    if not kinds or any(fits(value) for _, fits in kinds):
        return None
    return f"{_place(at)} must be {' or '.join(name for name, _ in kinds)}, not {_shown(value)}."


def _of_choice(schema: Mapping[str, Any], value: Any, at: str) -> _Problem:
    if "const" in schema and not _same(schema["const"], value):
        return f"{_place(at)} must be {_shown(schema['const'])}, not {_shown(value)}."
    choices = _list_of(schema, "enum")
    if not choices or any(_same(choice, value) for choice in choices):
        return None
    told = ", ".join(_shown(choice) for choice in choices[:20]) + (" …" if len(choices) > 20 else "")
    return f"{_place(at)} must be one of {told}, not {_shown(value)}."


_BOUNDS: tuple[tuple[str, type | tuple[type, ...], Callable[[Any, Any], bool], str], ...] = (
    ("minimum", (int, float), lambda value, bound: value >= bound, "at least {}"),
    ("maximum", (int, float), lambda value, bound: value <= bound, "at most {}"),
    ("exclusiveMinimum", (int, float), lambda value, bound: value > bound, "more than {}"),
    ("exclusiveMaximum", (int, float), lambda value, bound: value < bound, "less than {}"),
    ("minLength", str, lambda value, bound: len(value) >= bound, "at least {} characters long"),
    ("maxLength", str, lambda value, bound: len(value) <= bound, "at most {} characters long"),
    ("minItems", list, lambda value, bound: len(value) >= bound, "a list of at least {}"),
    ("maxItems", list, lambda value, bound: len(value) <= bound, "a list of at most {}"),
    ("minProperties", dict, lambda value, bound: len(value) >= bound, "an object with at least {} keys"),
    ("maxProperties", dict, lambda value, bound: len(value) <= bound, "an object with at most {} keys"),
)


def _of_size(schema: Mapping[str, Any], value: Any, at: str) -> _Problem:
    for word, kind, holds, told in _BOUNDS:
        bound = schema.get(word)
        if _is_number(bound) and isinstance(value, kind) and not isinstance(value, bool) and not holds(value, bound):
            return f"{_place(at)} must be {told.format(bound)}, not {_shown(value)}."
    return None


def _unknown(name: str, known: Mapping[str, Any], at: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name[:80], [str(each) for each in list(known)[:200]], n=1)
    there = ", ".join(map(repr, list(known)[:20])) if known else "none"
    guess = f"did you mean {near[0]!r}?" if near else f"there is {there}."
    return f"{_place(_beneath(at, name))} is not known: {guess}"


def _wanted(schema: Any) -> str:
    kind = _kind(schema.get("type")) if isinstance(schema, Mapping) else None
    return f"give {kind[0]}" if kind else "give it"


def _kind(name: Any) -> tuple[str, Callable[[Any], bool]] | None:
    return _KINDS.get(name) if isinstance(name, str) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """Python holds True for 1; JSON does not."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _length(schema: Any) -> int:
    """Of what is gone through for each value again, and of which a schema may hold very much."""
    if not isinstance(schema, Mapping):
        return 0
    words = ("$ref", "enum", "required", "prefixItems")
    return sum(len(part) for word in words if isinstance(part := schema.get(word), str | list | tuple))


def _list_of(schema: Mapping[str, Any], word: str) -> list[Any]:
    found = schema.get(word)
    return list(found) if isinstance(found, list | tuple) else []


def _beneath(at: str, name: str) -> str:
    name = name if len(name) <= 80 else name[:80] + "…"
    return f"{at}.{name}" if at else name


def _place(at: str) -> str:
    return f"The argument `{at}`" if at else "What you gave as arguments"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:80] + "…"
