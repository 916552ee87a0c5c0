"""Rich results on their way through a context: in their place between the output, whole, and after errors too."""

import base64
import shutil
import sys

import pytest
from tests.guest.rawclient import Guest
from tests.guest.support import failure

from atoll.client import answers
from atoll.wire.frames import DATA, END, EVENT

CHART = "application/vnd.atoll.chart+json"


@pytest.fixture
def client(tmp_path):
    guest = Guest(tmp_path, python_path=[path for path in sys.path if path])
    client = guest.connect()
    yield client
    client.close()
    guest.close()


def test_nothing_is_loaded_for_a_cell_that_needs_nothing(client):
    heavy = "{'matplotlib', 'numpy', 'pandas', 'PIL', 'IPython', 'plotly', 'threading', 'logging'}"
    ended = client.code(f"import sys\ndisplay(1)\nsorted({heavy} & set(sys.modules))")
    assert [event["result"] for event in ended.events] == [{"text/plain": "1"}, {"text/plain": "[]"}]
    assert [event["main"] for event in ended.events] == [False, True]


def test_a_frame_and_a_figure(client):
    ended = client.code("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})\ndf")
    assert failure(ended) is None
    assert sorted(ended.events[0]["result"]) == ["text/html", "text/plain"]
    ended = client.code("ax = df.plot.bar()\nprint('done')")
    assert (ended.stdout, ended.stderr) == (b"done\n", b"")
    (event,) = ended.events
    assert event["main"] is False
    assert base64.b64decode(event["result"]["image/png"], validate=True).startswith(b"\x89PNG")
    assert [bar["value"] for bar in event["result"][CHART]["elements"]] == [1, 2]


def test_what_is_shown_comes_in_its_place(client):
    client.open("code", code="for i in range(3):\n    print('before', i, end='')\n    display(i)")
    kinds = []
    while (frame := client.receive()).kind != END:
        kinds.append(frame.kind)
    assert kinds == [DATA, EVENT] * 3


def test_what_was_shown_before_an_error_stays_and_open_figures_are_shown(client):
    ended = client.code("import matplotlib.pyplot as plt\ndisplay('first')\nplt.plot([1])\n1 / 0")
    assert failure(ended)["name"] == "ZeroDivisionError"
    assert "display" not in failure(ended)["traceback"].replace("display('first')", "")
    assert [sorted(event["result"]) for event in ended.events] == [
        ["text/plain"],
        sorted([CHART, "image/png", "text/plain"]),
    ]


def test_a_form_that_fails_is_told_on_stderr_and_the_cell_went_well(client):
    ended = client.code("class A:\n    def _repr_html_(self): 1 / 0\nA()")
    assert failure(ended) is None
    assert ended.stderr == b"_repr_html_ of A failed: ZeroDivisionError: division by zero\n"
    assert list(ended.events[0]["result"]) == ["text/plain"]


def test_a_wrong_call_of_display_is_an_error_of_the_cell_without_frames_of_the_guest(client):
    error = failure(client.code("display(1, raw=True)"))
    assert error["name"] == "TypeError"
    assert "atoll" not in error["traceback"]
    assert "display(1, raw=True)" in error["traceback"]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
def test_javascript_shows_only_bundles_that_a_client_takes(client):
    def shown(bundle):
        return client.code(f"display({bundle}, {{raw: true}})", language="javascript")

    good = shown("{'image/png': 'UE5H\\n', 'text/html': '<b>', 'application/vnd.vega.v5+json': {a: 1}}")
    assert answers.result(good.events[0]).png == b"PNG"
    for wrong in ("{'image/png': 'no!'}", "{'text/html': 5}", "{'application/vnd.plotly.v1+json': []}"):
        ended = shown(wrong)
        assert ended.events == []
        assert "base64 for pictures" in failure(ended)["value"]
