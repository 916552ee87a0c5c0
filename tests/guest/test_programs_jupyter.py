"""Jupyter kernels as contexts: ipykernel for real, and what is missing."""

import importlib.util
import json
import os
import sys
import sysconfig

import pytest
from tests.guest.rawclient import Guest
from tests.guest.support import alive, failure, text

PACKAGES = [sysconfig.get_path("purelib")]
needs_ipykernel = pytest.mark.skipif(
    importlib.util.find_spec("ipykernel") is None or importlib.util.find_spec("jupyter_client") is None,
    reason="there is no ipykernel here; it is in the extra `dev`",
)


def start(root, packages=PACKAGES):
    return Guest(root, python=sys.executable, python_path=packages)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    guest = start(tmp_path_factory.mktemp("jupyter"))
    yield guest.connect()
    guest.close()


@pytest.fixture
def cell(kept):
    def run(code, **arguments):
        return kept.do("code", code=code, language="jupyter:python3", context="kernel", **arguments)

    run.client = kept
    return run


@needs_ipykernel
def test_state_output_and_results(cell):
    ended = cell("import sys\nx = 41\nprint('out')\nprint('err', file=sys.stderr)\nx")
    assert (ended.stdout, ended.stderr, text(ended)) == (b"out\n", b"err\n", "41")
    assert text(cell("x + 1")) == "42"
    assert b"hello" in cell("!echo hello").stdout


@needs_ipykernel
def test_rich_results_come_as_bundles(cell):
    ended = cell("from IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))\n1")
    assert [(event["main"], event["result"].get("text/html")) for event in ended.events] == [
        (False, "<b>x</b>"),
        (True, None),
    ]
    large = cell("display({'text/plain': 'small', 'text/html': 'x' * 2_000_000}, raw=True)")
    assert large.ok["truncated"] is True
    assert large.events[0]["result"] == {"text/plain": "small"}


@needs_ipykernel
def test_errors_are_plain_text(cell):
    error = failure(cell("1 / 0"))
    assert (error["name"], error["value"]) == ("ZeroDivisionError", "division by zero")
    assert "1 / 0" in error["traceback"]
    assert "\x1b" not in error["traceback"]
    assert "StdinNotImplemented" in failure(cell("input('name?')"))["name"]


@needs_ipykernel
def test_a_timeout_interrupts_and_keeps_the_state(cell):
    cell("kept = 1")
    ended = cell("import time; print('up', flush=True); time.sleep(60)", timeout=1)
    assert (ended.ok["timed_out"], ended.ok["state_lost"]) == (True, False)
    assert failure(ended)["name"] == "KeyboardInterrupt"
    assert text(cell("kept")) == "1"


@needs_ipykernel
def test_a_kernel_that_dies_or_is_deleted_is_told_and_leaves_nothing(tmp_path):
    guest = start(tmp_path)
    client = guest.connect()
    language = "jupyter:python3"
    ended = client.do("code", code="import os; os._exit(3)", language=language, context="k")
    assert failure(ended)["name"] == "ContextDied"
    assert "kernel has died" in failure(ended)["value"]
    assert ended.ok["state_lost"] is True
    pid = int(text(client.do("code", code="import os; os.getpid()", context="k")))
    assert alive(pid)
    assert client.do("delete_context", context="k").error is None
    assert not alive(pid)
    guest.close()


@needs_ipykernel
def test_an_unknown_kernel_is_refused_with_those_there_are(kept):
    error = kept.do("code", code="1", language="jupyter:klingon").error
    assert error["code"] == "unsupported"
    assert "python3" in error["message"]


def test_a_sandbox_without_jupyter_is_told_how_to_get_it(tmp_path):
    (tmp_path / "jupyter_client.py").write_text("raise ImportError")
    guest = start(tmp_path / "root", [str(tmp_path)])
    client = guest.connect()
    error = client.do("code", code="1", language="jupyter:python3").error
    assert error["code"] == "unsupported"
    assert 'packages=["ipykernel"]' in error["message"]
    refused = client.do("code", code="1", language="jupyter:", context="other")
    assert refused.error["code"] == "invalid_input"
    guest.close()


@needs_ipykernel
def test_a_stubborn_kernel_is_killed_and_the_loss_is_told(tmp_path):
    guest = start(tmp_path)
    client = guest.connect()
    stubborn = "import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint(os.getpid())\n"
    stubborn += "while True: time.sleep(1)"
    ended = client.do("code", code=stubborn, language="jupyter:python3", timeout=3)
    assert (ended.ok["timed_out"], ended.ok["state_lost"]) == (True, True)
    assert not alive(int(ended.stdout))
    guest.close()


@needs_ipykernel
def test_the_kernel_of_r_keeps_its_state_and_its_values_are_results(tmp_path):
    if not os.path.isdir("/usr/lib/R/site-library/IRkernel"):
        pytest.skip("there is no IRkernel here; apt-get install r-cran-irkernel")
    guest = start(tmp_path)
    client = guest.connect()
    kernel = {"argv": ["R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"], "language": "R"}
    place = tmp_path / "workspace" / ".local/share/jupyter/kernels/ir"
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps({**kernel, "display_name": "R"}))
    # Kernels are looked for in the home, which is that of the host here.
    env = {"JUPYTER_PATH": str(tmp_path / "workspace" / ".local/share/jupyter")}
    client.do("create_context", context="r", language="jupyter:ir", env=env)
    assert client.code("x <- 3; print('said')", context="r").stdout == b'[1] "said"\n'
    ended = client.code("x * 2", context="r")
    assert [event["main"] for event in ended.events] == [True]
    assert text(ended) == "[1] 6"
    assert failure(client.code("stop('no')", context="r"))["value"].endswith("no\n")
    guest.close()


@needs_ipykernel
def test_a_cell_right_after_a_restart_runs_in_a_new_kernel(cell):
    for number in range(5):
        assert text(cell("'before' in dir()")) == "False", number
        assert cell("before = 1").ok["error"] is None
        assert cell.client.do("restart_context", context="kernel").error is None


@needs_ipykernel
def test_figures_come_with_the_numbers_in_them(cell):
    pytest.importorskip("matplotlib")
    bundle = cell(
        "import matplotlib\nmatplotlib.use('module://matplotlib_inline.backend_inline')\n"
        "import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\naxes.plot([1, 2, 3], [4, 5, 6], label='x')\n"
        "axes.set_title('T')\nplt.show()"
    ).events[-1]["result"]
    chart = bundle["application/vnd.atoll.chart+json"]
    assert (chart["type"], chart["title"]) == ("line", "T")
    assert [series["points"] for series in chart["elements"]] == [[[1, 4], [2, 5], [3, 6]]]
    assert "image/png" in bundle
    again = cell("figure").events[-1]["result"]
    assert again["application/vnd.atoll.chart+json"] == chart
    assert cell("import matplotlib.figure as f\nf.Figure()").ok["error"] is None
