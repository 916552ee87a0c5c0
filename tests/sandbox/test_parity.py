"""`Sandbox` is `AsyncSandbox` without `await`: the same names, parameters, defaults, kinds and words."""

from __future__ import annotations

import inspect
import re

import pytest

from atoll import aio, sync
from atoll.client.codebases import AsyncCodebases
from atoll.client.files import AsyncFiles
from atoll.client.output import AsyncOutput
from atoll.client.process import AsyncProcess
from atoll.client.session import AsyncSession
from atoll.client.snapshots import AsyncSnapshots
from atoll.client.variables import AsyncVariables
from atoll.client.watch import AsyncWatch
from atoll.sandbox import AsyncSandbox
from atoll.sync import Sandbox
from atoll.sync.codebases import Codebases
from atoll.sync.files import Files
from atoll.sync.process import Output, Process, Watch
from atoll.sync.session import Session
from atoll.sync.snapshots import Snapshots
from atoll.sync.variables import Variables

PAIRS = [
    (AsyncSandbox, Sandbox),
    (AsyncCodebases, Codebases),
    (AsyncFiles, Files),
    (AsyncOutput, Output),
    (AsyncProcess, Process),
    (AsyncSession, Session),
    (AsyncSnapshots, Snapshots),
    (AsyncVariables, Variables),
    (AsyncWatch, Watch),
]
DUNDERS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
INTERNAL = {
    "ready",
    "__abstractmethods__",
    "__init__",
    "__del__",
    "__module__",
    "__doc__",
    "__dict__",
    "__weakref__",
    "__annotations__",
}


def members(cls):
    return {
        DUNDERS.get(name, name): member
        for name, member in vars(cls).items()
        if name not in INTERNAL and (not name.startswith("_") or name.startswith("__"))
    }


def shape(member):
    """What a caller sees, but for the `await` and the names of the classes."""
    if isinstance(member, property):
        return ("property", member.__doc__, _plain(inspect.signature(member.fget).return_annotation))
    kind = type(member).__name__
    function = getattr(member, "__func__", member)
    signature = inspect.signature(function)
    parameters = [
        (each.name, each.kind, each.default, _plain(each.annotation)) for each in signature.parameters.values()
    ]
    return (kind, parameters, _plain(signature.return_annotation))


def _plain(annotation):
    text = re.sub(r"^Pending\[(.*)\]$", r"\1", str(annotation).replace("Async", ""))
    return text if text != "inspect._empty" else ""


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_both_forms_have_the_same_members(asynchronous, blocking):
    assert set(members(asynchronous)) == set(members(blocking))
    for name, member in members(asynchronous).items():
        twin = members(blocking)[name]
        if name not in ("__iter__", "__enter__"):
            assert shape(member) == shape(twin), name


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_both_forms_say_the_same(asynchronous, blocking):
    for name, member in members(asynchronous).items():
        twin = members(blocking)[name]
        if not isinstance(member, property):
            words = getattr(member, "__func__", member).__doc__
            assert getattr(twin, "__func__", twin).__doc__ == words, name
            assert words or name.startswith("__"), f"{name} has no docstring"
    assert blocking.__doc__


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_only_what_waits_is_awaited(asynchronous, blocking):
    for name, member in members(asynchronous).items():
        twin = members(blocking)[name]
        if not isinstance(member, property):
            assert not inspect.iscoroutinefunction(getattr(twin, "__func__", twin)), name
    waits = {name for name, member in members(AsyncOutput).items() if inspect.iscoroutinefunction(member)}
    assert waits == {"__enter__", "__exit__", "__next__"}


@pytest.mark.parametrize("name", ["run", "run_code", "run_many"])
def test_the_one_shot_helpers_are_alike(name):
    one, other = getattr(aio, name), getattr(sync, name)
    assert inspect.iscoroutinefunction(one)
    assert shape(one) == shape(other)
    assert one.__doc__.replace("AsyncSandbox", "Sandbox") == other.__doc__
