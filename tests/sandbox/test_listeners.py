"""Callbacks that cannot be called are refused before anything runs."""

from __future__ import annotations

import pytest

from atoll import InvalidInput, Sandbox


async def awaited(_said):
    """What only an AsyncSandbox can await."""


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create("fake") as made, made.session() as shell:
        yield made, shell


def ways(sandbox, shell):
    touch = "import pathlib; pathlib.Path('ran').touch()"
    return {
        **{("run", name): lambda **on: sandbox.run("touch ran", **on) for name in ("on_stdout", "on_stderr")},
        **{("session", name): lambda **on: shell.run("touch ran", **on) for name in ("on_stdout", "on_stderr")},
        **{
            ("run_code", name): lambda **on: sandbox.run_code(touch, **on)
            for name in ("on_stdout", "on_stderr", "on_result", "on_error", "on_input")
        },
        ("stream_code", "on_input"): lambda **on: list(sandbox.stream_code(touch, **on)),
    }


@pytest.mark.parametrize(("way", "name"), list(ways(None, None)))
def test_a_listener_that_cannot_be_called_is_refused_before_anything_runs(sandbox, way, name):
    call = ways(*sandbox)[way, name]
    for listener, said in ((5, f"{name} is 5; give a function"), (0, f"{name} is 0"), (awaited, "coroutine function")):
        with pytest.raises(InvalidInput, match=said):
            call(**{name: listener})
    files = sandbox[0].files
    assert not files.exists("ran")
    call(
        **{
            name: lambda _said: "",
        }
    )
    assert files.exists("ran")
    files.remove("ran")


def test_a_listener_to_progress_is_checked_too():
    with pytest.raises(InvalidInput, match="on_progress is 5; give a function"):
        Sandbox.create("fake", on_progress=5)
    with pytest.raises(InvalidInput, match="on_progress is a coroutine function"):
        Sandbox.get_or_create({"k": "v"}, "fake", on_progress=awaited)


def test_code_that_is_too_long_is_refused_with_what_takes_it(sandbox):
    for context in ("fresh", "fresh", "main"):
        with pytest.raises(InvalidInput, match=r"at most 1048576 fit.*files\.write, variables\.set"):
            sandbox[0].run_code("x = '%s'" % ("a" * (1 << 20)), context=context)
        assert sandbox[0].run_code("1", context=context).text == "1"
