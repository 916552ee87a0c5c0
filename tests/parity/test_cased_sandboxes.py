"""002, the README of cased-sandboxes: one library for many walls, from Python and from the command line."""

from __future__ import annotations

import http.server
import json
import os
import threading

import pytest

from atoll import (
    AsyncSandbox,
    Capability,
    Completed,
    CreateFailed,
    DriverError,
    DriverMissing,
    Sandbox,
    UnknownDriver,
    Unsupported,
    registry,
)
from atoll.aio import run, run_many
from atoll.cli.languages import LANGUAGES
from atoll.driver import Driver
from atoll.drivers.fake import FakeDriver
from atoll.io import BlockingIO, drive
from atoll.testing import wheels
from atoll.testing.elsewhere import target
from atoll.testing.needs import needs

from .. import programs
from . import walls
from .images import small_image
from .walls import once

COMMANDS, CODE, SOURCE = Capability.COMMANDS, Capability.CODE, Capability.SOURCE
PROJECT = {"project": "model", "accelerated": "no"}


# Quick start


@needs(COMMANDS)
@pytest.mark.anyio
async def test_run_is_one_line(wall, capsys):
    """Quick start, the simplest way: one call makes a sandbox, runs a command in it and removes it."""
    result = await run("echo 'Greetings from inside!'", labels={"parity": "one line"})
    print(result.stdout)
    assert capsys.readouterr().out == "Greetings from inside!\n\n"
    assert await AsyncSandbox.list({"parity": "one line"}) == []


@needs(COMMANDS, SOURCE, Capability.PACKAGES, Capability.ISOLATION)
@pytest.mark.skipif(not programs.has_pip(), reason="this machine's Python has no pip for a sandbox to use")
@pytest.mark.anyio
async def test_run_many_in_one_sandbox(wall, tmp_path, capsys):
    """Quick start, multiple commands: a package is installed, and the next command prints its version."""
    wheels.make(tmp_path, "parity-fetch", {"parity_fetch.py": "__version__ = '2.5.1'\n"}, version="2.5.1")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/workspace", "PIP_QUIET": "1"}
    results = await run_many(
        ["pip install parity-fetch", "python3 -c 'import parity_fetch; print(parity_fetch.__version__)'"],
        together=True,
        source=tmp_path,
        preset="full-access",
        env=offline,
    )
    for result in results:
        assert result.success, result.stderr
        print(result.stdout, end="")
    assert capsys.readouterr().out == "2.5.1\n"


@needs(COMMANDS)
@pytest.mark.anyio
async def test_a_sandbox_persists_for_many_operations(wall, here, capsys):
    """Quick start, persistent sessions: prepare, upload, run, download, and all of it is gone at the end."""
    (here / "data.csv").write_text("name,score\nann,3\nben,4\n")
    async with await AsyncSandbox.create() as sandbox:
        await sandbox.files.write("analyze.py", ANALYZE)
        await sandbox.files.upload("data.csv", "data.csv")
        result = await sandbox.run("python3 analyze.py")
        print(result.stdout)
        await sandbox.files.download("results.csv", "results.csv")
    assert capsys.readouterr().out == "2 rows\n\n"
    assert (here / "results.csv").read_text() == "total\n7\n"
    assert (await sandbox.refresh()).status == "gone"


ANALYZE = """
rows = open("data.csv").read().split()[1:]
print(len(rows), "rows")
open("results.csv", "w").write("total\\n%d\\n" % sum(int(row.split(",")[1]) for row in rows))
"""


@needs(COMMANDS)
@pytest.mark.anyio
async def test_output_is_streamed_while_a_command_runs(wall, capsys):
    """Quick start, streaming output: each piece is printed when it comes, long before the command ends."""
    async with await AsyncSandbox.create() as sandbox:
        async for chunk in sandbox.stream("echo epoch 1; until [ -e go ]; do sleep 0.01; done; echo epoch 2"):
            print(chunk, end="", flush=True)
            await sandbox.files.write("go", "")
    assert capsys.readouterr().out == "epoch 1\nepoch 2\n"


