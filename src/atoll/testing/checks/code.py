"""`run_code`: Python that keeps its state from cell to cell."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...sync import Sandbox, run_code
from ...types import Capability, Execution, Result
from .. import waiting
from ..base import Checks, Make
from ..needs import needs
from ..waiting import eventually, stands_still

STUBBORN = """
import time
while True:
    try:
        time.sleep(1000)
    except KeyboardInterrupt:
        pass
"""
BEAT = "while :; do echo x >> beat; sleep 0.02; done"


class CodeChecks(Checks):
    """Code."""

    @pytest.fixture
    def context(self) -> str:
        """A context of the shared sandbox that only this test uses."""
        return os.urandom(6).hex()

    @needs(Capability.CODE)
    def test_cells_share_their_state(self, sandbox: Sandbox, context: str) -> None:
        assert sandbox.run_code("x = 41\nimport math", context=context).text is None
        second = sandbox.run_code("x + int(math.sqrt(1))", context=context)
        assert (second.text, second.success, second.state_lost, second.count) == ("42", True, False, 2)

    @needs(Capability.CODE)
    def test_the_last_expression_is_the_result(self, sandbox: Sandbox, context: str) -> None:
        assert sandbox.run_code("a = [1]; a.append(2); a", context=context).text == "[1, 2]"
        assert sandbox.run_code("'''it's'''", context=context).text == '"it\'s"'
        for code in ("None", "y = 5", "", "# nothing", "for i in range(3): i"):
            done = sandbox.run_code(code, context=context)
            assert (done.text, done.results, done.success) == (None, (), True)

    @needs(Capability.COMMANDS, Capability.CODE)
    def test_output_of_a_cell_is_kept_apart_from_its_result(self, sandbox: Sandbox, context: str) -> None:
        code = """
