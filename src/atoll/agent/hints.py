"""Type hints as JSON schemas, and the way back from JSON that fits such a schema to the value that was hinted at."""

from __future__ import annotations

import collections.abc
import enum
import pathlib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import InvalidInput
from ..schema import fitting

_NO_CHANGE: Callable[[Any], Any] = lambda value: value  # noqa: E731 - compared by identity, which a def would hide


class Form(NamedTuple):
    """`value` makes what was hinted at of JSON that fits the schema."""

    schema: dict[str, Any]
    value: Callable[[Any], Any] = _NO_CHANGE


_PLAIN: dict[Any, Form] = {
    Any: Form({}),
    object: Form({}),
    str: Form({"type": "string"}),
    # JSON has one kind of numbers: models write 2.0 for a whole one and 2 for another.
    int: Form({"type": "integer"}, int),
    float: Form({"type": "number"}, float),
    bool: Form({"type": "boolean"}),
    None: Form({"type": "null"}),
    type(None): Form({"type": "null"}),
    tuple: Form({"type": "array"}, tuple),
    pathlib.Path: Form({"type": "string"}, pathlib.Path),
}

_LISTS: dict[Any, Callable[[Any], Any]] = {
    list: list,
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Set: set,
}
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_KNOWN = (
    "str, int, float, bool, None, list, tuple, set, dict with string keys, Literal, Enum, Optional, Union, TypedDict, "
    "NamedTuple, dataclasses, pathlib.Path, Annotated and Any"
)


def form_of(hint: Any, what: str, within: tuple[Any, ...] = ()) -> Form:
    """The form of values of a type hint. `what` has it, for the error.

    Raises:
        InvalidInput: no JSON can be told for it.
    """
    if _hashable(hint) and hint in _PLAIN:
        return _PLAIN[hint]
    if hint in within:
        raise InvalidInput(f"{what} has a type that contains itself, {_named(hint)}; use dict or list there.")
    within = (*within, hint)
    made = _generic(hint, what, within) or _record(hint, what, within)
    if made is None:
        raise InvalidInput(f"{what} has the type {_named(hint)}, which no JSON schema tells; use {_KNOWN}.")
    return made


def _generic(hint: Any, what: str, within: tuple[Any, ...]) -> Form | None:
    origin, given = typing.get_origin(hint), typing.get_args(hint)
    if origin in _GENERIC:
        # `typing.List` alone says no more than `list`.
        return _GENERIC[origin](given, what, within) if given else form_of(origin, what, within)
    if origin in _LISTS or hint in _LISTS:
        return _list(_LISTS[origin or hint], given, what, within)
    if origin in _MAPPINGS or hint in _MAPPINGS:
        return _mapping(given or (str, Any), what, within)
    return form_of(hint.__supertype__, what, within) if isinstance(hint, typing.NewType) else None


def _list(build: Callable[[Any], Any], given: tuple[Any, ...], what: str, within: tuple[Any, ...]) -> Form:
    item = form_of(given[0] if given else Any, what, within)
    return Form({"type": "array", "items": item.schema}, lambda value: build(map(item.value, value)))


def _annotated(given: tuple[Any, ...], what: str, within: tuple[Any, ...]) -> Form:
    form = form_of(given[0], what, within)
    told = next((each for each in given[1:] if isinstance(each, str)), None)
    return form if told is None else form._replace(schema={**form.schema, "description": told})


def _wrapped(given: tuple[Any, ...], what: str, within: tuple[Any, ...]) -> Form:
    return form_of(given[0], what, within)


def _literals(given: tuple[Any, ...], what: str, _within: tuple[Any, ...]) -> Form:
    return _choice({_literal(value, what): value for value in given})


def _literal(value: Any, what: str) -> Any:
    if isinstance(value, str | int | bool | None):
        return value
    raise InvalidInput(f"{what} has the literal {value!r}, which JSON cannot tell; use strings, numbers or None.")


def _choice(values: Mapping[Any, Any]) -> Form:
    """JSON and what it stands for."""
    # Python holds 1, 1.0 and True for the same key, and a model's 1.0 is to be found as 1.
    return Form({"enum": list(values)}, lambda value: values[value])


def _union(given: tuple[Any, ...], what: str, within: tuple[Any, ...]) -> Form:
    forms = [form_of(each, what, within) for each in given]

    def value(found: Any) -> Any:
        return next(form for form in forms if _fits(form, found)).value(found)

    kinds = [form.schema.get("type") for form in forms]
    if all(isinstance(kind, str) and form.schema == {"type": kind} for kind, form in zip(kinds, forms, strict=True)):
        return Form({"type": kinds}, value)
    return Form({"anyOf": [form.schema for form in forms]}, value)


