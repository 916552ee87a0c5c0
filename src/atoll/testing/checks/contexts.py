"""Contexts, cells as they run, and what their code may ask of the host."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from ...errors import InvalidInput
from ...sync import Sandbox
from ...types import Capability, Execution, Result
from .. import waiting
from ..base import Checks, Make
from ..needs import needs
from ..waiting import eventually


class ContextChecks(Checks):
    """Contexts."""

    @pytest.fixture
    def own(self, sandbox: Sandbox) -> Iterator[str]:
        """The name of a context that only this test uses, and that ends with it."""
        name = os.urandom(6).hex()
        yield name
        if name in [each.name for each in sandbox.contexts.list()]:
            sandbox.contexts.delete(name)

    @needs(Capability.CODE)
    def test_a_context_is_made_with_a_directory_and_an_environment(
        self, sandbox: Sandbox, own: str, place: str
    ) -> None:
        made = sandbox.contexts.create(own, workdir=place, env={"WORD": "w"})
        assert (made.name, made.language, made.busy, made.cells) == (own, "python", False, 0)
        for _ in range(2):
            done = sandbox.run_code("import os; os.path.basename(os.getcwd()), os.environ['WORD']", context=made)
            assert done.text == f"('{place}', 'w')"
        (listed,) = [each for each in sandbox.contexts.list() if each.name == own]
        assert (listed.cells, listed.busy, listed.workdir) == (2, False, made.workdir)
        with pytest.raises(InvalidInput):
            sandbox.contexts.create(own)

    @needs(Capability.CODE)
    def test_a_restart_forgets_variables_and_keeps_the_environment(self, sandbox: Sandbox, own: str) -> None:
        sandbox.contexts.create(own, env={"WORD": "w"})
        for _ in range(2):
            sandbox.run_code("forgotten = 1", context=own)
        sandbox.contexts.restart(own)
        done = sandbox.run_code("import os; ('forgotten' in globals(), os.environ['WORD'])", context=own)
        assert (done.text, done.count) == ("(False, 'w')", 1)

    @needs(Capability.COMMANDS, Capability.CODE)
    def test_deleting_a_context_ends_its_cell_and_processes(self, sandbox: Sandbox, own: str, place: str) -> None:
        ended: list[Execution] = []
        word = f"1061.{os.getpid()}"
        code = f"import subprocess\np = subprocess.Popen(['sleep', '{word}'])\nopen('begun', 'w').close()\np.wait()"
        cell = threading.Thread(
            target=lambda: ended.append(sandbox.run_code(code, context=own, workdir=place, timeout=None))
        )
        cell.start()
        eventually(lambda: sandbox.files.exists(f"{place}/begun"), "the cell runs")
        assert any(word in process.command for process in sandbox.processes())
        sandbox.contexts.delete(own)
        cell.join()
        assert not ended[0].success
        eventually(lambda: not any(word in each.command for each in sandbox.processes()), "its process is gone")
        assert own not in [each.name for each in sandbox.contexts.list()]

    @needs(Capability.CODE)
    def test_a_cell_is_iterated_over_while_it_runs(self, sandbox: Sandbox, own: str, place: str) -> None:
        code = "import os, time\nprint('first')\nwhile not os.path.exists('go'): time.sleep(0.01)\ndisplay(8)\n9"
        for turn in range(2):
            cell = sandbox.stream_code(code, context=own, workdir=place, timeout=waiting.HURRY)
            first = next(cell)
            assert first.text == "first\n"
            sandbox.files.write(f"{place}/go", "")
            rest = list(cell)
            assert [(piece.text, isinstance(piece, Result)) for piece in rest] == [("8", True), ("9", True)]
            assert cell.execution is not None
            assert (cell.execution.text, cell.execution.timed_out, cell.execution.count) == ("9", False, turn + 1)
            sandbox.files.remove(f"{place}/go")

    @needs(Capability.CODE)
    def test_a_cell_whose_iteration_is_left_is_stopped(self, sandbox: Sandbox, own: str) -> None:
        for _ in range(2):
            with sandbox.stream_code("kept = 1\nprint('begun')\nwhile True: pass", context=own, timeout=None) as cell:
                assert next(cell).text == "begun\n"
            assert sandbox.run_code("kept", context=own, timeout=waiting.PATIENCE).text == "1"

    @needs(Capability.CODE)
    def test_input_is_answered_by_a_callback(self, sandbox: Sandbox, own: str) -> None:
        prompts: list[str] = []

        def answer(prompt: str) -> str | None:
            prompts.append(prompt)
            return None if prompt == "nothing? " else prompt.upper()

        for _ in range(2):
            done = sandbox.run_code("input('name? ')", context=own, on_input=answer)
            assert (done.text, done.stdout) == ("'NAME? '", "name? ")
        refused = sandbox.run_code("input('nothing? ')", context=own, on_input=answer)
        assert refused.error is not None
        assert refused.error.name == "EOFError"
        assert prompts == ["name? ", "name? ", "nothing? "]

    @needs(Capability.CODE)
    def test_functions_of_the_host_are_called_by_name_and_nothing_else_is(self, make: Make) -> None:
        calls: list[object] = []

        def look(*arguments: object, **keywords: object) -> object:
            calls.append(arguments)
            return [*arguments, keywords]

        sandbox = make(tools={"look": look})
        for _ in range(2):
            assert sandbox.run_code("look(1, 'two', key=None)").text == "[1, 'two', {'key': None}]"
            for hidden in ("tools.os", "hidden()", "look._call('hidden', (), {})"):
                assert sandbox.run_code(hidden).error is not None
        assert calls == [(1, "two")] * 2
        assert Sandbox.connect(sandbox.id).run_code("tools.look(1)").error is not None
        assert len(calls) == 2

    @needs(Capability.CODE)
    def test_output_after_a_cell_breaks_no_later_one(self, sandbox: Sandbox, own: str) -> None:
        sandbox.run_code("import subprocess; yes = subprocess.Popen(['yes'])", context=own)
        for turn in range(20):
            done = sandbox.run_code(str(turn), context=own, timeout=waiting.PATIENCE)
            # Some of so much output is cut, which makes it no success.
            assert (done.text, done.error, set(done.stdout) <= {"y", "\n"}) == (str(turn), None, True)
