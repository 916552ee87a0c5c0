from __future__ import annotations

import threading

import pytest

from atoll import InvalidInput


def test_variables_stay_and_the_last_expression_is_the_result(sandbox):
    assert sandbox.run_code("x = 41").results == ()
    done = sandbox.run_code("x + 1")
    assert done.text == "42"
    assert done.success
    assert done.results[0].is_main
    assert sandbox.run_code("1", context="other").count == 1
    assert sandbox.run_code("x", context="other").error is not None


def test_code_that_raises_is_data(sandbox):
    done = sandbox.run_code("print('before')\n1 / 0")
    assert not done.success
    assert done.error is not None
    assert done.error.name == "ZeroDivisionError"
    assert "division" in done.error.value
    assert "1 / 0" in done.error.traceback
    assert done.stdout == "before\n"
    assert done.text is None


def test_output_is_heard_as_it_comes(sandbox):
    out, err, results = [], [], []
    done = sandbox.run_code(
        "import sys\nprint('grü')\nprint('oops', file=sys.stderr)\n7",
        on_stdout=out.append,
        on_stderr=err.append,
        on_result=results.append,
    )
    assert ("".join(out), "".join(err)) == (done.stdout, done.stderr) == ("grü\n", "oops\n")
    assert results == list(done.results)


def test_a_timeout_is_said_and_the_next_cell_works(sandbox):
    done = sandbox.run_code("while True: pass", timeout=0.5)
    assert done.timed_out
    assert not done.success
    assert sandbox.run_code("2 + 2").text == "4"


def test_interrupt_ends_the_cell_that_runs(sandbox, eventually):
    sandbox.run_code("survivor = 1")
    outcome = []
    cell = threading.Thread(
        target=lambda: outcome.append(sandbox.run_code("open('busy', 'w').close()\nwhile True: pass", timeout=60))
    )
    cell.start()
    eventually(lambda: sandbox.files.exists("busy"))
    assert sandbox.interrupt()
    cell.join(30)
    assert outcome[0].error.name == "KeyboardInterrupt"
    assert sandbox.run_code("survivor").text == "1"
    assert not sandbox.interrupt()


def test_output_beyond_the_limit_is_cut_and_said_to_be(sandbox):
    done = sandbox.run_code("print('x' * 100000)", max_output=1000)
    assert len(done.stdout) == 1000
    assert done.truncated


def test_env_and_workdir_are_passed(sandbox):
    sandbox.files.mkdir("elsewhere")
    done = sandbox.run_code(
        "import os\n(os.environ['WORD'], os.path.basename(os.getcwd()))", env={"WORD": "w"}, workdir="elsewhere"
    )
    assert done.text == "('w', 'elsewhere')"


def test_what_is_no_code_is_refused(sandbox):
    with pytest.raises(InvalidInput):
        sandbox.run_code(b"1")
    with pytest.raises(InvalidInput):
        sandbox.run_code("1", context=1)
    with pytest.raises(InvalidInput, match="fit"):
        sandbox.run_code("#" * (2 << 20))


def test_code_that_is_long_but_fits_runs(sandbox):
    assert sandbox.run_code(f"len('{'x' * 500_000}')").text == "500000"
