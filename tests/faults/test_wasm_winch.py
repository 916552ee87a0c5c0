"""A wasm sandbox by Winch, for who has asked for it, in earnest."""

from __future__ import annotations

import fcntl
import os
import shutil

import pytest

from atoll import Sandbox
from atoll.drivers import wasm_compiler, wasm_runtime
from atoll.drivers.wasm_runtime import WINCH

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def winch_first(tmp_path, monkeypatch):
    """A cache of its own for who has asked for Winch, while somebody else compiles with Cranelift."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(wasm_compiler.VARIABLE, wasm_compiler.WINCH_FIRST)
    wasm_runtime.find.cache_clear()
    lock = wasm_runtime.open_lock(wasm_runtime.find())
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield
    os.close(lock)
    wasm_runtime.find.cache_clear()


@pytest.fixture(scope="module")
def usual():
    """The compiled code of this machine's own cache."""
    runtime = wasm_runtime.find()
    wasm_runtime.ensure(runtime)
    return runtime


@pytest.fixture(scope="module")
def by_winch(usual, tmp_path_factory):
    """Compiled by Winch, in earnest: ten seconds of two processors, 3 GB of memory and 450 MB of disk."""
    if os.uname().machine == "x86_64" and "avx2" not in wasm_runtime._features("x86_64"):
        pytest.skip("Winch needs AVX2")
    place = tmp_path_factory.mktemp("winch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place))
        wasm_runtime.find.cache_clear()
        runtime = wasm_runtime.find(WINCH)
        wasm_runtime.ensure(runtime)
    wasm_runtime.find.cache_clear()
    yield runtime
    shutil.rmtree(place)


def test_a_sandbox_says_that_it_has_winchs_code_and_the_next_has_cranelifts(by_winch, usual, winch_first):
    shutil.copytree(by_winch.home, wasm_runtime.find(WINCH).home, copy_function=os.link)
    said = []
    with Sandbox.create("wasm", lifetime=600, on_progress=said.append) as first:
        assert (said, first.info.walls[0]) == ([], "WebAssembly by Winch")
        first.run_code("kept = 1")
        assert first.run_code("try: [].pop()\nexcept IndexError as e: print(e)").stdout == "pop from empty list\n"
        assert first.run_code("import numpy; int(numpy.arange(5).sum())").text == "10"
        assert first.run_code("def f(n): return f(n + 1)\nf(0)").error.name == "RecursionError"
        assert first.run_code("bytearray(1 << 30)").error.name == "MemoryError"
        assert not first.run_code("while True: pass", timeout=0.5).success
        assert first.run_code("kept").text == "1"
        shutil.copytree(usual.home, f"{wasm_runtime.find().home}.draft")
        os.rename(f"{wasm_runtime.find().home}.draft", wasm_runtime.find().home)
        with Sandbox.create("wasm", lifetime=600) as second:
            assert second.info.walls[0] == "WebAssembly"
            assert second.run_code("1 + 1").text == "2"
        assert first.run_code("kept += 1; kept", context="another").error.name == "NameError"
        assert first.run_code("kept").text == "1"
