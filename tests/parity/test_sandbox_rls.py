"""003, the page of sandbox-rls: path permissions, codebases, sessions and errors by kind."""

from __future__ import annotations

import hashlib
import textwrap
import time

import pytest

from atoll import (
    AsyncCodebases,
    AsyncSandbox,
    AtollError,
    Busy,
    Capability,
    CodebaseNotFound,
    Codebases,
    CommandFailed,
    CommandTimedOut,
    FileDenied,
    FileMissing,
    InvalidInput,
    PathRule,
    Permissions,
    Resources,
    Sandbox,
    SandboxError,
    SandboxGone,
    SandboxNotFound,
    SessionEnded,
    WallUnavailable,
    extend_preset,
    get_preset,
    list_presets,
    register_preset,
)
from atoll.testing import wheels
from atoll.testing.needs import needs

from .images import small_image
from .walls import once

COMMANDS, LIMITS, STOP = Capability.COMMANDS, Capability.LIMITS, Capability.STOP
RULES, STORED = (Capability.COMMANDS, Capability.PERMISSIONS), (Capability.COMMANDS, Capability.REVIEW)


@pytest.fixture
def project(here):
    """The directory ./my-project with code, documents, secrets and a place for output."""
    files = {
        "main.py": "print('main of the project')\n",
        "docs/guide.md": "the guide\n",
        "config.yaml": "debug: true\n",
        "output/.keep": "",
        "tmp/.keep": "",
        ".env": "TOKEN=secret\n",
        "server.key": "secret\n",
        "custom/notes.txt": "notes\n",
    }
    for name, text in files.items():
        path = here / "my-project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return here / "my-project"


# Quick start


@needs(*RULES)
def test_a_sandbox_from_a_local_directory(wall, project, capsys):
    """Quick start: one line over a directory, with the preset agent-safe, and everything is cleaned up at the end."""
    stored = Codebases().list()
    with Sandbox.from_local("./my-project") as sandbox:
        result = sandbox.run("python3 main.py")
        print(result.stdout)
        assert sandbox.info.spec.permissions == get_preset("agent-safe")
    assert capsys.readouterr().out == "main of the project\n\n"
    assert sandbox.refresh().status == "gone"
    assert Codebases().list() == stored


@needs(*RULES, Capability.PACKAGES, LIMITS)
def test_a_named_runtime_with_limits_and_a_session(wall, project, capsys):
    """A runtime with resource limits: in a session change the directory, install requirements, run the tests."""
    wheels.make(project, "parity-suite", {"parity_suite.py": "print('1 passed')\n"})
    (project / "requirements.txt").write_text("parity-suite\n")
    with (
        Sandbox.from_local(
            "./my-project",
            preset="agent-safe",
            driver=wall,
            resources=Resources(memory=512 << 20, pids=100),
            env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/workspace", "PIP_QUIET": "1"},
        ) as sandbox,
        sandbox.session() as session,
    ):
        session.run("cd /workspace")
        session.run("pip install -r requirements.txt", check=True)
        result = session.run("python3 -m parity_suite")
        print(result.stdout)
        assert (sandbox.info.spec.resources.memory, sandbox.info.spec.resources.pids) == (512 << 20, 100)
    assert capsys.readouterr().out == "1 passed\n\n"


@needs(*RULES, Capability.IMAGE)
def test_rules_hold_in_another_image(wall, project, tmp_path):
    """A runtime with an image: the same rules over another root file system."""
    with Sandbox.from_local("./my-project", image=small_image(tmp_path)) as sandbox:
        assert sandbox.run("cat /marker config.yaml").stdout == "of the image\ndebug: true\n"
        assert sandbox.run("cat .env").exit_code != 0


# Presets


@needs(*RULES)
@pytest.mark.parametrize(
    ("preset", "shown", "written"),
    [
        ("agent-safe", {"main.py": True, ".env": None, "server.key": None}, {"output/new": True, "main.py": False}),
        ("read-only", {"main.py": True, ".env": True}, {"output/new": False, "main.py": False}),
        ("full-access", {"main.py": True, ".env": True}, {"output/new": True, "main.py": True, ".env": True}),
        ("development", {"main.py": True, ".env": None, "server.key": None}, {"main.py": True, "docs/new": True}),
        ("view-only", {"main.py": False, "config.yaml": False}, {"output/new": False}),
    ],
)
def test_presets(wall, project, preset, shown, written):
    """Permission presets: what each shows, hides and lets be written. None is hidden, False is seen by name only."""
    with Sandbox.from_local("./my-project", preset=preset) as sandbox:
        for path, content in shown.items():
            assert sandbox.run(["ls", path]).success == (content is not None)
            assert sandbox.run(["cat", path]).success == bool(content)
        for path, allowed in written.items():
            assert sandbox.run(["sh", "-c", 'echo new > "$0"', path]).success == allowed
    assert (project / "main.py").read_text() == "print('main of the project')\n"


