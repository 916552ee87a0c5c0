"""004, the README of code-sandboxes: code with state and rich results, files, commands, snapshots."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from atoll import (
    Capability,
    Resources,
    Sandbox,
    SandboxGone,
    SandboxNotFound,
    Snapshots,
    Unsupported,
    by_line,
)
from atoll.testing import hosts, wheels
from atoll.testing.needs import needs

from .images import small_image
from .walls import once

CODE, COMMANDS, LIMITS = Capability.CODE, Capability.COMMANDS, Capability.LIMITS
NONE, ALL = Capability.NETWORK_NONE, Capability.NETWORK_ALL


# Quick start


@needs(CODE)
def test_simple_code_execution(wall, capsys):
    """Simple code execution: state from cell to cell, what is printed, and the value of the last expression."""
    with Sandbox.create(driver=wall, timeout=60) as sandbox:
        sandbox.run_code("x = 1 + 1")
        printed = sandbox.run_code("print(x)")
        result = sandbox.run_code("\nx = 10\nx * 2\n")
        print(result.text)
        print(printed.stdout)
    assert capsys.readouterr().out == "20\n2\n\n"


def test_every_variant_is_a_name(wall):
    """Sandbox variants: the same call with another name; the table of the document, as far as it is local."""
    with Sandbox.create(driver=wall) as sandbox:
        assert sandbox.driver == wall
        assert sandbox.files.exists(".")


def test_filesystem_operations(wall, here, capsys):
    """Filesystem operations: write, read, list with names and sizes, upload and download."""
    (here / "local_file.txt").write_text("from here")
    with Sandbox.create() as sandbox:
        sandbox.files.write("data/test.txt", "Hello files")
        content = sandbox.files.read("data/test.txt")
        for file in sandbox.files.list("data"):
            print(file.name, file.size)
        sandbox.files.upload("local_file.txt", "remote/file.txt")
        sandbox.files.download("remote/file.txt", "downloaded.txt")
    assert content == "Hello files"
    assert capsys.readouterr().out == "test.txt 11\n"
    assert (here / "downloaded.txt").read_text() == "from here"


@needs(COMMANDS)
def test_command_execution(wall, capsys):
    """Command execution: one to its end, and a program with arguments whose lines are printed as they come."""
    with Sandbox.create() as sandbox:
        sandbox.files.write("listed", "")
        result = sandbox.run("ls -la")
        print(result.stdout)
        assert "listed" in capsys.readouterr().out
        for chunk in sandbox.stream(["python3", "-c", "print('hello')"]):
            print(chunk, end="")
        assert capsys.readouterr().out == "hello\n"
        process = sandbox.start(["python3", "-c", "print('started')"])
        assert "".join(chunk.text for chunk in process) == "started\n"
        assert process.exit_code == 0


@needs(COMMANDS, Capability.IMAGE)
def test_system_packages_come_with_an_image(wall, tmp_path):
    """Command execution, system packages: they are chosen with the image, since a sandbox is no administrator."""
    with Sandbox.create(image=small_image(tmp_path)) as sandbox:
        assert sandbox.run("tac /marker").exit_code == 127
    (tmp_path / "more").mkdir()
    with Sandbox.create(image=small_image(tmp_path / "more", ("/bin/sh", "/bin/cat", "/usr/bin/tac"))) as sandbox:
        assert sandbox.run("/usr/bin/tac /marker").stdout == "of the image\n"


@needs(CODE, Capability.SNAPSHOT, Capability.PACKAGES)
def test_snapshots_restore_files_packages_and_variables(wall, tmp_path, monkeypatch, capsys):
    """Snapshots: packages and a table are set up and kept by a name; a later sandbox has them at once."""
    wheels.make(tmp_path, "parity-frames", {"parity_frames.py": FRAMES})
    wheels.use_only(tmp_path, monkeypatch)
    with Sandbox.create(packages=["parity-frames"]) as sandbox:
        sandbox.run_code("import parity_frames as pf; df = pf.Frame({'a': [1, 2, 3]})")
        snapshot = sandbox.snapshot("my-setup")
        print(f"Snapshot created: {snapshot.name}")
    try:
        with Sandbox.create(snapshot="my-setup") as sandbox:
            result = sandbox.run_code("print(df)")
            print(result.stdout)
    finally:
        Snapshots().delete("my-setup")
    assert capsys.readouterr().out == "Snapshot created: my-setup\n   a\n0  1\n1  2\n2  3\n\n"


FRAMES = """
class Frame:
    def __init__(self, columns): self.columns = columns
    def __str__(self):
        (name, values), = self.columns.items()
        return "\\n".join(["   " + name, *("%d  %d" % row for row in enumerate(values))])