@pytest.mark.anyio
async def test_labels_find_the_same_sandbox_again(wall):
    """Quick start, smart reuse: a second call with the same labels gives the same sandbox."""
    sandbox1 = await AsyncSandbox.get_or_create(labels=PROJECT)
    sandbox2 = await AsyncSandbox.get_or_create(labels=PROJECT)
    try:
        assert sandbox1.id == sandbox2.id
    finally:
        await sandbox1.destroy()


@needs(COMMANDS)
@pytest.mark.anyio
async def test_a_wall_is_selected_by_name(wall, monkeypatch, capsys):
    """Quick start, provider selection: for a sandbox and for one command, and without a name the default."""
    monkeypatch.setenv("ATOLL_DRIVER", "jail")
    async with await AsyncSandbox.create(wall) as sandbox:
        print(f"Using: {sandbox.driver}")
    assert capsys.readouterr().out == f"Using: {wall}\n"
    assert (await run("echo named", wall)).stdout == "named\n"
    monkeypatch.setenv("ATOLL_DRIVER", wall)
    assert (await run("echo default")).stdout == "default\n"


@pytest.mark.anyio
async def test_the_next_wall_is_tried_when_one_is_not_ready(wall, monkeypatch, capsys):
    """Quick start, automatic failover, among the walls of this machine: an order of names, the first that works."""
    monkeypatch.setitem(registry.BUILT_IN, "absent", registry.BuiltIn("no_such_package:Driver", "absent"))
    async with await AsyncSandbox.create(f"absent,{wall}") as sandbox:
        print(f"Using: {sandbox.driver}")
    assert capsys.readouterr().out == f"Using: {wall}\n"


# Command line


@needs(COMMANDS)
def test_cli_direct_command(wall, cli):
    """CLI, quick start and the third way: a command with quotes in it."""
    assert cli("run", "python3 -c 'print(sum(range(100)))'") == (0, "4950\n", "")
    assert cli("run", "-p", wall, "python3 -c 'print(42)'") == (0, "42\n", "")


PROGRAMS = {
    "python": "word: str = 'py'\nprint(f'it\\'s {word}')\n",
    "javascript": "console.log(`it's js`)\n",
    "typescript": "const x: number = 42;\nconsole.log(x)\n",
    "go": 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("it\'s go") }\n',
    "rust": 'fn main() { println!("it\'s rust"); }\n',
    "bash": 'words=("it\'s" bash); echo ${words[@]}\n',
}
PRINTED = {
    "python": "it's py\n", "javascript": "it's js\n", "typescript": "42\n", "go": "it's go\n", "rust": "it's rust\n",
    "bash": "it's bash\n",
}  # fmt: skip
SUPPORTED = [language for language in LANGUAGES if language.name in PROGRAMS]


@once
@needs(COMMANDS)
@pytest.mark.parametrize("language", SUPPORTED, ids=lambda language: language.name)
def test_cli_file_of_any_supported_language(wall, shared, cli, here, language):
    """CLI, `run` from a file whose name tells the language; where its tools are missing, how to get them."""
    (here / f"script{language.suffixes[0]}").write_text(PROGRAMS[language.name])
    done = cli("run", "--file", f"script{language.suffixes[0]}", cwd=here)
    check_program(done, language, shared)


@once
@needs(COMMANDS)
@pytest.mark.parametrize("name", ["python", "node", "bash", "sh"])
def test_cli_program_from_standard_input(wall, shared, cli, name):
    """CLI, `run` from a pipe: the language is said by one of its names."""
    language = next(language for language in LANGUAGES if name in language.names)
    program = {**PROGRAMS, "sh": "echo it\\'s sh\n"}[language.name]
    check_program(cli("run", "--lang", name, input=program), language, shared, {**PRINTED, "sh": "it's sh\n"})


def check_program(done, language, sandbox, printed=PRINTED):
    if sandbox.run(language.ready).success:
        assert done == (0, printed[language.name], "")
    else:
        assert (done.code, done.out) == (127, "")
        assert f"{language.name} needs {language.needs}" in done.err


@needs(COMMANDS)
def test_cli_environment_variables(wall, cli, here):
    """CLI, options: variables for the program."""
    (here / "script.py").write_text("import os; print(os.environ['API_KEY'], os.environ['DEBUG'])\n")
    assert cli("run", "--file", "script.py", "-e", "API_KEY=secret", "-e", "DEBUG=1", cwd=here).out == "secret 1\n"