def test_presets_are_listed(capsys):
    """Permission presets: the five names."""
    print(sorted(list_presets()[:5]))
    assert capsys.readouterr().out == "['agent-safe', 'development', 'full-access', 'read-only', 'view-only']\n"


@needs(*RULES)
def test_a_preset_is_extended(wall, project):
    """Permission presets: rules of one's own on top of a preset."""
    rules = extend_preset("agent-safe", additions=[{"pattern": "/custom/**", "level": "write"}])
    with Sandbox.from_local("./my-project", rules) as sandbox:
        assert sandbox.run("echo more >> custom/notes.txt").success
        assert not sandbox.run("echo more >> main.py").success
        assert sandbox.run("cat .env").exit_code != 0
    shown = extend_preset("agent-safe", overrides=[PathRule(".env", "read")])
    with Sandbox.from_local("./my-project", shown) as sandbox:
        assert sandbox.run("cat .env").stdout == "TOKEN=secret\n"


def test_a_preset_as_rules_as_dictionaries_and_registered():
    """API reference, presets: get one as rules and as dictionaries, and make one known by a name."""
    preset = get_preset("read-only")
    assert isinstance(preset, Permissions)
    assert preset.rules == (PathRule("**", "read"),)
    assert [rule._asdict() for rule in preset.rules] == [
        {"pattern": "**", "level": "read", "kind": "glob", "priority": 0}
    ]
    register_preset("parity-docs", [{"pattern": "/docs/**", "level": "write"}])
    assert "parity-docs" in list_presets()
    assert get_preset("parity-docs").rules == (PathRule("/docs/**", "write"),)


# Errors

MORE_TIME = "A longer timeout= (-t) gives it more time."


@needs(*RULES)
@pytest.mark.parametrize(
    ("program", "seconds", "told"),
    [
        (
            "import time; time.sleep(100)",
            1,
            f"timed out: The command ran out of time after 1 s: python3 main.py\n{MORE_TIME}",
        ),
        ("import sys; sys.exit('no luck')", 30, "failed with 1: no luck\n"),
        ("print('fine')", 30, "fine\n"),
    ],
    ids=["timed out", "failed", "fine"],
)
def test_errors_are_told_apart(wall, project, program, seconds, told, capsys):
    """Error handling: the time was over, the command failed, or it is the sandbox; each an error of its own."""
    (project / "main.py").write_text(program)
    try:
        with Sandbox.from_local("./my-project") as sandbox:
            print(sandbox.run("python3 main.py", timeout=seconds, check=True).stdout, end="")
    except CommandTimedOut as error:
        print(f"timed out: {error}", end="")
    except CommandFailed as error:
        print(f"failed with {error.exit_code}: {error.stderr}", end="")
    except SandboxError as error:
        print(f"sandbox error: {error}", end="")
    assert capsys.readouterr().out == told


def test_every_error_has_one_base():
    """API reference, exceptions: one base for all, and one for those of sandboxes."""
    assert issubclass(CommandTimedOut, CommandFailed)
    for error in (SandboxNotFound, SandboxGone, CodebaseNotFound, SessionEnded, Busy):
        assert issubclass(error, SandboxError)
    for error in (SandboxError, CommandFailed, FileDenied, WallUnavailable, InvalidInput):
        assert issubclass(error, AtollError)
        assert error.code


def test_a_sandbox_that_is_not_there(wall):
    """Exceptions: no sandbox has that id; and one that is gone says so."""
    with pytest.raises(SandboxNotFound, match="No sandbox has the id 'sb-none'"):
        Sandbox.connect("sb-none")
    with Sandbox.create() as sandbox:
        pass
    with pytest.raises(SandboxGone, match="it was destroyed"):
        sandbox.files.list()


@needs(COMMANDS, STOP)
def test_a_sandbox_that_does_not_run(wall):
    """Exceptions: a stopped one says so, and what to call."""
    with Sandbox.create() as sandbox:
        sandbox.stop()
        with pytest.raises(Busy, match=r"is stopped\. Call resume\(\) first"):
            sandbox.run("true")