"""


@needs(CODE)
def test_streaming_output(wall, shared, capsys):
    """Streaming output: callbacks hear each line of a running cell, stdout and stderr apart."""
    result = shared.run_code(
        "import sys\nfor i in range(5): print(f'Step {i}')\nprint('careful', file=sys.stderr)",
        on_stdout=by_line(lambda line: print(f"[stdout] {line}")),
        on_stderr=by_line(lambda line: print(f"[stderr] {line}")),
    )
    lines = [f"[stdout] Step {number}\n" for number in range(5)]
    assert capsys.readouterr().out == "".join([*lines, "[stderr] careful\n"])
    assert result.stdout == "".join(f"Step {number}\n" for number in range(5))


@needs(CODE)
def test_output_is_heard_before_the_cell_ends(wall, shared):
    """Streaming output, live: what a cell prints is heard while it still runs."""
    shared.files.remove("heard", missing_ok=True)
    wait = "import os, time\nprint('begun')\nwhile not os.path.exists('heard'): time.sleep(0.01)\nprint('done')"
    result = shared.run_code(wait, on_stdout=lambda text: shared.files.write("heard", text), timeout=60)
    assert (result.success, result.stdout) == (True, "begun\ndone\n")


# How a sandbox is made


@needs(CODE, COMMANDS, LIMITS)
def test_the_arguments_of_create(wall):
    """Sandbox.create(): time, processors, memory, environment, network and tags."""
    with Sandbox.create(
        driver=wall,
        timeout=60,
        resources={"cpu": 2.0, "memory": "512M"},
        env={"MY_VAR": "value"},
        labels={"project": "demo"},
    ) as sandbox:
        assert sandbox.run_code("import os; os.environ['MY_VAR']").text == "'value'"
        assert sandbox.run("echo $MY_VAR").stdout == "value\n"
        spec = sandbox.info.spec
        assert (spec.timeout, spec.resources.cpu, spec.resources.memory) == (60.0, 2.0, 512 << 20)
        assert [info.id for info in Sandbox.list({"project": "demo"})] == [sandbox.id]


REACH = """
import socket
try:
    socket.create_connection({address!r}, timeout=5).close()
    reached = True
except (OSError, AttributeError):  # a Python for WebAssembly has half of the module
    reached = False
reached
"""


@needs(CODE, NONE)
def test_network_none(wall):
    """Network policies: none blocks everything that leads out, and is what one gets without asking."""
    with hosts.servers() as servers:
        for wishes in ({}, {"network": "none"}):
            with Sandbox.create(**wishes) as sandbox:
                assert sandbox.info.spec.network == "none"
                for address in filter(None, (servers.loopback, servers.outward)):
                    socket.create_connection(address, timeout=5).close()
                    assert sandbox.run_code(REACH.format(address=tuple(address))).text == "False"


@needs(CODE, ALL)
def test_network_all(wall):
    """Network policies: all lets connections out."""
    with hosts.servers() as servers, Sandbox.create(network="all") as sandbox:
        if servers.outward is not None:
            assert sandbox.run_code(REACH.format(address=tuple(servers.outward))).text == "True"
        assert sandbox.info.spec.network == "all"


@once
def test_network_allowlist_is_refused_and_not_ignored(wall):
    """Network policies: a list of hosts is not there yet, and says so before anything starts."""
    with pytest.raises(Unsupported, match="list of allowed hosts"):
        Sandbox.create(network=["localhost"])


# Execution result


@needs(CODE)
def test_execution_result(wall, shared):
    """Execution result: success, what was written, the main result, all results, and the error."""
    result = shared.run_code("print('hello')")
    assert (result.success, result.stdout, result.stderr, result.text, result.error) == (
        True,
        "hello\n",
        "",
        None,
        None,
    )
    result = shared.run_code("6 * 7")
    assert (result.text, [shown.text for shown in result.results]) == ("42", ["42"])
    result = shared.run_code("print('before')\n1 / 0")
    assert (result.success, result.stdout, result.text) == (False, "before\n", None)
    assert (result.error.name, result.error.value) == ("ZeroDivisionError", "division by zero")
    assert "1 / 0" in result.error.traceback


@needs(CODE)
def test_rich_results(wall, shared):
    """Execution result, rich results: HTML, Markdown and pictures beside the plain text."""
    shown = """
class Shown:
    def __repr__(self): return "plain"
    def _repr_html_(self): return "<b>bold</b>"
    def _repr_markdown_(self): return "**bold**"
    def _repr_png_(self): return bytes.fromhex("89504e470d0a1a0a")
