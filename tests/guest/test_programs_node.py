"""JavaScript and TypeScript in contexts: state, results, errors, and the ends of cells and of node."""

import os
import shutil

import pytest
from tests.guest.rawclient import Guest
from tests.guest.support import alive, failure, put, text

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """One guest and one node for tests that leave them as they found them."""
    guest = Guest(tmp_path_factory.mktemp("node"))
    yield guest.connect()
    guest.close()


@pytest.fixture
def js(kept):
    def run(code, **arguments):
        return kept.do("code", code=code, language="js", context="js", **arguments)

    return run


@pytest.fixture
def own(client):
    """A node of one's own, to end."""

    def run(code, **arguments):
        return client.do("code", code=code, language="javascript", context="js", **arguments)

    run.client = client
    return run


def bundle(ended):
    assert failure(ended) is None, failure(ended)
    return ended.events[-1]["result"]


def test_declarations_last_and_may_be_made_again(js):
    js("let a = 1; const b = 2; var c = 3; class D { e() { return 4 } } function f() { return a + b + c }")
    assert text(js("f() + new D().e()")) == "10"
    assert text(js("let a = 10; const b = 20; class D { e() { return 40 } } f() + new D().e()")) == "73"


def test_the_last_expression_is_the_main_result(js):
    assert text(js("1 + 1")) == "2"
    assert text(js("'text'")) == "'text'"
    assert text(js("null")) == "null"
    assert js("undefined").events == []
    assert js("let quiet = 1").events == []
    assert js("").events == []
    assert text(js("new Map([[1, {a: 2}]])")) == "Map(1) { 1 => { a: 2 } }"


def test_plain_objects_come_as_json_too(js):
    assert bundle(js("({a: [1, null, 'x'], b: {c: true}})"))["application/json"] == {
        "a": [1, None, "x"],
        "b": {"c": True},
    }
    for lossy in ("[1n]", "({a: undefined})", "[NaN]", "({get a() { return 1 }})", "new Date(0)", "[, 1]"):
        assert set(bundle(js(lossy))) == {"text/plain"}, lossy


def test_display_shows_more_than_one_value(js):
    ended = js("display([1]); display({'text/html': '<b>x</b>'}, {raw: true}); 'main'")
    assert [(event["result"], event["main"]) for event in ended.events] == [
        ({"text/plain": "[ 1 ]", "application/json": [1]}, False),
        ({"text/html": "<b>x</b>"}, False),
        ({"text/plain": "'main'"}, True),
    ]
    rich = js("({[Symbol.for('Jupyter.display')]() { return {'text/markdown': '# hi'} }})")
    assert bundle(rich) == {"text/markdown": "# hi"}


def test_output_is_in_order(js):
    ended = js(
        "console.log('a'); console.error('b'); console.log('c'); process.stdout.write('d'); console.warn('e'); 0"
    )
    assert [(stream, bytes(data)) for stream, data in ended.chunks] == [
        (1, b"a\n"), (2, b"b\n"), (1, b"c\n"), (1, b"d"), (2, b"e\n"),
    ]  # fmt: skip


def test_much_output_and_a_large_result(js):
    assert js("console.log('x'.repeat(3000000))").stdout == b"x" * 3_000_000 + b"\n"
    ended = js("'y'.repeat(3000000)")
    assert ended.ok["truncated"] is True
    assert len(bundle(ended)["text/plain"]) > 100_000


def test_await_at_top_level_and_a_promise_at_the_end(js):
    assert text(js("const waited = await new Promise(ok => setTimeout(() => ok(6), 10)); waited + 1")) == "7"
    assert text(js("async function main() { await null; return 'done' }\nmain()")) == "'done'"
    assert failure(js("(async () => { throw new RangeError('late') })()"))["name"] == "RangeError"


def test_errors_have_name_value_and_a_clean_story(js):
    error = failure(js("console.log('before');\nfunction g() { throw new TypeError('bad') }\ng()"))
    assert (error["name"], error["value"]) == ("TypeError", "bad")
    lines = error["traceback"].splitlines()
    assert lines[0] == "TypeError: bad"
    assert ":2:" in lines[1]
    assert ":3:1" in lines[2]
    assert len(lines) == 3, "nothing of ours is in it"
    assert failure(js("throw 'text'")) == {"name": "Thrown", "value": "'text'", "traceback": "Uncaught 'text'\n"}
    assert (
        "Caused by: Error: inner" in failure(js("throw new Error('outer', {cause: new Error('inner')})"))["traceback"]
    )


def test_output_before_an_error_is_kept_and_the_code_runs_once(js):
    ended = js("globalThis.runs = (globalThis.runs || 0) + 1; console.log('kept'); nothing.here")
    assert ended.stdout == b"kept\n"
    assert failure(ended)["name"] == "ReferenceError"
    assert text(js("runs")) == "1"


