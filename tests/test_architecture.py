"""The shape of the source: which way imports point, what stays pure, how long a module is, what an import costs."""

from __future__ import annotations

import ast
import builtins
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

import atoll
from atoll import errors, results, types

ROOT = pathlib.Path(__file__).parent.parent
SOURCE = ROOT / "src" / "atoll"

# A part may import from lower layers and from itself. A new part of src/atoll needs a place here.
LAYERS = (
    {"hints"},
    {"results"},
    {"types"},
    {"errors"},
    {"policy", "wire", "procid", "schema"},
    {"io", "home", "guest", "http"},
    {"driver", "review"},
    {"engine", "registry", "store"},
    {"codebases", "packages"},
    {"drivers"},
    {"client"},
    {"sandbox"},
    {"sync", "aio"},
    {"config", "models"},
    {"agent", "validation"},
    {"mcp"},
    {"cli"},
    {"testing"},
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

# What runs inside the wall sees only itself and the wire format.
GUEST_MAY_IMPORT = ("guest", "wire")

# The pure parts touch no file, no socket, no process and no clock. `os` is there for os.path and os.fspath.
PURE_PARTS = ("policy", "wire", "types", "results", "errors")
PURE_MODULES = {
    "__future__", "binascii", "collections", "collections.abc", "enum", "errno", "fnmatch", "json", "math", "os", "re",
    "stat", "struct", "typing",
}  # fmt: skip
PURE_OS = {"fspath", "PathLike", "path", "fsencode", "fsdecode"}
PURE_OS_PATH = {"abspath", "isabs", "join", "normpath", "split", "basename", "dirname", "relpath"}

HEAVY = {
    "anyio", "asyncio", "click", "concurrent.futures", "ctypes", "dataclasses", "inspect", "logging", "pathlib",
    "rich", "shutil", "sqlite3", "subprocess", "tempfile", "trio",
}  # fmt: skip

LONGEST_MODULE = 600


def modules():
    return sorted(SOURCE.rglob("*.py"))


def name_of(file):
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module):
    """`atoll.engine.zygote` belongs to the part `engine`; the package itself to none."""
    return module.split(".")[1] if "." in module else ""


def imports_of(file):
    """Every module that a file names in an import, anywhere in it, as absolute names."""
    package = name_of(file) if file.name == "__init__.py" else name_of(file).rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
                base = f"{above}.{base}" if base else above
            if base == "atoll":
                # The version is of no part: it is a line of the package itself.
                yield from (f"atoll.{alias.name}" for alias in node.names if alias.name != "__version__")
            else:
                yield base


def modules_of(*parts):
    """The files and names of the modules of these parts, or of every module that has a part."""
    chosen = [(file, name_of(file)) for file in modules() if part_of(name_of(file)) in (parts or RANK)]
    assert chosen, "a rule that looks at nothing cannot fail"
    return chosen


def test_the_reader_of_imports_sees_every_form(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path / "atoll")
    file = tmp_path / "atoll" / "engine" / "x.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "import atoll.cli\nfrom atoll import sync\nfrom .. import sandbox\nfrom ..wire.frames import Frame\n"
        "from . import y\nfrom .z import w\ndef f():\n    import json\n"
    )
    assert set(imports_of(file)) == {
        "atoll.cli", "atoll.sync", "atoll.sandbox", "atoll.wire.frames", "atoll.engine", "atoll.engine.z", "json",
    }  # fmt: skip


def test_every_part_has_a_layer():
    found = {part_of(name_of(file)) for file in modules()} - {"", "__main__"}
    assert found <= RANK.keys(), "give the new part a place in LAYERS"


def test_imports_point_down():
    faults = []
    for file, name in modules_of():
        part = part_of(name)
        # At run time the errors know no type: it is for type checkers only.
        exempt = {"", part, "types" if part == "errors" else part}
        for module in imports_of(file):
            is_ours = module.split(".")[0] == "atoll" and part_of(module) not in exempt
            if is_ours and RANK[part_of(module)] >= RANK[part]:
                faults.append(f"{name} imports {module}, which lies no lower")
    assert not faults


def test_the_guest_imports_only_the_standard_library_and_the_wire():
    faults = []
    for file, name in modules_of(*GUEST_MAY_IMPORT):
        for module in imports_of(file):
            top = module.split(".")[0]
            allowed = part_of(module) in GUEST_MAY_IMPORT if top == "atoll" else top in sys.stdlib_module_names
            if not allowed:
                faults.append(f"{name} imports {module}")
    assert not faults


def wall_of(module):
    """`atoll.drivers.jail_talk` belongs to the wall `jail`."""
    return module.split(".")[2].split("_")[0]