@once
def test_a_codebase_that_is_not_there_or_wrong(wall):
    """Exceptions: no codebase of that name, and a name that is taken."""
    codebases = Codebases()
    with pytest.raises(CodebaseNotFound, match="No codebase is called 'nothing'"):
        codebases.get("nothing")
    made = codebases.create("taken", owner="ann")
    with pytest.raises(InvalidInput, match="ann has a codebase 'taken' already"):
        codebases.create("taken", owner="ann")
    codebases.delete(made)


@needs(*RULES)
def test_what_the_rules_deny_is_an_error_of_its_own(wall, project):
    """Exceptions: permission denied, through the file calls as through commands, and told afterwards."""
    with Sandbox.from_local("./my-project") as sandbox:
        with pytest.raises(FileDenied, match=r"main\.py"):
            sandbox.files.write("main.py", "changed")
        with pytest.raises(FileMissing):
            sandbox.files.read(".env")
        assert [denial.path for denial in sandbox.audit(source="files")] == ["main.py", ".env"]


@needs(COMMANDS)
def test_a_session_that_has_ended(wall, shared):
    """Exceptions: a closed session says so; another one is not harmed."""
    session = shared.session()
    session.close()
    with pytest.raises(SessionEnded):
        session.run("true")
    with shared.session() as other:
        assert other.run("echo alive").stdout == "alive\n"


# Low-level API


@needs(*RULES, *STORED, LIMITS)
def test_a_codebase_a_sandbox_and_a_command_step_by_step(wall, capsys):
    """Low-level API: create a codebase, upload a file, make a sandbox with rules, run, clean up."""
    codebases = Codebases()
    codebase = codebases.create("my-project", owner="user_123")
    codebases.write(codebase, "hello.py", b'print("Hello, world of codebases!")')
    sandbox = Sandbox.create(
        wall,
        codebase=codebase,
        permissions=[
            {"pattern": "**/*.py", "level": "read"},
            {"pattern": "/docs/**", "level": "write"},
        ],
        resources=Resources(memory=256 << 20),
    )
    result = sandbox.run("python3 hello.py")
    print(result.stdout)
    sandbox.destroy()
    codebases.delete(codebase.id)
    assert capsys.readouterr().out == "Hello, world of codebases!\n\n"
    assert codebases.list("user_123") == []


# Permission levels and patterns


@needs(*RULES)
def test_four_levels(wall, project):
    """Permission levels: hidden, seen by name, read, written."""
    levels = {"custom/": "none", "config.yaml": "view", "main.py": "read", "docs/": "write"}
    with Sandbox.from_local("./my-project", list(levels.items())) as sandbox:
        assert set(sandbox.run("ls").stdout.split()) == {"config.yaml", "main.py", "docs"}
        assert not sandbox.run("cat custom/notes.txt").success
        assert not sandbox.run("cat config.yaml").success
        assert sandbox.run("cat main.py").success
        assert not sandbox.run("echo more >> main.py").success
        assert sandbox.run("echo more >> docs/guide.md && cat docs/guide.md").stdout == "the guide\nmore\n"


@needs(*RULES)
def test_three_kinds_of_patterns(wall, project):
    """Permission patterns: a glob, a directory and a single file."""
    (project / "docs" / "deep").mkdir()
    (project / "docs" / "deep" / "tool.py").write_text("print('deep')\n")
    permissions = [
        PathRule(pattern="**/*.py", level="read"),
        PathRule(pattern="/docs/", level="write", kind="directory"),
        PathRule(pattern="/config.yaml", level="view", kind="file"),
    ]
    with Sandbox.from_local("./my-project", permissions) as sandbox:
        assert sandbox.run("python3 main.py").stdout == "main of the project\n"
        assert sandbox.run("echo new > docs/deep/new && cat docs/deep/new").stdout == "new\n"
        assert sandbox.run("ls").stdout.split() == ["config.yaml", "docs", "main.py"]
        assert not sandbox.run("cat config.yaml").success
        assert sandbox.explain("config.yaml").level == "view"
        assert sandbox.explain("docs/deep/tool.py").rule == permissions[1], "a directory is nearer than a glob"


# Sessions, commands, streams