def _fits(form: Form, value: Any) -> bool:
    try:
        fitting(form.schema, value)
    except InvalidInput:
        return False
    return True


def _tuple(given: tuple[Any, ...], what: str, within: tuple[Any, ...]) -> Form:
    if len(given) == 2 and given[1] is Ellipsis:
        item = form_of(given[0], what, within)
        return Form({"type": "array", "items": item.schema}, lambda value: tuple(map(item.value, value)))
    items = [form_of(each, what, within) for each in given]
    schema = {
        "type": "array",
        "prefixItems": [item.schema for item in items],
        "minItems": len(items),
        "maxItems": len(items),
    }
    return Form(schema, lambda value: tuple(item.value(each) for item, each in zip(items, value, strict=True)))


def _mapping(given: tuple[Any, ...], what: str, within: tuple[Any, ...]) -> Form:
    if given[0] not in (str, Any):
        raise InvalidInput(f"{what} is a mapping with keys of {_named(given[0])}; JSON has strings only, so use str.")
    item = form_of(given[1], what, within)
    schema = {"type": "object", "additionalProperties": item.schema}
    return Form(schema, lambda value: {key: item.value(each) for key, each in value.items()})


_GENERIC: dict[Any, Callable[[tuple[Any, ...], str, tuple[Any, ...]], Form]] = {
    typing.Annotated: _annotated,
    typing.Required: _wrapped,
    typing.NotRequired: _wrapped,
    typing.Literal: _literals,
    typing.Union: _union,
    types.UnionType: _union,
    tuple: _tuple,
}


def _record(hint: Any, what: str, within: tuple[Any, ...]) -> Form | None:
    if not isinstance(hint, type):
        return None
    if issubclass(hint, enum.Enum):
        return _choice({_literal(member.value, what): member for member in hint})
    record: Any = hint
    if typing.is_typeddict(hint):
        return _object(record, dict, _needed(record, what), what, within)
    if issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return _object(record, hint, set(record._fields) - record._field_defaults.keys(), what, within)
    if hasattr(hint, "__dataclass_fields__"):
        return _dataclass(hint, what, within)
    return None


def _needed(hint: Any, what: str) -> set[str]:
    """The keys of a TypedDict that must be there. It knows them itself, unless its hints are texts, as in a module
    with `from __future__ import annotations`: then it has not looked into them."""
    needed = set(hint.__required_keys__)
    for name, each in hints_of(hint, what).items():
        if typing.get_origin(each) is typing.Required:
            needed.add(name)
        if typing.get_origin(each) is typing.NotRequired:
            needed.discard(name)
    return needed


def _dataclass(hint: Any, what: str, within: tuple[Any, ...]) -> Form:
    import dataclasses

    fields = [field for field in dataclasses.fields(hint) if field.init]
    missing = dataclasses.MISSING
    needed = {field.name for field in fields if field.default is missing and field.default_factory is missing}
    return _object(hint, hint, needed, what, within, {field.name for field in fields})


def _object(
    hint: Any,
    make: Callable[..., Any],
    needed: collections.abc.Set[str],
    what: str,
    within: tuple[Any, ...],
    only: set[str] | None = None,
) -> Form:
    hints = hints_of(hint, what)
    forms = {
        name: form_of(each, f"{what}, in {hint.__name__}.{name},", within)
        for name, each in hints.items()
        if only is None or name in only
    }
    schema = object_schema(
        {name: form.schema for name, form in forms.items()}, [name for name in forms if name in needed]
    )
    return Form(schema, lambda value: make(**{name: forms[name].value(each) for name, each in value.items()}))


def object_schema(properties: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    """Of an object with these keys and no others."""
    schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def hints_of(thing: Any, what: str) -> dict[str, Any]:
    """The type hints of a function or class, resolved.

    Raises:
        InvalidInput: a hint names something that is not there.
    """
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except Exception as error:  # noqa: BLE001 - evaluating a hint runs what its author wrote there
        reason = f"{type(error).__name__}: {error}"
        raise InvalidInput(f"{what} has a type hint that cannot be resolved: {reason}.") from None


def _hashable(hint: Any) -> bool:
    try:
        hash(hint)
    except TypeError:
        return False
    return True


def _named(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else repr(hint)
