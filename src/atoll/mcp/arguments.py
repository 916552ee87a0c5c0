"""The arguments of a call, held against the tool's schema. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from ..errors import InvalidInput
from ..policy.text import shown

_TYPES: dict[str, Any] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
}


def check(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raises InvalidInput for the first argument that is unknown, missing, or not what the schema says."""
    properties = schema["properties"]
    for name, value in arguments.items():
        known = properties.get(name)
        if known is None:
            raise _unknown(name, properties)
        if known:
            _check_value(name, value, known)
    for name in schema.get("required", ()):
        if name not in arguments:
            raise InvalidInput(f"The argument {name} is missing: {properties[name]['description']}")


def _check_value(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    kind: str | None = schema.get("type")
    if kind is None:
        return
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        raise InvalidInput(f"{name} is {shown(value)}; give {_WORDS[kind]}.")
    if "enum" in schema and value not in schema["enum"]:
        raise InvalidInput(f"{name} is {shown(value)}; give one of {', '.join(schema['enum'])}.")
    # JSON in Python knows NaN, and whole numbers that no float holds.
    if kind == "number" and isinstance(value, float) and not isfinite(value):
        raise InvalidInput(f"{name} is {shown(value)}; give a finite number.")
    low, high = schema.get("minimum"), schema.get("maximum")
    if (low is not None and value < low) or (high is not None and value > high):
        raise InvalidInput(f"{name} is {shown(value)}; give a number from {low} to {high}.")
    if kind == "array" and "items" in schema:
        for item in value:
            _check_value(f"an item of {name}", item, schema["items"])


def _unknown(name: str, properties: Mapping[str, Any]) -> InvalidInput:
    from difflib import get_close_matches

    near = get_close_matches(name, properties, n=1)
    known = f"Did you mean {near[0]}?" if near else f"The arguments are {', '.join(properties)}."
    return InvalidInput(f"There is no argument {shown(name)}.", hint=known)