import os, subprocess, sys
print("out")
print("err", file=sys.stderr)
os.write(1, b"raw\\n")
subprocess.run(["echo", "child"])
"value"
"""
        done = sandbox.run_code(code, context=context)
        assert sorted(done.stdout.split()) == ["child", "out", "raw"]
        assert (done.stderr, done.text) == ("err\n", "'value'")

    @needs(Capability.CODE)
    def test_an_error_is_data_and_state_survives_it(self, sandbox: Sandbox, context: str) -> None:
        done = sandbox.run_code("kept = 1\ndef f():\n    return 1 / 0\nf()", context=context)
        assert done.error is not None
        assert (done.error.name, done.error.value) == ("ZeroDivisionError", "division by zero")
        assert "return 1 / 0" in done.error.traceback
        assert (done.success, done.timed_out, done.state_lost, done.text) == (False, False, False, None)
        assert sandbox.run_code("kept", context=context).text == "1"

    @needs(Capability.CODE)
    def test_code_that_is_no_python_is_data(self, sandbox: Sandbox, context: str) -> None:
        done = sandbox.run_code("x = = 1", context=context)
        assert done.error is not None
        assert done.error.name == "SyntaxError"
        assert "x = = 1" in done.error.traceback

    @needs(Capability.CODE)
    def test_a_last_expression_that_raises_runs_once(self, sandbox: Sandbox, context: str) -> None:
        sandbox.run_code("calls = []", context=context)
        done = sandbox.run_code("def f():\n    calls.append(1)\n    raise ValueError('once')\nf()", context=context)
        assert done.error is not None
        assert sandbox.run_code("len(calls)", context=context).text == "1"

    @needs(Capability.CODE)
    def test_sys_exit_is_data(self, sandbox: Sandbox, context: str) -> None:
        done = sandbox.run_code("kept = 1\nimport sys\nsys.exit(3)", context=context)
        assert done.error is not None
        assert (done.error.name, done.error.value, done.state_lost) == ("SystemExit", "3", False)
        assert sandbox.run_code("kept", context=context).text == "1"

    @needs(Capability.CODE)
    def test_a_timeout_interrupts_and_says_that_state_survived(self, sandbox: Sandbox, context: str) -> None:
        sandbox.run_code("kept = 7", context=context)
        for code in ("while True: pass", "import time; time.sleep(1000)"):
            done = sandbox.run_code(f"print('begun')\n{code}", context=context, timeout=0.5)
            assert (done.timed_out, done.success, done.state_lost) == (True, False, False)
            assert done.stdout == "begun\n"
        assert sandbox.run_code("kept", context=context).text == "7"

    @needs(Capability.CODE)
    def test_a_timeout_kills_what_will_not_stop_and_says_that_state_is_lost(
        self, sandbox: Sandbox, context: str
    ) -> None:
        sandbox.run_code("lost = 7", context=context)
        done = sandbox.run_code(STUBBORN, context=context, timeout=0.3)
        assert (done.timed_out, done.success, done.state_lost) == (True, False, True)
        after = sandbox.run_code("'lost' in globals()", context=context)
        assert (after.text, after.state_lost) == ("False", False)

    @needs(Capability.CODE, Capability.COMMANDS)
    def test_a_timeout_of_a_cell_kills_what_it_started(self, sandbox: Sandbox, context: str, place: str) -> None:
        code = f"import subprocess, time\nsubprocess.Popen(['setsid', 'sh', '-c', {BEAT!r}])\ntime.sleep(1000)"
        done = sandbox.run_code(code, context=context, workdir=place, timeout=1.0)
        assert done.timed_out
        path = f"{place}/beat"
        assert sandbox.files.info(path).size > 0
        assert stands_still(lambda: sandbox.files.info(path).size)

    @needs(Capability.CODE)
    def test_a_context_that_dies_says_so_and_comes_back(self, sandbox: Sandbox, context: str) -> None:
        _die(sandbox, context, "import os; os._exit(3)")

    @needs(Capability.CODE, Capability.COMMANDS)
    def test_a_context_that_a_signal_ends_says_so_and_comes_back(self, sandbox: Sandbox, context: str) -> None:
        for death in ("import os; os.kill(os.getpid(), 9)", "import ctypes; ctypes.string_at(0)"):
            _die(sandbox, context, death)

    @needs(Capability.CODE)
    def test_endless_recursion_is_data(self, sandbox: Sandbox, context: str) -> None:
        done = sandbox.run_code("kept = 1\ndef f(): return f()\nf()", context=context)
        assert done.error is not None
        assert done.error.name == "RecursionError"
        assert len(done.error.traceback) < 1 << 20
        assert sandbox.run_code("kept", context=context).text == "1"

    @needs(Capability.CODE)
    def test_large_output_of_a_cell_arrives_whole(self, sandbox: Sandbox, context: str) -> None:
        done = sandbox.run_code("print('x' * 3_000_000)", context=context)
        assert (len(done.stdout), done.truncated, done.success) == (3_000_001, False, True)

    @needs(Capability.CODE)
    def test_output_of_a_cell_over_the_limit_is_cut_and_said_to_be(self, sandbox: Sandbox, context: str) -> None:
        done = sandbox.run_code("print('x' * 100_000); 'end'", context=context, max_output=1000)
        assert done.truncated
        assert 0 < len(done.stdout) <= 1000
        large = sandbox.run_code("'x' * 50_000_000", context=context)
        assert large.truncated
        assert sandbox.run_code("1 + 1", context=context).text == "2"

    @needs(Capability.CODE)
    def test_contexts_share_no_variables(self, sandbox: Sandbox, context: str) -> None:
        sandbox.run_code("secret = 1", context=context)
        assert sandbox.run_code("'secret' in globals()", context=f"{context}-2").text == "False"
        assert sandbox.run_code("secret", context=context).text == "1"

    @needs(Capability.CODE)
    def test_contexts_run_side_by_side(self, sandbox: Sandbox, context: str, place: str) -> None:
        meet = (
            "import os, time\nopen('{me}', 'w').close()\nwhile not os.path.exists('{other}'): time.sleep(0.01)\n'met'"
        )

        def cell(me: str, other: str) -> str | None:
            code = meet.format(me=me, other=other)
            return sandbox.run_code(code, context=f"{context}-{me}", workdir=place, timeout=20).text

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(cell, ("a", "b"), ("b", "a"))) == ["'met'", "'met'"]

    @needs(Capability.CODE)
    def test_env_and_workdir_of_a_cell_are_for_one_cell(self, sandbox: Sandbox, context: str, place: str) -> None:
        code = "import os; (os.environ.get('WORD'), os.path.basename(os.getcwd()))"
        before = sandbox.run_code(code, context=context).text
        assert sandbox.run_code(code, context=context, env={"WORD": "w"}, workdir=place).text == f"('w', '{place}')"
        assert sandbox.run_code(code, context=context).text == before

    @needs(Capability.CODE)
    def test_env_of_the_sandbox_reaches_cells(self, make: Make) -> None:
        sandbox = make(env={"WORD": "everywhere"})
        assert sandbox.run_code("import os; os.environ['WORD']").text == "'everywhere'"

    @needs(Capability.COMMANDS, Capability.CODE)
    def test_a_cell_can_be_interrupted(self, sandbox: Sandbox, context: str, place: str) -> None:
        assert sandbox.interrupt(context) is False
        ended: list[Execution] = []
        code = "import time\nkept = 5\nopen('begun', 'w').close()\ntime.sleep(1000)"
        cell = threading.Thread(
            target=lambda: ended.append(sandbox.run_code(code, context=context, workdir=place, timeout=None))
        )
        cell.start()
        eventually(lambda: sandbox.files.exists(f"{place}/begun"), "the cell runs")
        assert sandbox.interrupt(context) is True
        cell.join()
        (done,) = ended
        assert done.error is not None
        assert (done.error.name, done.timed_out, done.state_lost) == ("KeyboardInterrupt", False, False)
        assert sandbox.run_code("kept", context=context).text == "5"

    @needs(Capability.CODE)
    def test_callbacks_hear_a_cell_while_it_runs(self, sandbox: Sandbox, context: str, place: str) -> None:
        heard: list[str] = []
        results: list[Result] = []

        def hear(text: str) -> None:
            if not heard:
                sandbox.files.write(f"{place}/go", "")
            heard.append(text)

        code = "import os, time\nprint('first')\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('second')\n9"
        done = sandbox.run_code(
            code, context=context, workdir=place, timeout=waiting.HURRY, on_stdout=hear, on_result=results.append
        )
        assert not done.timed_out, "the first output came only after the cell had ended"
        assert "".join(heard) == done.stdout == "first\nsecond\n"
        assert [result.text for result in results] == ["9"]

    @needs(Capability.CODE)
    def test_a_cell_may_await(self, sandbox: Sandbox, context: str) -> None:
        assert (
            sandbox.run_code("import asyncio\nawait asyncio.sleep(0, 'awaited')", context=context).text == "'awaited'"
        )

    @needs(Capability.CODE)
    def test_input_is_refused_and_does_not_block(self, sandbox: Sandbox, context: str) -> None:
        done = sandbox.run_code("input('name? ')", context=context, timeout=20)
        assert done.error is not None
        assert not done.timed_out

    @needs(Capability.CODE)
    def test_another_process_goes_on_in_the_same_state(self, make: Make) -> None:
        sandbox = make()
        sandbox.run_code("shared = 'from here'")
        body = """
sandbox = Sandbox.connect(id)
answer = sandbox.run_code("shared").text
sandbox.run_code("shared = 'from there'")
"""
        assert self.elsewhere(body, id=sandbox.id).answer() == "'from here'"
        assert sandbox.run_code("shared").text == "'from there'"

    @needs(Capability.CODE)
    def test_run_code_leaves_no_sandbox(self, label: dict[str, str]) -> None:
        wishes = self.with_defaults(labels=label)
        wishes.pop("lifetime")
        assert run_code("6 * 7", self.driver_class.name, **wishes).text == "42"
        assert Sandbox.list(label) == []


def _die(sandbox: Sandbox, context: str, death: str) -> None:
    sandbox.run_code("lost = 1", context=context)
    done = sandbox.run_code(f"print('last words', flush=True)\n{death}", context=context)
    assert done.error is not None
    assert (done.success, done.state_lost, done.stdout) == (False, True, "last words\n")
    assert sandbox.run_code("'lost' in globals()", context=context).text == "False"
