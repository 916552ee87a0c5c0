"""Languages from the client's side: one context each, their refusals, and TypeScript with a real compiler."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from tests import thorough

from atoll import InvalidInput, Unsupported

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")


def test_a_language_has_a_context_of_its_own_whichever_name_is_used(make):
    sandbox = make()
    sandbox.run_code("x=1", language="sh")
    assert sandbox.run_code("echo $x", language="Shell").stdout == "1\n"
    assert sandbox.run_code("x = 2", language="py").success
    assert sandbox.run_code("x").text == "2"
    assert {context.name: context.language for context in sandbox.contexts.list()} == {"main": "python", "sh": "sh"}


def test_cells_of_a_shell_have_exit_codes_and_live_output(sandbox):
    heard = []
    done = sandbox.run_code("echo out; echo err >&2; (exit 4)", language="bash", on_stdout=heard.append)
    assert (done.exit_code, done.stdout, done.stderr, done.success) == (4, "out\n", "err\n", False)
    assert (done.error.name, done.error.traceback) == ("ExitCode", "err\n")
    assert heard == ["out\n"]
    assert sandbox.run_code("true", language="bash").exit_code == 0
    assert sandbox.run_code("1").exit_code is None, "Python cells have none"


def test_a_context_is_for_one_language(sandbox):
    context = sandbox.contexts.create(language="bash", env={"WORD": "hi"})
    assert sandbox.run_code("echo $WORD", context=context).stdout == "hi\n"
    with pytest.raises(InvalidInput, match="is for bash"):
        sandbox.run_code("1", context=context, language="python")
    sandbox.contexts.delete(context)


def test_what_is_not_there_is_refused(make):
    sandbox = make(env={"PATH": "/nowhere"})
    with pytest.raises(Unsupported, match=r"go needs go, and this sandbox does not have it.*golang-go"):
        sandbox.run_code("package main", language="go")
    with pytest.raises(Unsupported, match="javascript needs node"):
        sandbox.contexts.create(language="js")
    with pytest.raises(InvalidInput, match="There is no language 'klingon'"):
        sandbox.run_code("1", language="klingon")


@needs_node
def test_a_node_that_reads_no_types_is_refused_as_a_missing_tool_is(make):
    sandbox = make()
    ready = "require('module').stripTypeScriptTypes ? 0 : 1"
    if sandbox.run(["node", "-e", f"process.exit({ready})"]).success:
        pytest.skip("this node reads types")
    for _ in range(2):
        with pytest.raises(
            Unsupported, match=r"^typescript needs node 22\.13 or newer, or tsx, and this sandbox has none"
        ):
            sandbox.run_code("let n: number = 1", language="typescript")
    stub = "exports.transformSync = code => ({ code: code.replace(': number', '') })"
    sandbox.files.write("node_modules/esbuild/index.js", stub)
    assert sandbox.run_code("let n: number = 1; n", language="typescript").text == "1", "the context waits for one"


@needs_node
def test_results_of_javascript_are_rich(sandbox):
    done = sandbox.run_code("console.log('said'); ({a: [1, 2]})", language="javascript")
    assert (done.stdout, done.text, done.results[0].json) == ("said\n", "{ a: [ 1, 2 ] }", {"a": [1, 2]})
    pieces = list(sandbox.stream_code("console.log(1); display(2); 3", language="js"))
    assert [getattr(piece, "text", None) for piece in pieces] == ["1\n", "2", "3"]


@pytest.mark.network
@needs_node
@pytest.mark.parametrize("tool", thorough.turns(["esbuild", "sucrase", "typescript@5"]))
def test_typescript_with_what_npm_installs(sandbox, tmp_path, tool):
    if shutil.which("npm") is None:
        pytest.skip("there is no npm here")
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", tool]
    installed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    if installed.returncode != 0:
        pytest.skip(f"npm cannot install it here: {installed.stderr[-200:]}")
    place = tool.partition("@")[0]
    sandbox.files.upload(tmp_path, place)
    context = sandbox.contexts.create(language="typescript", workdir=place)
    code = "interface P { a: number }\nenum E { A = 5 }\nconst p: P = { a: 1 };\n"
    code += "function add<T extends P>(x: T): number { return x.a + E.A }"
    assert sandbox.run_code(code, context=context).error is None
    assert sandbox.run_code("import { sep } from 'path';\nadd(p as P) + sep", context=context).text == "'6/'"
    assert sandbox.run_code("const broken: number = ;", context=context).error.name == "SyntaxError"