Shown()
"""
    (result,) = shared.run_code(shown).results
    assert (result.text, result.html, result.markdown) == ("plain", "<b>bold</b>", "**bold**")
    assert result.png == bytes.fromhex("89504e470d0a1a0a")


@needs(CODE)
def test_callbacks_for_results_and_errors(wall, shared):
    """Streaming output, the other callbacks of the product: each result and the error as they come."""
    heard = []
    shared.run_code("1 + 1", on_result=lambda result: heard.append(result.text))
    shared.run_code("[][0]", on_error=lambda error: heard.append(error.name))
    assert heard == ["2", "IndexError"]


@needs(CODE)
def test_a_timeout_is_not_a_success(wall, shared):
    """Execution result: a cell whose time is over is no success."""
    result = shared.run_code("while True: pass", timeout=1)
    assert (result.success, result.timed_out) == (False, True)


# Core methods


@needs(CODE)
def test_reconnect_by_id(wall, elsewhere):
    """Core methods, from_id: another process goes on with the variables of the first."""
    with Sandbox.create() as sandbox:
        sandbox.run_code("x = 41")
        assert elsewhere("answer = Sandbox.connect(id).run_code('x + 1').text", id=sandbox.id) == "42"


def test_list(wall):
    """Core methods, list: all sandboxes with their walls and states."""
    with Sandbox.create() as one, Sandbox.create() as other:
        found = {info.id: (info.driver, info.status) for info in Sandbox.list()}
        assert found[one.id] == found[other.id] == (wall, "running")


@needs(CODE)
def test_set_timeout(wall):
    """Core methods, set_timeout: from then on code has that time, whoever runs it."""
    with Sandbox.create(timeout=60) as sandbox:
        sandbox.set_timeout(1)
        started = time.monotonic()
        assert sandbox.run_code("while True: pass").timed_out
        assert time.monotonic() - started < 30
        assert Sandbox.connect(sandbox.id).info.spec.timeout == 1


@needs(Capability.LIFETIME)
def test_set_lifetime(wall):
    """Core methods, set_timeout in its other sense: how long the sandbox itself may live."""
    with Sandbox.create(lifetime=60) as sandbox:
        sandbox.set_lifetime(600)
        assert sandbox.refresh().expires - time.time() > 500


def test_terminate(wall):
    """Core methods, terminate and kill: it is gone, for everybody, and a second time does no harm."""
    sandbox = Sandbox.create()
    sandbox.destroy()
    sandbox.destroy()
    with pytest.raises(SandboxGone):
        sandbox.files.list()
    with pytest.raises(SandboxNotFound):
        Sandbox.connect(sandbox.id)


@needs(CODE)
def test_contexts_have_variables_of_their_own(wall):
    """Context management: state is kept in each context, and no context sees another's."""
    with Sandbox.create() as sandbox:
        sandbox.contexts.create("other")
        sandbox.run_code("x = 'main'")
        sandbox.run_code("x = 'other'", context="other")
        assert sandbox.run_code("x").text == "'main'"
        assert sandbox.run_code("x", context="other").text == "'other'"
        assert {info.name for info in sandbox.contexts.list()} == {"main", "other"}
        sandbox.contexts.restart("other")
        assert sandbox.run_code("x", context="other").error.name == "NameError"
        sandbox.contexts.delete("other")
        assert [info.name for info in sandbox.contexts.list()] == ["main"]


@needs(CODE)
def test_variables(wall, shared):
    """Of the product: variables are read and set from outside."""
    shared.variables.set("numbers", [1, 2, 3])
    shared.run_code("total = sum(numbers)")
    assert shared.variables.get("total") == 6


@needs(CODE, Capability.PACKAGES)
def test_packages(wall, tmp_path, monkeypatch):
    """Snapshots and more: packages are there for code, installed once."""
    wheels.make(tmp_path, "parity-pack", {"parity_pack.py": "WORD = 'packed'\n"})
    wheels.use_only(tmp_path, monkeypatch)
    with Sandbox.create(packages=["parity-pack"]) as sandbox:
        assert sandbox.run_code("import parity_pack; parity_pack.WORD").text == "'packed'"


@needs(CODE)
def test_interrupt(wall, shared):
    """Of the product: a running cell is interrupted, and its variables stay."""
    shared.run_code("kept = 'still there'")
    begun = threading.Event()

    def interrupt():
        begun.wait(30)
        while not shared.interrupt():
            time.sleep(0.01)

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = shared.run_code("print('begun')\nwhile True: pass", on_stdout=lambda text: begun.set(), timeout=60)
    thread.join()
    assert (result.success, result.timed_out, result.error.name) == (False, False, "KeyboardInterrupt")
    assert shared.run_code("kept").text == "'still there'"


@needs(CODE)
def test_tool_calls_from_inside(wall):
    """Of the product: code inside calls a function of the host by its name."""
    with Sandbox.create(tools={"lookup": {"answer": 42}.get}) as sandbox:
        assert sandbox.run_code("lookup('answer') + 1").text == "43"


@needs(CODE)
def test_cli_repl(wall, cli):
    """Of the product: a prompt for code that keeps its state, here fed by a pipe."""
    assert cli("repl", input="x = 41\nprint(x + 1)\n") == (0, "42\n", "")


# Configuration


@needs(CODE, COMMANDS, LIMITS)
def test_configuration_object(wall):
    """SandboxConfig: one object with all of it, for as many sandboxes as one likes."""
    config = {
        "timeout": 30.0,
        "resources": Resources(memory=1 << 30, cpu=2.0),
        "workdir": "/workspace",
        "env": {"DEBUG": "1"},
        "lifetime": 3600,
    }
    with Sandbox.create(**config) as sandbox:
        spec = sandbox.info.spec
        assert (spec.timeout, spec.resources.memory, spec.resources.cpu) == (30.0, 1 << 30, 2.0)
        assert (spec.workdir, spec.lifetime) == ("/workspace", 3600.0)
        assert sandbox.run("echo $DEBUG; basename $PWD").stdout == "1\nworkspace\n"
