"""What a WebAssembly instance may ask of its host: the functions, asked by an instance that is all malice."""

from __future__ import annotations

import errno
import os
import random
import struct

import pytest

wasmtime = pytest.importorskip("wasmtime")

from atoll.drivers import wasm_abi as abi  # noqa: E402
from atoll.drivers.wasm_engine import Instance, compile_file, load, make_engine  # noqa: E402
from atoll.drivers.wasm_runtime import CRANELIFT, WINCH  # noqa: E402
from atoll.drivers.wasm_table import MOST_OPEN, Table  # noqa: E402
from atoll.drivers.wasm_wasi import PORTAL, Wasi  # noqa: E402

# i is 32 bits wide, l is 64.
FUNCTIONS = {
    "args_get": "ii", "args_sizes_get": "ii", "environ_get": "ii", "environ_sizes_get": "ii", "clock_res_get": "ii",
    "clock_time_get": "ili", "fd_advise": "illi", "fd_allocate": "ill", "fd_close": "i", "fd_datasync": "i",
    "fd_fdstat_get": "ii", "fd_fdstat_set_flags": "ii", "fd_filestat_get": "ii", "fd_filestat_set_size": "il",
    "fd_filestat_set_times": "illi", "fd_pread": "iiili", "fd_prestat_get": "ii", "fd_prestat_dir_name": "iii",
    "fd_pwrite": "iiili", "fd_read": "iiii", "fd_readdir": "iiili", "fd_seek": "ilii", "fd_sync": "i", "fd_tell": "ii",
    "fd_write": "iiii", "path_create_directory": "iii", "path_filestat_get": "iiiii",
    "path_filestat_set_times": "iiiilli", "path_link": "iiiiiii", "path_open": "iiiiillii", "path_readlink": "iiiiii",
    "path_remove_directory": "iii", "path_rename": "iiiiii", "path_symlink": "iiiii", "path_unlink_file": "iii",
    "poll_oneoff": "iiii", "random_get": "ii", "sched_yield": "", "sock_accept": "iii", "sock_shutdown": "ii",
    "fd_renumber": "ii",
}  # fmt: skip
_TYPES = {"i": "i32", "l": "i64"}
PAGES = 2


def module():
    """One function for each of WASI's, which hands its arguments on."""
    imports, wrappers = [], []
    for name, kinds in FUNCTIONS.items():
        params = " ".join(f"(param {_TYPES[kind]})" for kind in kinds)
        imports.append(f'(import "wasi_snapshot_preview1" "{name}" (func ${name} {params} (result i32)))')
        given = " ".join(f"(local.get {number})" for number in range(len(kinds)))
        wrappers.append(f'(func (export "{name}") {params} (result i32) (call ${name} {given}))')
    return f'(module {" ".join(imports)} (memory (export "memory") {PAGES}) {" ".join(wrappers)})'


class Guest:
    def __init__(self, root, compiler):
        self.root = root
        table = Table()
        table.begin_with("/", writable=True)
        table.begin_with("/lib", writable=False)
        table.begin_with("/nothing", writable=True)
        (root / "shown").mkdir()
        (root / "own").mkdir()
        (root / "shown" / "file").write_text("to be read")
        table.give("/", os.open(root / "own", os.O_RDONLY | os.O_DIRECTORY))
        table.give("/lib", os.open(root / "shown", os.O_RDONLY | os.O_DIRECTORY))
        self.table = table
        self.said = []
        wasi = Wasi(table, ["python"])
        wasi.hears, wasi.says = self.said.append, lambda size: b"x" * min(size, 3)
        engine = make_engine(compiler)
        self.instance = Instance(engine, wasmtime.Module(engine, module()), wasi, lambda: None)
        self.memory = self.instance.memory

    def ask(self, name, *arguments):
        signed = [
            value - (1 << 32) if kind == "i" and value >= 1 << 31 else value - (1 << 64) if value >= 1 << 63 else value
            for kind, value in zip(FUNCTIONS[name], arguments, strict=True)
        ]
        return self.instance._exports[name](self.instance._store, *signed)

    def text(self, at, text):
        self.memory.write(at, text)
        return at, len(text)

    def open(self, path, how=0, rights=abi.READ, directory=3):
        """The number of the opened file, or minus the error."""
        failed = self.ask("path_open", directory, abi.FOLLOW, *self.text(0, path), how, rights, 0, 0, 4096)
        return -failed if failed else struct.unpack("<I", self.memory.read(4096, 4))[0]

    def close(self):
        for name in ("/", "/lib"):
            self.table.give(name, -1)
        for number in range(3, MOST_OPEN + 10):
            self.ask("fd_close", number)


@pytest.fixture(scope="module", params=[CRANELIFT, WINCH])
def guest(tmp_path_factory, request):
    made = Guest(tmp_path_factory.mktemp("wasi"), request.param)
    yield made
    made.close()