def test_drivers_do_not_import_each_other():
    drivers = [(file, name) for file, name in modules_of("drivers") if name != "atoll.drivers"]
    faults = [
        f"{name} imports {module}"
        for file, name in drivers
        for module in imports_of(file)
        if module.startswith("atoll.drivers.") and wall_of(module) != wall_of(name)
    ]
    assert not faults


def io_of(file):
    """What a module does beyond computing, as far as it can be read."""
    outside = {module for module in imports_of(file) if not module.startswith("atoll")}
    yield from (f"imports {module}" for module in sorted(outside - PURE_MODULES))
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in {"open", "print", "input", "exec", "eval"}:
                yield f"calls {node.func.id}"
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if (owner == "os" and node.attr not in PURE_OS) or (owner == "os.path" and node.attr not in PURE_OS_PATH):
                yield f"uses {owner}.{node.attr}"


def test_the_pure_parts_do_no_io():
    faults = [f"{name} {what}" for file, name in modules_of(*PURE_PARTS) for what in io_of(file)]
    assert not faults


def test_what_does_io_is_seen():
    file = SOURCE / "home.py"
    assert {"uses os.environ"} <= set(io_of(file)), "the control"


def test_no_module_is_too_long():
    lengths = {name: len(file.read_text().splitlines()) for file, name in modules_of()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


def test_guest_and_wire_parse_as_python_3_8():
    faults = []
    for file, name in modules_of(*GUEST_MAY_IMPORT):
        try:
            ast.parse(file.read_bytes(), feature_version=(3, 8))
        except SyntaxError as error:
            faults.append(f"{name}: {error}")
    assert not faults


def loaded_by(statement):
    code = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_atoll_loads_nothing_heavy():
    assert loaded_by("import atoll") & HEAVY == set()
    assert loaded_by("import atoll, dataclasses") & HEAVY == {"dataclasses", "inspect"}, "the control must see them"


def test_importing_atoll_loads_nothing_but_itself():
    assert {name for name in loaded_by("import atoll") if name.startswith("atoll")} == {"atoll"}


@pytest.mark.parametrize("module", ["sync", "drivers.jail", "policy.spec"])
def test_what_every_run_imports_loads_nothing_heavy_but_the_registry(module):
    assert loaded_by(f"import atoll.{module}") & HEAVY <= {"sqlite3"}


def public_classes(module):
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }


def test_the_public_names_are_the_facades_the_errors_and_the_types():
    facades = {
        "AsyncCodebases",
        "AsyncSandbox",
        "AsyncSnapshots",
        "Codebases",
        "Sandbox",
        "Snapshots",
        "Tools",
        "__version__",
        "by_bytes",
        "by_line",
        "run",
        "run_code",
        "run_many",
    }
    presets = {"extend_preset", "get_preset", "list_presets", "register_preset"}
    values = public_classes(types).keys() | public_classes(results).keys()
    assert set(atoll.__all__) == facades | presets | public_classes(errors).keys() | values
    assert len(atoll.__all__) == len(set(atoll.__all__))
    assert set(atoll.__all__) <= set(dir(atoll))


def test_every_public_name_can_be_had():
    assert [name for name in atoll.__all__ if getattr(atoll, name, None) is None] == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'atoll' has no attribute 'sandboxx'"):
        atoll.sandboxx  # noqa: B018 - the access is the test


def test_errors_and_types_are_the_same_objects_wherever_they_are_had():
    for module in (errors, types):
        for name, value in public_classes(module).items():
            assert getattr(atoll, name) is value


def drawn_tree():
    """(name, parent) of every line of the tree in the docstring of errors.py."""
    path: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"((?:│   |    )*(?:[├└]── )?)([A-Z]\w+)(?:\s{2,}.*)?$", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        del path[depth:]
        yield match[2], path[-1] if path else None
        path.append(match[2])


def test_the_tree_drawn_in_errors_is_the_tree_of_its_classes():
    drawn = dict(drawn_tree())
    classes = public_classes(errors)
    real = {
        name: next((base.__name__ for base in value.__bases__ if base.__name__ in classes), None)
        for name, value in classes.items()
    }
    assert drawn == real


def test_the_builtins_that_the_tree_promises_are_bases():
    promised = re.findall(r"(\w+) +also (\w+)", errors.__doc__)
    assert ("InvalidInput", "ValueError") in promised
    for name, builtin in promised:
        assert issubclass(getattr(errors, name), getattr(builtins, builtin)), name


def test_every_error_has_a_code_of_its_own():
    codes = [value.code for value in public_classes(errors).values()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", code) for code in codes)