def test_a_syntax_error_shows_the_line(js):
    error = failure(js("let fine = 1;\nlet broken = ;"))
    assert error["name"] == "SyntaxError"
    assert error["traceback"].splitlines()[1:3] == ["let broken = ;", "             ^"]


def test_errors_of_callbacks_and_forgotten_promises_are_told(js):
    late = "setTimeout(() => { throw new Error('from a timer') }, 5); await new Promise(() => {})"
    assert failure(js(late))["value"] == "from a timer"
    ended = js("Promise.reject(new Error('forgotten')); await new Promise(ok => setTimeout(ok, 20)); 1")
    assert b"Uncaught (in promise) Error: forgotten" in ended.stderr
    assert text(ended) == "1"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("Promise.reject(new Error('at once')); 1", b"Uncaught (in promise) Error: at once\n"),
        ("(async () => { await 0; throw new TypeError('later') })(); 1", b"Uncaught (in promise) TypeError: later\n"),
        ("globalThis.setImmediate = null; Promise.reject(7); 1", b"Uncaught (in promise) 7\n"),
        ("Promise.reject(new Error('looked after')).catch(() => {}); 1", b""),
    ],
)
def test_a_forgotten_promise_is_told_by_the_cell_that_forgot_it(js, code, told):
    js("let kept = 41")
    ended = js(code)
    assert (text(ended), failure(ended)) == ("1", None)
    assert ended.stderr.startswith(told)
    assert bool(ended.stderr) == bool(told)
    after = js("kept")
    assert (text(after), after.stderr) == ("41", b"")


def test_require_and_both_kinds_of_import(js):
    assert text(js("require('path').basename('/a/b')")) == "'b'"
    assert text(js("(await import('node:path')).basename('/a/c')")) == "'c'"
    code = "import fs, { existsSync as there } from 'fs';\nimport * as os from \"node:os\";\nimport 'path'\n"
    code += "[there('/'), fs.existsSync('/nope'), os.EOL]"
    assert bundle(js(code))["application/json"] == [True, False, "\n"]
    assert text(js("// import x from 'y'\n'import(1) export default'")) == "'import(1) export default'"
    assert text(js("export const exported = 5;\nexport function twice(x) { return 2 * x }\ntwice(exported)")) == "10"


def test_modules_of_the_workspace_are_found(guest, own):
    put(guest, "node_modules/mine/index.js", b"module.exports = 'cjs'")
    put(guest, "node_modules/esm/package.json", b'{"type": "module", "exports": "./index.js"}')
    put(guest, "node_modules/esm/index.js", b"export default 'esm'")
    put(guest, "local.mjs", b"export const here = 'local'")
    code = "import esm from 'esm'; import { here } from './local.mjs'; [require('mine'), esm, here]"
    assert bundle(own(code))["application/json"] == ["cjs", "esm", "local"]


def test_nobody_can_be_asked(js):
    assert "nobody to ask" in failure(js("prompt('name?')"))["value"]
    code = "const lines = require('readline').createInterface({input: process.stdin}); await new Promise(() => {})"
    assert "nobody to ask" in failure(js(code))["value"]


def test_env_and_cwd_for_one_cell(js):
    assert (
        text(js("process.env.ONE + ' ' + process.cwd().endsWith('workspace')", env={"ONE": "1"}, cwd=".")) == "'1 true'"
    )
    assert text(js("process.env.ONE")) is None


def test_processes_of_a_cell_are_heard_and_have_none_of_our_descriptors(js):
    script = "echo out; echo err >&2; ls /proc/self/fd"
    ended = js(f"require('child_process').spawnSync('sh', ['-c', '{script}'], {{stdio: 'inherit'}}); 0")
    assert ended.stderr == b"err\n"
    assert ended.stdout.split() == [b"out", b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "code",
    [
        "while (true) {}",
        "await null; while (true) {}",
        "await new Promise(() => {})",
        "for (;;) { await new Promise(ok => setTimeout(ok, 5)); globalThis.ticks = (globalThis.ticks || 0) + 1 }",
        "require('child_process').execSync('sleep 60')",
    ],
)
def test_a_timeout_interrupts_and_keeps_the_state(own, code):
    own("let kept = 1")
    ended = own("console.log('before'); " + code, timeout=0.5)
    assert (ended.ok["timed_out"], ended.ok["state_lost"]) == (True, False)
    assert ended.stdout == b"before\n"
    assert failure(ended) is not None
    assert text(own("kept")) == "1"
    before = text(own("globalThis.ticks || 0"))
    assert text(own("await new Promise(ok => setTimeout(ok, 50)); globalThis.ticks || 0")) == before, "it goes on"