@once
@needs(COMMANDS)
def test_cli_labels_for_reuse(wall, cli, here):
    """CLI, options: a second run with the label finds what the first has left."""
    (here / "app.py").write_text("open('count', 'a').write('x'); print(len(open('count').read()))\n")
    words = ("run", "--file", "app.py", "-l", "project=myapp", "--reuse")
    assert [cli(*words, cwd=here).out for _ in range(2)] == ["1\n", "2\n"]
    assert cli("destroy", "-l", "project=myapp").code == 0


@once
@needs(COMMANDS)
def test_cli_timeout(wall, cli, here):
    """CLI, options: seconds for the program, many or few."""
    (here / "script.sh").write_text("echo begun; sleep $1; echo ended\n")
    assert cli("run", "--file", "script.sh", "-t", "600", "--", "0", cwd=here).out == "begun\nended\n"
    late = cli("run", "--file", "script.sh", "-t", "2", "--", "100", cwd=here)
    assert (late.code, late.out) == (124, "begun\n")
    assert "ran out of time after 2 s" in late.err


@needs(COMMANDS)
def test_cli_keep_list_exec_and_destroy(wall, cli, here):
    """CLI, `--keep`, `list` with its filters, `exec` and `destroy`; and the development workflow that uses all four."""
    made = cli(
        "run", "-l", "project=site", "-l", "env=dev", "--keep", "mkdir app && echo 'echo tested $1' > app/test.sh"
    )
    (id,) = [word for word in made.err.split() if "-" in word]
    assert made.code == 0
    for words in ([], ["-p", wall], ["-l", "project=site"], ["-l", "env=dev", "-l", "project=site"]):
        assert id in cli("list", *words).out
    assert id not in cli("list", "-l", "env=prod").out
    (told,) = json.loads(cli("list", "--json", "-l", "project=site").out)
    assert (told["id"], told["driver"], told["status"]) == (id, wall, "running")
    assert told["labels"] == {"project": "site", "env": "dev"}
    assert "test.sh" in cli("exec", id, "ls -la app").out
    assert cli("exec", "-e", "MODE=twice", id, "cd app && sh test.sh $MODE").out == "tested twice\n"
    assert cli("exec", id[:-2], "--", "sh", "app/test.sh", "again").out == "tested again\n", (
        "no -p: the id tells the wall"
    )
    assert cli("destroy", id).code == 0
    assert id not in cli("list").out
    assert cli("exec", id, "true").code == 125


def test_cli_providers(wall, cli):
    """CLI, `providers`: which walls there are, and whether they work."""
    (line,) = [line for line in cli("providers").out.splitlines() if line.split()[:1] == [wall]]
    assert "ready" in line


@once
def test_cli_test_of_one_wall(wall, cli):
    """CLI, `test -p`: a wall is tried, and the exit code tells."""
    done = cli("test", "-p", wall)
    assert (done.code, done.out.splitlines()[-1]) == (0, "All of it works.")


@once
@needs(COMMANDS, SOURCE, Capability.NETWORK_HOST)
def test_cli_dependencies_beside_the_file(wall, shared, cli, here):
    """CLI, multi-language: `--deps` finds the go.mod beside the file, uploads it, and downloads before it runs."""
    (here / "go.mod").write_text("module parity\n\ngo 1.18\n")
    (here / "go.sum").write_text("")
    (here / "main.go").write_text(PROGRAMS["go"])
    done = cli("run", "--file", "main.go", "--deps", "--network", "host", cwd=here)
    assert "atoll: Installing go.mod …" in done.err
    if shared.run("command -v go").success:
        assert (done.code, done.out) == (0, PRINTED["go"])
    else:
        assert (done.code, done.out) == (125, "")
        assert "go.mod needs `go`" in done.err


@needs(COMMANDS, Capability.IMAGE)
def test_custom_image(wall, cli, tmp_path):
    """Custom images: another root file system for a sandbox, from Python and with `--image`."""
    image = small_image(tmp_path)
    with Sandbox.create(image=image) as sandbox:
        assert sandbox.run("cat /marker").stdout == "of the image\n"
    assert cli("run", "--image", str(image), "cat /marker").out == "of the image\n"


