"""Programs by `--file` and `--lang`, and their packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from atoll.cli.languages import LANGUAGES

from .. import programs

AWKWARD = """import sys
text = \'\'\'it's "quoted", `ticked`, $HOME and \\\\ slashed\'\'\'
print(text, sys.argv[1:], __file__)
sys.exit(5)
"""

PROGRAMS = {
    "python": "import sys; print('hello', *sys.argv[1:]); sys.exit(7)",
    "javascript": "console.log('hello', ...process.argv.slice(2)); process.exit(7)",
    "typescript": "const code: number = 7; console.log('hello', ...process.argv.slice(2)); process.exit(code)",
    "go": 'package main\nimport ("fmt"; "os"; "strings")\n'
    'func main() { fmt.Println("hello", strings.Join(os.Args[1:], " ")); os.Exit(7) }',
    "rust": "fn main() { let a: Vec<String> = std::env::args().skip(1).collect(); "
    'println!("hello {}", a.join(" ")); std::process::exit(7) }',
    "java": "public class Any { public static void main(String[] words) { "
    'System.out.println("hello " + String.join(" ", words)); System.exit(7); } }',
    "r": "cat('hello', commandArgs(TRUE)); cat('\\n'); quit(status = 7)",
    "bash": '[[ -n $BASH_VERSION ]] && echo hello "$@"; exit 7',
    "zsh": '[[ -n $ZSH_VERSION ]] && echo hello "$@"; exit 7',
    "sh": 'echo hello "$@"; exit 7',
}


def there_is(language):
    """Whether this machine has it where a sandbox sees it."""
    path = f"{sys.base_prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    found = subprocess.run(["/bin/sh", "-c", language.ready], env={"PATH": path}, capture_output=True, check=False)
    return found.returncode == 0


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_each_language_runs_or_says_what_it_needs(atoll, tmp_path, language):
    suffix = language.suffixes[0] if language.suffixes else ""
    file = tmp_path / f"my-program{suffix}"
    file.write_text(PROGRAMS[language.name])
    done = atoll("run", "--file", str(file), *([] if suffix else ["--lang", language.name]), "--", "a.go", "-b")
    if there_is(language):
        assert done == (7, b"hello a.go -b\n", "")
    else:
        assert (done.code, done.out) == (127, b"")
        lacks = {"rust": "does not have them", "typescript": "has none of them"}.get(language.name, "does not have it")
        assert f"{language.name} needs {language.needs}, and this sandbox {lacks}." in done.err
        assert language.get in done.err


def test_a_missing_tool_is_named_with_how_to_get_it(atoll):
    done = atoll("run", "-e", "PATH=/nowhere", "--lang", "javascript", "1")
    assert done.code == 127
    assert done.err.splitlines()[-1] == (
        "atoll: javascript needs node, and this sandbox does not have it. Install it on the host "
        "(`apt-get install nodejs`), or use an image that has it."
    )


def test_a_cell_in_a_language_that_is_not_there_is_told_the_same_way(atoll):
    missing = [language.name for language in LANGUAGES if not there_is(language)]
    if not missing:
        pytest.skip("every language is here")
    for name in missing:
        cell = atoll("run", "--lang", name, "--code", PROGRAMS[name])
        program = atoll("run", "--lang", name, PROGRAMS[name], env={"PATH": "/usr/bin:/bin"})
        assert (cell.code, cell.out) == (program.code, program.out) == (127, b"")
        assert cell.err.splitlines()[-1] == program.err.splitlines()[-1]


def test_a_tool_that_lies_in_somebodys_home_is_explained(atoll, tmp_path):
    (tmp_path / "rustc").write_text("#!/bin/sh\n")
    (tmp_path / "rustc").chmod(0o755)
    done = atoll("run", "-e", "PATH=/nowhere", "--lang", "rust", "x", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.code == 127
    assert f"Yours at {tmp_path}/rustc is not seen in there" in done.err


def test_a_program_that_itself_ends_with_127_is_not_explained(atoll):
    assert atoll("run", "--lang", "python", "raise SystemExit(127)") == (127, b"", "")


def test_a_file_is_uploaded_and_not_pasted(atoll, tmp_path):
    file = tmp_path / "it's awkward.py"
    file.write_text(AWKWARD)
    done = atoll("run", "--file", str(file), "one", "--two", "-t")
    text = """it's "quoted", `ticked`, $HOME and \\ slashed"""
    assert done == (5, f"{text} ['one', '--two', '-t'] /workspace/it's awkward.py\n".encode(), "")