def number(name):
    return abi.number_of(OSError(getattr(errno, name), ""))


def test_a_file_is_written_and_read(guest):
    fd = guest.open(b"note", abi.CREATE, abi.READ | abi.WRITE)
    at, size = guest.text(100, b"hello")
    guest.memory.write(200, abi.IOVEC.pack(at, size))
    assert guest.ask("fd_write", fd, 200, 1, 300) == 0
    assert guest.ask("fd_seek", fd, 0, 0, 300) == 0
    guest.memory.write(200, abi.IOVEC.pack(1000, 100))
    assert guest.ask("fd_read", fd, 200, 1, 300) == 0
    assert guest.memory.read(1000, 5) == b"hello"
    assert guest.ask("fd_close", fd) == 0
    assert guest.ask("fd_close", fd) == number("EBADF")
    assert (guest.root / "own" / "note").read_bytes() == b"hello"


@pytest.mark.parametrize(
    "path", [b"../shown/file", b"/../../shown/file", b"a/../../shown/file", b"..", b"\0", b"x" * 5000]
)
def test_no_path_leads_out(guest, path):
    found = guest.open(path)
    if found > 0:  # ".." of the root is the root
        guest.memory.write(200, b"\0" * 8)
        assert path == b".."
        assert guest.ask("fd_close", found) == 0
    else:
        assert -found in (number("ENOENT"), number("EINVAL"), number("ENAMETOOLONG"))


def test_a_directory_that_is_read_only_is(guest):
    shown = guest.open(b"file", directory=4)
    assert shown > 0
    guest.memory.write(200, abi.IOVEC.pack(0, 4))
    assert guest.ask("fd_write", shown, 200, 1, 300) == number("EBADF")
    assert guest.ask("fd_filestat_set_size", shown, 0) == number("EBADF")
    guest.ask("fd_close", shown)
    for how, rights in ((0, abi.WRITE), (abi.CREATE, abi.READ), (abi.TRUNCATE, abi.READ)):
        assert guest.open(b"file", how, rights, directory=4) == -number("EROFS")
    assert guest.ask("path_unlink_file", 4, *guest.text(0, b"file")) == number("EROFS")
    assert guest.ask("path_rename", 4, *guest.text(0, b"file"), 3, *guest.text(50, b"taken")) == number("EROFS")
    assert guest.ask("path_link", 4, 0, *guest.text(0, b"file"), 3, *guest.text(50, b"linked")) == number("EROFS")
    assert (guest.root / "shown" / "file").read_text() == "to be read"


def test_a_directory_that_was_taken_away_is_not_there(guest):
    assert guest.open(b"anything", directory=5) == -number("ENOENT")


def test_pipes_and_devices_are_not_opened(guest):
    os.mkfifo(guest.root / "own" / "pipe")
    assert guest.open(b"pipe") == -number("EPERM")
    assert guest.open(b"pipe", 0, abi.WRITE) < 0
    os.unlink(guest.root / "own" / "pipe")


def test_dev_null_takes_all_and_gives_nothing(guest):
    fd = guest.open(b"dev/null", 0, abi.READ | abi.WRITE)
    guest.memory.write(200, abi.IOVEC.pack(0, 1000))
    assert guest.ask("fd_write", fd, 200, 1, 300) == 0
    assert struct.unpack("<I", guest.memory.read(300, 4)) == (1000,)
    assert guest.ask("fd_read", fd, 200, 1, 300) == 0
    assert struct.unpack("<I", guest.memory.read(300, 4)) == (0,)
    assert guest.ask("fd_close", fd) == 0
    assert guest.ask("fd_close", fd) == number("EBADF")


def test_so_many_files_may_be_open_and_no_more(guest):
    opened = []
    while (fd := guest.open(b"many", abi.CREATE, abi.WRITE)) > 0:
        opened.append(fd)
    assert fd == -number("EMFILE")
    assert 100 < len(opened) < MOST_OPEN
    for each in opened:
        assert guest.ask("fd_close", each) == 0
    assert guest.open(b"many") > 0