# Configuration


def test_a_wall_is_configured_without_a_word(wall):
    """Automatic configuration: with a default in the environment nothing needs to be named."""
    with Sandbox.create() as sandbox:
        assert sandbox.driver == wall


@once
def test_known_walls_and_the_default_are_told(wall, capsys):
    """How detection works: which walls there are, and which is taken."""
    print(f"Known walls: {registry.names()}")
    print(f"Default wall: {registry.default_name()}")
    told = capsys.readouterr().out
    assert repr(wall) in told
    assert told.endswith(f"Default wall: {wall}\n")


def test_a_wall_can_be_used_directly(wall):
    """Direct provider usage: the driver itself, without a sandbox object."""
    driver = registry.load(wall, BlockingIO())
    assert isinstance(driver, Driver)
    assert driver.name == wall
    assert driver.capabilities == walls.ready()[wall]
    assert driver.summary


@once
def test_health_of_every_wall_is_told(wall, capsys):
    """Debugging: each wall says whether it is well, without starting anything."""
    for name in walls.ready():
        layers = drive(registry.load(name, BlockingIO()).health())
        print(f"{name}: {'well' if all(layer.ready for layer in layers if layer.required) else 'ill'}")
    assert f"{wall}: well\n" in capsys.readouterr().out


@once
def test_cli_debugging_shows_where_an_error_comes_from(wall, cli):
    """Debugging, more words: a sentence as a rule, and on demand the place in the code."""
    usual, told = cli("exec", "sb-none", "true"), cli("exec", "sb-none", "true", ATOLL_DEBUG="1")
    assert usual.err == "atoll: No sandbox has the id 'sb-none'. `atoll list` shows those that exist.\n"
    assert "Traceback (most recent call last)" in told.err


# API reference


@needs(COMMANDS)
@pytest.mark.anyio
async def test_the_methods_of_a_sandbox(wall, here):
    """Key methods: create with labels, find, execute, execute_many, upload, download, destroy."""
    label = {"parity": os.urandom(4).hex()}
    assert await AsyncSandbox.find(label) is None
    sandbox = await AsyncSandbox.create(labels={**label, "other": "too"})
    found = await AsyncSandbox.find(label)
    assert found is not None
    assert found.id == sandbox.id
    result = await found.run("echo out; echo err >&2; exit 3")
    assert isinstance(result, Completed)
    assert (result.stdout, result.stderr, result.exit_code, result.success) == ("out\n", "err\n", 3, False)
    results = await found.run_many(["echo one > note", "cat note"])
    assert [result.stdout for result in results] == ["", "one\n"]
    (here / "local.txt").write_text("up and down")
    await found.files.upload("local.txt", "remote.txt")
    await found.files.download("remote.txt", "back.txt")
    assert (here / "back.txt").read_text() == "up and down"
    await sandbox.destroy()
    assert await AsyncSandbox.find(label) is None


def test_reuse_in_another_process(wall, elsewhere):
    """Sandbox reuse at the level of providers: another process finds it by some of its labels."""
    with Sandbox.get_or_create(labels=PROJECT) as sandbox:
        found = elsewhere("found = Sandbox.find({'project': 'model'}); answer = [found.id, found.driver]")
        assert found == [sandbox.id, wall]


@needs(COMMANDS)
@pytest.mark.anyio
async def test_stream_of_numbers(wall, shared, capsys):
    """Streaming execution: ten numbers, printed as they come."""
    sandbox = await AsyncSandbox.connect(shared.id)
    count = "import time\nfor i in range(10): print(i, flush=True); time.sleep(0.01)"
    async for chunk in sandbox.stream(["python3", "-c", count]):
        print(chunk, end="")
    assert capsys.readouterr().out.split() == [str(number) for number in range(10)]


@needs(COMMANDS)
def test_a_configuration_is_given_as_keywords(wall):
    """SandboxConfig: labels, a timeout and an environment that are written once and used for many."""
    config = {"labels": {"task": "parity"}, "timeout": 30.0, "env": {"MODE": "fast"}}
    for _ in range(2):
        with Sandbox.create(**config) as sandbox:
            assert (sandbox.labels, sandbox.info.spec.timeout) == ({"task": "parity"}, 30.0)
            assert sandbox.run("echo $MODE").stdout == "fast\n"