def test_the_language_can_be_said_where_the_name_does_not_tell(atoll, tmp_path):
    file = tmp_path / "script"
    file.write_text("print('hi')")
    assert atoll("run", "--file", str(file), "--lang", "py").out == b"hi\n"
    unknown = atoll("run", "--file", str(file))
    assert unknown.code == 125
    assert (
        "cannot be told from its name; say --lang python, javascript, typescript, go, rust, java, r, bash, zsh or sh."
        in unknown.err
    )


def test_a_program_comes_from_standard_input(atoll):
    code = b"import sys; print('in', sys.argv[1:], sys.stdin.read())"
    assert atoll("run", "--lang", "python", input=code).out == b"in [] \n"
    assert atoll("run", "--lang", "python", "--file", "-", "x", "--", "y", input=code).out == b"in ['x', '--', 'y'] \n"


def test_a_program_as_an_argument_leaves_standard_input_to_it(atoll):
    done = atoll("run", "--lang", "python", "import sys; print(sys.stdin.read(), sys.argv[1:])", "x", input=b"data")
    assert done.out == b"data ['x']\n"


def test_python_prints_while_it_runs(atoll):
    process = atoll.start("run", "--lang", "python", "print('first'); input(); print('second')")
    assert process.stdout.readline() == b"first\n"
    assert process.communicate(b"go on\n", timeout=60) == (b"second\n", b"")


def test_a_program_finds_the_modules_of_its_source(atoll, tmp_path):
    (tmp_path / "helper.py").write_text("WORD = 'helped'\n")
    (tmp_path / "main.py").write_text("import helper; print(helper.WORD)\n")
    assert atoll("run", "--source", ".", "--file", "main.py", cwd=tmp_path).out == b"helped\n"


def test_a_program_that_the_rules_do_not_let_be_written_is_refused_with_what_to_give(atoll, tmp_path):
    words = ("--source", str(tmp_path), "--lang", "python", "print('ran')")
    assert "give --preset development" in atoll("run", *words).err
    assert atoll("run", "--preset", "development", *words).out == b"ran\n"


def test_exec_runs_programs_too(atoll, kept):
    assert atoll("exec", kept, "--lang", "python", "print(6 * 7)").out == b"42\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--file", "/no/such/file.py"], "/no/such/file.py: No such file or directory."),
        (["--file", "/usr"], "/usr is a directory; --file takes one file, --source a whole directory."),
        (["--file", "-"], "say --lang"),
        (["--lang", "cobol", "x"], "--lang is 'cobol'; the known languages are python"),
        (["-n", "--lang", "python"], "There is no python program: give --file, or the code as an argument"),
        (["--deps", "setup.cfg", "true"], "give a requirements.txt, a package.json or a go.mod"),
        (["--network", "host", "--deps", "/no/requirements.txt", "true"], "/no/requirements.txt: No such file"),
        (["--deps", "--lang", "go", "package main"], "--deps without a path looks beside --file, and there is none"),
        (["--file", os.devnull, "--lang", "go", "--deps"], "--deps finds no go.mod beside '/dev/null'"),
        (["--file", os.devnull, "--lang", "rust", "--deps"], "--deps knows no packages of rust"),
    ],
)
def test_bad_programs_are_one_sentence_and_125(atoll, words, sentence):
    done = atoll("run", *words)
    assert (done.code, done.out, done.err.count("\n")) == (125, b"", 1)
    assert sentence in done.err