@needs(COMMANDS)
def test_a_session_keeps_its_state(wall, shared):
    """Stateful sessions: directory, variables and an activated environment, until the program that uses all three."""
    shared.files.write("src/venv/bin/activate", "PATH=$PWD/venv/bin:$PATH\n")
    shared.files.write("src/venv/bin/tool", "#!/bin/sh\necho the tool of the environment\n", mode=0o755)
    shared.files.write(
        "src/main.py",
        textwrap.dedent("""
        import os, subprocess
        print(os.path.basename(os.getcwd()), os.environ["DEBUG"], flush=True)
        subprocess.run("tool")
    """),
    )
    with shared.session() as session:
        session.run("cd src")
        session.run("export DEBUG=1")
        session.run("source venv/bin/activate")
        result = session.run("python3 main.py")
    assert result.stdout == "src 1\nthe tool of the environment\n"


@needs(COMMANDS)
def test_a_command_with_all_that_it_can_be_given(wall, shared, capsys):
    """Command execution: input, variables, a directory and a time; and what is told of it."""
    shared.files.write(
        "place/script.py",
        textwrap.dedent("""
        import os, sys
        print(sys.stdin.read().upper(), os.environ["DEBUG"], os.path.basename(os.getcwd()))
        print("a warning", file=sys.stderr)
    """),
    )
    result = shared.run(
        "python3 script.py", stdin="input data", env={"DEBUG": "1"}, workdir="/workspace/place", timeout=30
    )
    print(f"Exit code: {result.exit_code}")
    print(f"stdout: {result.stdout}", end="")
    print(f"stderr: {result.stderr}", end="")
    assert capsys.readouterr().out == "Exit code: 0\nstdout: INPUT DATA 1 place\nstderr: a warning\n"
    assert 0 < result.duration < 30


@needs(COMMANDS)
def test_output_is_streamed(wall, shared, capsys):
    """Streaming output: pieces come while the command runs."""
    for chunk in shared.stream("echo begun; until [ -e go-on ]; do sleep 0.01; done; echo done"):
        print(chunk.text, end="")
        shared.files.write("go-on", "")
    assert capsys.readouterr().out == "begun\ndone\n"


# Files of codebases


@once
def test_files_of_a_codebase(wall, capsys):
    """File operations: list a directory with all below it, download a file, upload one and hear size and checksum."""
    codebases = Codebases()
    codebase = codebases.create("files")
    for path, text in {"src/a.py": "a = 1\n", "src/deep/b.py": "b = 22\n", "config.yaml": "debug: on\n"}.items():
        codebases.write(codebase, path, text)
    for file in codebases.files(codebase.id, path="src", recursive=True):
        if file.type == "file":
            print(f"{file.path} - {file.size} bytes")
    content = codebases.read(codebase.id, "config.yaml")
    print(content.decode(), end="")
    result = codebases.write(codebase.id, "new_file.txt", b"file content")
    print(f"Uploaded {result.size} bytes, checksum: {result.digest}")
    digest = hashlib.sha256(b"file content").hexdigest()
    assert capsys.readouterr().out == (
        f"src/a.py - 6 bytes\nsrc/deep/b.py - 7 bytes\ndebug: on\nUploaded 12 bytes, checksum: {digest}\n"
    )
    codebases.delete(codebase)


@needs(*RULES)
def test_context_managers(wall, project):
    """Context managers: at the end of the block the sandbox is gone, also when its body fails; the source stays."""
    with Sandbox.from_local("./my-project") as sandbox:
        assert sandbox.run("python3 main.py").success
    assert sandbox.refresh().status == "gone"
    broken = Sandbox.from_local("./my-project")
    with pytest.raises(ZeroDivisionError), broken:
        broken.info.created // 0
    assert broken.refresh().status == "gone"
    assert (project / "main.py").exists()


# API reference


@needs(*RULES, *STORED)
def test_from_codebase_connect_and_files(wall):
    """High-level API: a sandbox over a codebase, found again by id, which reads, writes and lists files."""
    codebases = Codebases()
    codebase = codebases.create("project")
    codebases.write(codebase, "src/main.py", "print('stored')\n")
    with Sandbox.from_codebase(codebase.id, preset="full-access") as made:
        sandbox = Sandbox.connect(made.id)
        assert sandbox.files.read("src/main.py") == "print('stored')\n"
        sandbox.files.write("src/more.py", "print('more')\n")
        assert [info.path for info in sandbox.files.list("/workspace", recursive=True)] == [
            "/workspace/src", "/workspace/src/main.py", "/workspace/src/more.py"
        ]  # fmt: skip
        assert sandbox.run("python3 src/more.py").stdout == "more\n"
    assert [info.path for info in codebases.files(codebase)] == ["src", "src/main.py"]
    codebases.delete(codebase)