class OwnDriver(FakeDriver):
    """A wall of one's own."""

    name = "own"


def test_a_wall_of_ones_own(monkeypatch):
    """SandboxProvider: whoever implements the contract has all of the rest."""
    monkeypatch.setitem(registry.BUILT_IN, "own", registry.BuiltIn(target(OwnDriver)))
    with Sandbox.create("own") as sandbox:
        assert sandbox.driver == "own"
        assert sandbox.run("echo own").stdout == "own\n"


# Multi-language support


TYPESCRIPT = """
const greeting: string = "TypeScript says hello";
const numbers: number[] = [1, 2, 3, 4, 5];
console.log(greeting);
console.log(`The sum is ${numbers.reduce((a, b) => a + b, 0)}`);
"""

GO = """package main

import (
	"fmt"
	"math"
)

func fibonacci(n int) int {
	if n < 2 {
		return n
	}
	return fibonacci(n-1) + fibonacci(n-2)
}

func main() {
	fmt.Println("Go says hello")
	fmt.Printf("Fibonacci(%d) = %d\\n", 10, fibonacci(10))
	fmt.Printf("Area of a circle (r=%.1f): %.2f\\n", 5.0, math.Pi*25)
}
"""


@once
@needs(COMMANDS, CODE)
@pytest.mark.anyio
async def test_typescript(wall, shared):
    """Running TypeScript: typed code with a template string, as a cell."""
    sandbox = await AsyncSandbox.connect(shared.id)
    result = await sandbox.run_code(TYPESCRIPT, language="typescript")
    if result.error is None:
        assert result.stdout == "TypeScript says hello\nThe sum is 15\n"
    else:
        assert (result.error.name, result.stdout) == ("Unsupported", "")
        assert "TypeScript needs node 22.13 or newer, or esbuild" in result.error.value


@once
@needs(COMMANDS)
@pytest.mark.anyio
async def test_go(wall, shared):
    """Running Go: a file in a heredoc, compiled and run by one command."""
    sandbox = await AsyncSandbox.connect(shared.id)
    result = await sandbox.run(f"cat > hello.go << 'EOF'\n{GO}\nEOF\ngo run hello.go\n")
    if (await sandbox.run("command -v go")).success:
        assert result.stdout == "Go says hello\nFibonacci(10) = 55\nArea of a circle (r=5.0): 78.54\n"
    else:
        assert result.exit_code == 127


@needs(COMMANDS, CODE)
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("language", "code", "output"),
    [
        ("python", "print('in python')", "in python\n"),
        ("javascript", "console.log('in javascript')", "in javascript\n"),
        ("bash", "echo in bash", "in bash\n"),
        ("python", "1 / 0", "ZeroDivisionError"),
    ],
)
async def test_an_agent_that_speaks_many_languages(wall, shared, language, code, output):
    """Multi-language agent: one function for all of them, which gives the output or what went wrong."""
    sandbox = await AsyncSandbox.connect(shared.id)

    async def execute_code(code, language):
        try:
            result = await sandbox.run_code(code, language=language)
        except Unsupported as error:
            return str(error)
        return result.stdout if result.success else result.error.traceback

    if language == "javascript" and not (await sandbox.run("command -v node")).success:
        output = "javascript needs node, and this sandbox does not have it."
    assert output in await execute_code(code, language)


# Common use cases and more examples


@needs(COMMANDS)
@pytest.mark.anyio
async def test_agent_code_with_an_error_that_is_told(wall, shared):
    """AI agent code execution: output when it works, and the words of the error when it does not."""
    sandbox = await AsyncSandbox.connect(shared.id)

    async def execute(code):
        result = await sandbox.run(["python3", "-c", code])
        return result.stdout if result.exit_code == 0 else f"Error: {result.stderr}"

    assert await execute("""print('it\\'s "quoted"')""") == 'it\'s "quoted"\n'
    assert "ValueError: of the agent" in await execute("raise ValueError('of the agent')")