def test_addresses_beyond_its_memory_are_errors(guest):
    end = PAGES << 16
    for at in (end - 3, end, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        assert guest.ask("clock_time_get", 0, 0, at) == number("EFAULT")
        assert guest.ask("random_get", at, 100) == number("EFAULT")
        assert guest.ask("fd_filestat_get", 3, at) == number("EFAULT")
        assert guest.ask("fd_write", PORTAL, at, 1, 0) == number("EFAULT")
        assert guest.ask("path_create_directory", 3, at, 100) == number("EFAULT")
    guest.memory.write(200, abi.IOVEC.pack(end - 1, 2))
    assert guest.ask("fd_write", PORTAL, 200, 1, 0) == number("EFAULT")
    assert guest.ask("clock_time_get", 0, 0, end - 8) == 0


def test_what_wasi_has_and_this_host_has_not_is_said_to_be_missing(guest):
    assert guest.ask("fd_renumber", 3, 4) == abi.NOSYS
    assert guest.ask("sock_accept", 3, 0, 0) == number("ENOTSUP")


INTERESTING = (0, 1, 2, 3, 4, 5, 7, 8, 100, 101, 4096, 65535, 65536, 131071, 131072, 1 << 31, (1 << 32) - 1)
WIDE = (*INTERESTING, (1 << 32), (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


def test_no_argument_whatsoever_harms_the_host(guest):
    """A thousand of each: the answer is an error or not, and all that is outside is as it was."""
    chance = random.Random(5)
    names = [
        name for name in FUNCTIONS if name not in ("poll_oneoff", "fd_allocate", "fd_filestat_set_size", "random_get")
    ]
    for _ in range(200):
        guest.memory.write(0, chance.randbytes(512))
        for name in names:
            arguments = [chance.choice(INTERESTING if kind == "i" else WIDE) for kind in FUNCTIONS[name]]
            if name == "fd_write" and arguments[0] in (1, 2):
                continue  # that is this test's own output
            assert 0 <= guest.ask(name, *arguments) < 77, (name, arguments)
    assert sorted(os.listdir(guest.root)) == ["own", "shown"]
    assert os.listdir(guest.root / "shown") == ["file"]
    assert (guest.root / "shown" / "file").read_text() == "to be read"


def test_a_wait_ends_in_time_and_with_what_wakes_it(guest):
    soon = abi.SUBSCRIPTION.pack(7, 0, 1, 1_000_000, 0, 0)
    guest.memory.write(0, soon)
    assert guest.ask("poll_oneoff", 0, 1000, 1, 2000) == 0
    assert abi.EVENT.unpack(guest.memory.read(1000, abi.EVENT.size))[0] == 7
    assert guest.ask("poll_oneoff", 0, 1000, 0, 2000) == number("EINVAL")
    assert guest.ask("poll_oneoff", 0, 1000, 5000, 2000) == number("EINVAL")


LOOP = """(module (memory (export "memory") 1)
  (func (export "loop") (loop $again (br_if $again (i32.eqz (i32.load (i32.const 0)))))))"""
OUTSIDE = """(module (memory (export "memory") 1) (tag $t (param i32))
  (func (export "read") (param i32) (result i32) (i32.load offset=4 (local.get 0)))
  (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
  (func $deep (export "deep") (call $deep))
  (func (export "thrown") (param i32) (result i32)
    (block $caught (result i32) (try_table (catch $t $caught) (throw $t (local.get 0))) (i32.const 0))))"""


def instance_of(text, compiler, on_epoch=lambda: None):
    engine = make_engine(compiler)
    made = Instance(engine, wasmtime.Module(engine, text), Wasi(Table(), ["python"]), on_epoch)
    return made, lambda name, *arguments: made._exports[name](made._store, *arguments)


@pytest.mark.parametrize("compiler", [CRANELIFT, WINCH])
def test_what_computes_is_brought_to_the_host(compiler):
    """The loop ends when the host has written into its memory."""
    made, call = instance_of(LOOP, compiler, lambda: made.memory.write(0, b"\1"))
    made.stir()
    call("loop")
    assert made.memory.read(0, 1) == b"\1"


@pytest.mark.parametrize("compiler", [CRANELIFT, WINCH])
def test_an_instance_stays_in_its_memory_and_on_its_stack(compiler):
    made, call = instance_of(OUTSIDE, compiler)
    made.limit_memory(2 << 16)
    assert call("read", 0) == 0
    for at in ((1 << 16) - 7, 1 << 16, (1 << 31) - 1, -(1 << 31), -1, -4):
        with pytest.raises(wasmtime.Trap, match="out of bounds"):
            call("read", at)
    assert (call("grow", 1), call("grow", 1)) == (1, -1)
    with pytest.raises(wasmtime.Trap, match="stack"):
        call("deep")
    assert call("thrown", 42) == 42


@pytest.mark.parametrize(("by", "for_"), [(CRANELIFT, WINCH), (WINCH, CRANELIFT)])
def test_code_of_the_one_compiler_is_not_loaded_as_that_of_the_other(tmp_path, by, for_):
    (tmp_path / "module").write_bytes(wasmtime.wat2wasm(OUTSIDE))
    compile_file(str(tmp_path / "module"), str(tmp_path / "code"), by)
    load(make_engine(by), str(tmp_path / "code"))
    with pytest.raises(wasmtime.WasmtimeError):
        load(make_engine(for_), str(tmp_path / "code"))