@needs(COMMANDS, STOP)
def test_stop_and_start(wall):
    """High-level API, lifecycle control: stop, start again, and its files are there; and what `info` says of it."""
    with Sandbox.create() as sandbox:
        sandbox.files.write("kept.txt", "still here")
        assert sandbox.info.status == "running"
        sandbox.stop()
        assert sandbox.refresh().status == "stopped"
        sandbox.resume()
        assert sandbox.refresh().status == "running"
        assert sandbox.run("cat kept.txt").stdout == "still here"
    assert sandbox.refresh().status == "gone"


@needs(COMMANDS)
def test_sessions_with_another_shell_and_by_id(wall, shared):
    """API reference: a session with a shell and variables of its own, used by its id from elsewhere."""
    with shared.session(shell="sh", env={"GREETING": "hello"}) as session:
        assert session.shell == "sh"
        session.run("greet() { echo $GREETING $1; }")
        again = Sandbox.connect(shared.id).session(id=session.id)
        assert again.run("greet you").stdout == "hello you\n"


@needs(Capability.LIFETIME)
def test_labels_and_the_end_of_its_life(wall):
    """Low-level API: create with labels and an expiry, get it, list it."""
    with Sandbox.create(labels={"user": "user_123"}, lifetime=120) as sandbox:
        info = Sandbox.connect(sandbox.id).info
        assert (info.labels, info.driver) == ({"user": "user_123"}, wall)
        assert info.expires is not None
        assert 60 < info.expires - time.time() <= 121
        assert [found.id for found in Sandbox.list({"user": "user_123"})] == [sandbox.id]


@needs(*STORED)
def test_sandboxes_of_a_codebase(wall):
    """Low-level API: list the sandboxes that stand on a codebase."""
    codebases = Codebases()
    codebase, other = codebases.create("one"), codebases.create("other")
    with Sandbox.create(codebase="one", preset="full-access") as sandbox, Sandbox.create(codebase="other"):
        assert [info.id for info in Sandbox.list(codebase=codebase)] == [sandbox.id]
    for each in (codebase, other):
        codebases.delete(each)


@once
def test_codebases_have_owners(wall):
    """Low-level API: create, get, list by owner, delete."""
    codebases = Codebases()
    made = codebases.create("mine", owner="ann")
    codebases.create("theirs", owner="bob")
    assert codebases.get(made.id) == made
    assert [each.name for each in codebases.list("ann")] == ["mine"]
    assert {each.owner for each in codebases.list()} >= {"ann", "bob"}
    assert codebases.delete("ann/mine").id == made.id
    codebases.delete("bob/theirs")
    with pytest.raises(CodebaseNotFound):
        codebases.get(made.id)


@needs(COMMANDS, LIMITS)
def test_limits(wall):
    """Types, resource limits: memory, processors and processes are held, and told."""
    with Sandbox.create(resources=Resources(memory=128 << 20, cpu=0.5, pids=64)) as sandbox:
        assert sandbox.info.spec.resources == (128 << 20, 0.5, 64, None)
        assert set(sandbox.info.limits) >= {"memory", "cpu", "pids"}
        greedy = "data = bytearray(200 << 20); print('had it')"
        assert sandbox.run(["python3", "-c", greedy]).stdout == ""
        assert sandbox.run(["python3", "-c", greedy.replace("200", "20")]).stdout == "had it\n"


# The same, awaited


@needs(*RULES, *STORED)
@pytest.mark.anyio
async def test_the_asynchronous_client(wall, project):
    """Sync and async: all of it is there for asynchronous programs too."""
    codebases = AsyncCodebases()
    codebase = await codebases.create("project", "./my-project", owner="user_123")
    async with await AsyncSandbox.from_codebase(codebase.id) as sandbox:
        assert (await sandbox.run("python3 main.py")).stdout == "main of the project\n"
        async with await sandbox.session() as session:
            await session.run("cd docs")
            assert (await session.run("cat guide.md")).stdout == "the guide\n"
        assert [info.id for info in await AsyncSandbox.list(codebase=codebase)] == [sandbox.id]
    await codebases.delete(codebase)