def test_what_cannot_be_interrupted_is_killed_and_the_loss_is_told(own):
    own("let kept = 1")
    ended = own("await new Promise(ok => setTimeout(ok, 1)); while (true) {}", timeout=0.3)
    assert (ended.ok["timed_out"], ended.ok["state_lost"]) == (True, True)
    assert "lost" in failure(ended)["value"]
    assert failure(own("kept"))["name"] == "ReferenceError"


def test_interrupt(own):
    own("let kept = 1")
    channel = own.client.open("code", code="console.log('up'); while (true) {}", context="js")
    own.client.receive()
    assert own.client.do("interrupt", context="js").ok == {"interrupted": True}
    ended = own.client.finish(channel)
    assert failure(ended)["name"] == "Interrupted"
    assert own.client.do("interrupt", context="js").ok == {"interrupted": False}
    assert text(own("kept")) == "1"


def test_process_exit_and_a_kill_are_told_as_what_they_are(own):
    ended = own("console.log('bye'); process.exit(3)")
    assert (ended.stdout, ended.ok["exit_code"], ended.ok["state_lost"]) == (b"bye\n", 3, True)
    assert failure(ended)["name"] == "ContextDied"
    assert "node exited with 3" in failure(ended)["value"]
    ended = own("process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})")
    assert "signal 9 ended node" in failure(ended)["value"]
    assert text(own("'alive'")) == "'alive'"


def test_deleting_the_context_ends_node(own):
    pid = int(text(own("process.pid")))
    assert own.client.do("delete_context", context="js").error is None
    assert not alive(pid)


def test_code_that_writes_to_our_socket_harms_only_its_context(own):
    ended = own("require('fs').writeSync(3, 'nonsense'); await new Promise(() => {})")
    assert failure(ended) is not None
    assert ended.ok["state_lost"] is True
    assert text(own("1")) == "1"


def test_typescript_says_what_it_needs(client):
    ended = client.do("code", code="const n: number = 1; n", language="ts")
    if ended.error is None:
        assert text(ended) == "1"
    else:
        assert ended.error["code"] == "unsupported"
        assert ended.error["message"].startswith("typescript needs node 22.13 or newer, or tsx, and this sandbox has")
        hollow = "class Missing extends Error { name = 'Missing' }; throw new Missing('x')"
        thrown = client.do("code", code=hollow, context="hollow", language="js")
        assert failure(thrown)["name"] == "Missing", "an error of the cell's own is none of ours"


STRIPPER = b"""
exports.transform = (code, options) => {
  if (code.includes('= ;')) throw new Error('Unexpected token (1:5)');
  return { code: code.replace(/interface \\w+ \\{[^}]*\\}/g, '').replace(/: (number|string|P)\\b/g, '') };
};
"""


def test_typescript_uses_what_the_sandbox_has(guest, client):
    """A stand-in with the interface of sucrase; the real ones are tried in tests/sandbox, where there is a network."""
    put(guest, "node_modules/sucrase/index.js", STRIPPER)
    code = "interface P { a: number }\nconst p: P = { a: 1 };\nimport { sep } from 'path';\np.a + sep"
    assert text(client.do("code", code=code, language="typescript")) == "'1/'"
    assert (
        text(client.do("code", code="p.a + (1 as any as number)".replace(" as any as number", ""), language="ts"))
        == "2"
    )
    assert failure(client.do("code", code="let x: number = ;", language="ts"))["name"] == "SyntaxError"


def test_a_missing_node_is_refused_with_the_way_to_get_it(tmp_path):
    guest = Guest(tmp_path, env={"PATH": os.path.join(str(tmp_path), "nowhere")})
    refused = guest.connect().do("code", code="1", language="javascript")
    assert refused.error["code"] == "unsupported"
    assert "Install it on the host (`apt-get install nodejs`)" in refused.error["message"]
    guest.close()


def test_what_is_missing_may_be_more_than_one(tmp_path):
    guest = Guest(tmp_path, env={"PATH": os.path.join(str(tmp_path), "nowhere")})
    message = guest.connect().do("code", code="fn main() {}", language="rust").error["message"]
    assert "does not have them. Install them on the host (`apt-get install rustc gcc`), or" in message
    assert message.endswith("use an image that has them.")
    guest.close()


def test_a_missing_node_in_an_image_is_refused_without_a_word_of_the_host(tmp_path):
    guest = Guest(tmp_path, env={"PATH": os.path.join(str(tmp_path), "nowhere")}, image=True)
    refused = guest.connect().do("code", code="1", language="javascript")
    assert refused.error["code"] == "unsupported"
    assert refused.error["message"].endswith("use an image that has it.")
    assert "host" not in refused.error["message"]
    guest.close()


def test_a_cell_that_is_there_before_the_restart_is_done_runs_in_a_new_node(own):
    for number in range(10):
        text(own("var before = 1"))
        restart = own.client.open("restart_context", context="js")
        assert text(own("typeof before")) == "'undefined'", number
        assert own.client.finish(restart).error is None