@needs(COMMANDS)
@pytest.mark.anyio
async def test_data_pipeline(wall, here, capsys):
    """Data processing pipeline: prepare, upload the script, run it with live output, download the result."""
    (here / "process.py").write_text(
        "rows = open('data.csv').read().split()\n"
        "for row in rows: print('row', row)\n"
        "open('results.csv', 'w').write(str(sum(map(int, rows))))\n"
    )
    async with await AsyncSandbox.create(labels={"task": "pipeline"}) as sandbox:
        await sandbox.run_many(["python3 --version", "printf '1\\n2\\n3\\n' > data.csv"], check=True)
        await sandbox.files.upload("process.py", "process.py")
        async for output in sandbox.stream("python3 process.py"):
            print(output, end="")
        await sandbox.files.download("results.csv", "results.csv")
    assert capsys.readouterr().out == "row 1\nrow 2\nrow 3\n"
    assert (here / "results.csv").read_text() == "6"


@needs(COMMANDS)
@pytest.mark.anyio
async def test_solutions_are_tested_against_cases(wall, shared, here):
    """Code testing and validation: a solution reads each case from a file, and what it prints is compared."""
    sandbox = await AsyncSandbox.connect(shared.id)
    (here / "solution.py").write_text("print(sum(int(word) for word in input().split()))\n")
    await sandbox.files.upload("solution.py", "solution.py")
    results = []
    for number, (given, expected) in enumerate([("1 2 3", "6"), ("10 20", "31")]):
        await sandbox.files.write(f"case{number}", given)
        result = await sandbox.run(f"python3 solution.py < case{number}")
        results.append((number + 1, result.stdout.strip() == expected, result.stdout.strip()))
    assert results == [(1, True, "6"), (2, False, "30")]


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html><title>The title of a page</title></html>")

    def log_message(self, *words):
        pass


SCRAPE = """
import sys, urllib.request
page = urllib.request.urlopen(sys.argv[1], timeout=20).read().decode()
print(page.partition("<title>")[2].partition("</title>")[0])
"""


@needs(COMMANDS, Capability.NETWORK_HOST)
@pytest.mark.anyio
async def test_web_scraper(wall):
    """Web scraper: with a network, a page is fetched and its title printed."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        async with await AsyncSandbox.create(network="host") as sandbox:
            url = f"http://127.0.0.1:{server.server_port}/"
            result = await sandbox.run(["python3", "-c", SCRAPE, url])
        server.shutdown()
    assert (result.stdout, result.stderr) == ("The title of a page\n", "")


@needs(COMMANDS, Capability.LIMITS)
@pytest.mark.anyio
async def test_training_with_memory_and_time_of_its_own(wall):
    """ML training, without its GPU: memory, a long time, labels, a script with arguments; then it is destroyed."""
    wishes = {"labels": {"task": "training"}, "timeout": 3600, "resources": {"memory": "1G"}}
    sandbox = await AsyncSandbox.create(**wishes)
    try:
        await sandbox.files.write("train.py", "import sys; print('trained for', sys.argv[2], 'epochs')\n")
        assert (await sandbox.run("python3 train.py --epochs 10")).stdout == "trained for 10 epochs\n"
        assert sandbox.info.spec.resources.memory == 1 << 30
    finally:
        await sandbox.destroy()


# Troubleshooting


@once
def test_a_wall_that_is_not_there_says_what_to_do(wall, monkeypatch):
    """Troubleshooting: no such wall, and one whose package is missing; each says what there is or how to get it."""
    monkeypatch.setitem(registry.BUILT_IN, "absent", registry.BuiltIn("no_such_package:Driver", "absent"))
    with pytest.raises(UnknownDriver, match=f"the known ones are .*{wall}"):
        Sandbox.create("nowhere")
    with pytest.raises(DriverMissing, match=r"Run: pip install 'atoll\[absent\]'"):
        Sandbox.create("absent")


@once
def test_errors_of_a_wall_are_handled_by_hand(wall, monkeypatch):
    """Provider failures: whoever prefers so catches the error of one wall and takes another."""
    monkeypatch.setitem(registry.BUILT_IN, "absent", registry.BuiltIn("no_such_package:Driver", "absent"))
    try:
        sandbox = Sandbox.create("absent")
    except DriverError:
        sandbox = Sandbox.create(wall)
    with sandbox:
        assert sandbox.driver == wall
    assert not issubclass(CreateFailed, DriverError), "a wall that broke while it was built is another matter"