def test_packages_need_a_network(atoll, tmp_path, kept):
    (tmp_path / "requirements.txt").write_text("six\n")
    deps = ("--deps", str(tmp_path / "requirements.txt"), "true")
    sentence = "--deps fetches what requirements.txt asks for, and the sandbox has no network. Add --network all"
    assert sentence in atoll("run", *deps).err
    refused = atoll("exec", kept, *deps)
    assert refused.code == 125
    assert sentence in refused.err


def wheel(directory):
    """A package that needs no index to be installed from."""
    name = "hello_atoll-1.0"
    with zipfile.ZipFile(directory / f"{name}-py3-none-any.whl", "w") as file:
        file.writestr("hello_atoll.py", "WORD = 'installed'\n")
        file.writestr(f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: hello-atoll\nVersion: 1.0\n")
        file.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{name}.dist-info/RECORD", "")


@pytest.mark.skipif(not programs.has_pip(), reason="this machine's Python has no pip for a sandbox to use")
def test_python_packages_are_installed_before_the_program_runs(atoll, tmp_path):
    wheel(tmp_path)
    (tmp_path / "requirements.txt").write_text("--no-index\n./hello_atoll-1.0-py3-none-any.whl\n")
    words = (
        "--source",
        ".",
        "--preset",
        "development",
        "--network",
        "host",
        "--lang",
        "python",
        "import hello_atoll; print(hello_atoll.WORD)",
    )
    done = atoll("run", "--deps", "requirements.txt", *words, cwd=tmp_path)
    assert (done.code, done.out) == (0, b"installed\n"), done.err
    assert "atoll: Installing requirements.txt …" in done.err
    without = atoll(
        "run", *words[:-1], "from importlib.util import find_spec; print(find_spec('hello_atoll'))", cwd=tmp_path
    )
    assert without.out == b"None\n"


@pytest.mark.skipif(not programs.has_pip(), reason="this machine's Python has no pip for a sandbox to use")
def test_packages_are_looked_for_beside_the_program(atoll, tmp_path):
    wheel(tmp_path)
    (tmp_path / "requirements.txt").write_text("--no-index\n/workspace/hello_atoll-1.0-py3-none-any.whl\n")
    (tmp_path / "main.py").write_text("import hello_atoll, sys; print(hello_atoll.WORD, *sys.argv[1:])\n")
    words = (
        "--source",
        str(tmp_path),
        "--preset",
        "development",
        "--network",
        "host",
        "--file",
        str(tmp_path / "main.py"),
        "--deps",
    )
    done = atoll("run", *words, "--", "an argument")
    assert (done.code, done.out) == (0, b"installed an argument\n"), done.err


@pytest.mark.skipif(shutil.which("npm", path="/usr/local/bin:/usr/bin:/bin") is None, reason="there is no npm in /usr")
def test_node_packages_are_installed_before_the_program_runs(atoll, tmp_path):
    (tmp_path / "hello").mkdir()
    (tmp_path / "hello" / "package.json").write_text(json.dumps({"name": "hello", "version": "1.0.0"}))
    (tmp_path / "hello" / "index.js").write_text("module.exports = 'installed'")
    (tmp_path / "package.json").write_text(json.dumps({"dependencies": {"hello": "file:./hello"}}))
    done = atoll("run", "--deps", "package.json", "--source", ".", "--preset", "development", "--network", "host",
                 "--lang", "node", "console.log(require('hello'))", cwd=tmp_path)  # fmt: skip
    assert (done.code, done.out) == (0, b"installed\n"), done.err


def test_packages_that_cannot_be_installed_end_the_run(atoll, tmp_path):
    (tmp_path / "requirements.txt").write_text("--no-index\n./not-there.whl\n")
    done = atoll("run", "--keep", "--deps", "requirements.txt", "--network", "host", "echo ran", cwd=tmp_path)
    assert (done.code, done.out) == (125, b"")
    assert "atoll: requirements.txt" in done.err.splitlines()[-1]
