"""A cell right after a restart, where the guest is the first process and reaps all others."""

from __future__ import annotations

import shutil

import pytest

from atoll import Sandbox

_CELLS = {"python": "x = 1", "bash": "x=1", "javascript": "var x = 1"}


@pytest.fixture(scope="module")
def box():
    with Sandbox.create("jail") as made:
        yield made


@pytest.mark.parametrize(("language", "program"), [("javascript", "node"), ("bash", "bash"), ("python", "python3")])
def test_a_cell_right_after_a_restart_runs_in_a_new_process(box, language, program):
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")
    context = box.contexts.create(language=language)
    for _ in range(50):
        assert box.run_code(_CELLS[language], context=context).error is None
        box.contexts.restart(context)
        assert box.run_code(_CELLS[language], context=context).error is None


def test_a_restart_during_a_cell_ends_it_and_the_next_runs_in_a_new_process(box):
    import threading

    context = box.contexts.create(language="bash")
    for number in range(10):
        ended = []
        thread = threading.Thread(
            target=lambda ended=ended: ended.append(box.run_code("echo here; sleep 100", context=context))
        )
        thread.start()
        while not next(each for each in box.contexts.list() if each.name == context.name).busy:
            pass
        box.contexts.restart(context)
        assert box.run_code("echo new", context=context).stdout == "new\n", number
        thread.join(20)
        assert ended[0].error is not None
