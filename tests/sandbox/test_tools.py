"""Functions of the host, and `input()`: what code in a cell may ask, and what it may not."""

from __future__ import annotations

import functools
import os
import threading
import time

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, strategies as st

from atoll import AsyncSandbox, InvalidInput, Sandbox
from atoll.client.tools import Answering, Tools
from atoll.io import BlockingIO, drive


class Unshowable(Exception):
    def __str__(self):
        raise OSError("not even that")


def fail(kind="ValueError"):
    raise {"ValueError": ValueError("no such luck"), "Unshowable": Unshowable()}[kind]


async def coroutine(x):
    await anyio.lowlevel.checkpoint()
    return x * 2


FUNCTIONS = {
    "add": lambda a, b=0: a + b,
    "echo": lambda *arguments, **keywords: [list(arguments), keywords],
    "fail": fail,
    "size": len,
    "much": lambda size: "x" * size,
    "strange": lambda: {1, 2},
    "slow": time.sleep,
    "coroutine": functools.partial(coroutine),
    "helper": threading.get_ident,
}


@pytest.fixture(scope="module")
def tooled():
    with Sandbox.create("fake", timeout=60, tools=Tools(FUNCTIONS, timeout=0.8, max_calls=50)) as made:
        yield made


@pytest.fixture
def run(tooled):
    context = "c" + os.urandom(6).hex()
    yield lambda code, **options: tooled.run_code(code, context=context, **options)
    tooled.contexts.delete(context)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("add(1, b=2)", "3"),
        ("tools.add(1)", "1"),
        ("echo(None, True, 1.5, 'grü', [1, [2]], {'k': {'n': None}}, key=[])",
         "[[None, True, 1.5, 'grü', [1, [2]], {'k': {'n': None}}], {'key': []}]"),
        ("echo((1, 2), {3: 4})", "[[[1, 2], {'3': 4}], {}]"),
        ("size('x' * 900_000)", "900000"),
        ("len(much(500_000))", "500000"),
        ("sorted(dir(tools))", repr(sorted(FUNCTIONS))),
        ("add", "<tool add of the host>"),
        ("add = 5\nadd + tools.add(1)", "6"),
        ("[add(i, i) for i in range(40)][-1]", "78"),
        ("import asyncio\nasync def f(): return add(2, 3)\nawait f()", "5"),
    ],
)  # fmt: skip
def test_arguments_and_results_are_json_values(run, code, text):
    done = run(code)
    assert (done.text, done.error) == (text, None)


@pytest.mark.parametrize(
    ("code", "name", "said"),
    [
        ("fail()", "ToolError", "ValueError: no such luck"),
        ("fail('Unshowable')", "ToolError", "Unshowable"),
        ("strange()", "ToolError", "JSON"),
        ("add()", "ToolError", "TypeError"),
        ("add(1, c=2)", "ToolError", "TypeError"),
        ("much(10_000_000)", "ToolError", "may pass"),
        ("size('x' * 9_000_000)", "ValueError", "at most"),
        ("echo({1, 2})", "TypeError", "JSON"),
        ("echo(b'bytes')", "TypeError", "JSON"),
        ("loop = []\nloop.append(loop)\necho(loop)", "TypeError", "JSON"),
        ("slow(30)", "ToolError", "within 0.8 s"),
        ("coroutine(1)", "ToolError", "AsyncSandbox"),
        ("tools.nothing()", "AttributeError", "offers no tool"),
        ("add.__class__('os.system', add._call)('true')", "ToolError", "no such tool"),
        ("add._call('__class__', (), {})", "ToolError", "no such tool"),
        ("import pickle\npickle.dumps(add)", "TypeError", "cannot be stored"),
    ],
)
def test_what_goes_wrong_is_an_error_inside_and_the_cell_may_go_on(run, code, name, said):
    done = run(code)
    assert (done.error.name, said in done.error.value) == (name, True), done.error
    assert "atoll" not in done.error.traceback
    last = code.splitlines()[-1]
    after = run(f"try:\n    {last}\nexcept Exception as error:\n    print(type(error).__name__)\nadd(20, 22)")
    assert (after.text, after.stdout) == ("42", f"{name}\n")


def test_a_cell_has_so_many_calls_and_the_next_one_as_many_again(run):
    code = "made = 0\ntry:\n    while True: add(1, 1); made += 1\nexcept Exception as e:\n    print(e)\nmade"
    for _ in range(2):
        done = run(code)
        assert (done.text, "50 calls" in done.stdout) == ("50", True)


def test_threads_of_a_cell_get_their_own_answers(run):
    code = """
import threading
answers = {}
def ask(number):
    for turn in range(5): answers[number, turn] = add(number * 100, turn)
threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
all(value == number * 100 + turn for (number, turn), value in answers.items()), len(answers)
"""
    assert run(code).text == "(True, 40)"


def test_a_thread_that_outlives_its_cell_is_refused_and_breaks_nothing(run):
    code = """
import threading
said, going = [], True
def ask():
    while going:
        try: add(1, 1)
        except Exception as error: said.append(type(error).__name__)
thread = threading.Thread(target=ask, daemon=True); thread.start()
"""
    assert run(code).error is None
    for turn in range(20):
        assert run(f"{turn}", timeout=60).text == str(turn)
    assert (
        run("going = False\nthread.join()\nset(said) <= {'RuntimeError', 'ToolError'}, bool(said)").text
        == "(True, True)"
    )


def test_a_forked_child_is_refused(run):
    code = """
import os
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    try: add(1, 1); said = 'answered'
    except RuntimeError as error: said = str(error)
    os.write(w, said.encode()); os._exit(0)
os.waitpid(pid, 0)
os.read(r, 1000).decode(), add(1, 1)
"""
    text = run(code).text
    assert "the process it runs in" in text
    assert text.endswith(", 2)")


def test_a_timeout_while_the_host_works_keeps_the_state(run):
    done = run("kept = 1\nslow(0.7)", timeout=0.3)
    assert (done.timed_out, done.state_lost, done.success) == (True, False, False)
    assert run("kept, add(1, 1)").text == "(1, 2)"
    assert run("slow(0.7)", timeout=0.3).timed_out
    assert run("kept, add(1, 1)").text == "(1, 2)"


def test_code_can_catch_what_a_tool_raises(run):
    assert run("try: fail()\nexcept ToolError as error: text = str(error)\ntext").text.count("no such luck") == 1


def test_an_interrupted_question_is_not_answered_by_the_next_answer(run):
    assert run("slow(0.6)", timeout=0.1).timed_out
    for number in range(5):
        assert run(f"add({number}, 100)").text == str(number + 100)


def test_tools_belong_to_the_object_that_offers_them(tooled):
    context = "c" + os.urandom(6).hex()
    other = Sandbox.connect(tooled.id)
    third = Sandbox.connect(tooled.id, tools={"only": lambda: "third"})
    for _turn in range(3):
        assert tooled.run_code("add(1, 1)", context=context).text == "2"
        assert other.run_code("add(1, 1)", context=context).error.name in ("NameError", "RuntimeError", "ToolError")
        assert third.run_code("only()", context=context).text == "'third'"
        assert third.run_code("add(1, 1)", context=context).error.name == "NameError"
        assert third.run_code("tools.add(1, 1)", context=context).error.name == "AttributeError"
    tooled.contexts.delete(context)


def test_a_kept_tool_reaches_nobody_who_does_not_offer_it(tooled):
    context = "c" + os.urandom(6).hex()
    tooled.run_code("kept = add", context=context)
    third = Sandbox.connect(tooled.id, tools={"only": lambda: "third"})
    for _turn in range(2):
        done = third.run_code("kept(1, 1)", context=context)
        assert done.error.name == "ToolError"
        assert "no such tool" in done.error.value
    tooled.contexts.delete(context)


@pytest.mark.parametrize(
    "tools",
    [
        {"not a name": len}, {"class": len}, {"__import__": len}, {"input": len}, {"tools": len}, {"x": 5},
        {5: len}, [len], "add", {"": len},
    ],
)  # fmt: skip
def test_what_is_no_tool_is_refused_before_anything_is_made(tools):
    with pytest.raises(InvalidInput):
        Sandbox.create("fake", tools=tools, labels={"refused": "tools"})
    assert Sandbox.list({"refused": "tools"}) == []


def test_names_of_pythons_own_are_refused_in_words():
    with pytest.raises(InvalidInput, match="two leading underscores"):
        Tools({"__import__": len})


def test_coroutine_functions_are_refused_where_nobody_awaits_them(tooled):
    class Owner:
        async def method(self):
            pass

    for function in (coroutine, Owner().method):
        for tools in ({"ask": function}, Tools({"ask": function})):
            with pytest.raises(InvalidInput, match=r"'ask' is a coroutine function.*AsyncSandbox"):
                Sandbox.create("fake", tools=tools, labels={"refused": "coroutine"})
    assert Sandbox.list({"refused": "coroutine"}) == []
    with pytest.raises(InvalidInput, match="coroutine function"):
        Sandbox.connect(tooled.id, tools={"ask": coroutine})


@pytest.mark.parametrize("limits", [{"max_calls": 0}, {"max_calls": True}, {"timeout": -1}, {"max_size": "huge"}])
def test_limits_that_cannot_be_are_refused(limits):
    with pytest.raises(InvalidInput):
        Tools({"len": len}, **limits)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["only", "__class__", "only.__globals__", "os.system", "functions", ""]) | json_values
questions = (
    st.fixed_dictionaries(
        {}, optional={"tool": names, "arguments": json_values, "keywords": json_values, "input": json_values}
    )
    | json_values
)


@given(question=questions)
def test_no_question_reaches_anything_but_the_named_functions(question):
    """Whatever a hostile guest asks: an answer or a refusal, and only `only` was called."""
    called = []
    answering = Answering(
        BlockingIO(), Tools({"only": lambda *a, **k: called.append((a, k))}, timeout=None), lambda prompt: f"<{prompt}>"
    )
    answer = drive(answering.answer(question))
    assert len(answer) == 1
    if "value" in answer and called:
        assert question["tool"] == "only"
        assert called == [(tuple(question["arguments"]), question["keywords"])]
    elif "value" in answer:
        assert answer["value"] == f"<{question['input']}>"
    else:
        assert isinstance(answer["error"]["message"], str)


# The function `input`


def test_input_is_answered_and_its_prompt_is_output(run):
    prompts = []

    def answer(prompt):
        prompts.append(prompt)
        return f"answer {len(prompts)}"

    done = run("print('hello')\na = input('first? ')\nb = input()\n(a, b)", on_input=answer)
    assert (done.text, done.stdout, prompts) == ("('answer 1', 'answer 2')", "hello\nfirst? ", ["first? ", ""])


def test_input_without_an_answer_is_an_error_inside(run):
    assert run("input('x')", on_input=lambda _: None).error.name == "EOFError"
    error = run("input('x')").error
    assert (error.name, "on_input" in error.value) == ("RuntimeError", True)
    assert run("input('x')", on_input=lambda _: 5).text == "'5'"


def test_what_on_input_raises_reaches_the_caller_and_the_cell_is_stopped(run):
    def refuse(_prompt):
        raise LookupError("mine")

    run("kept = 1")
    with pytest.raises(LookupError, match="mine"):
        run("while True:\n    try: input('x')\n    except EOFError: pass", on_input=refuse)
    assert run("kept").text == "1"


def test_input_from_threads(run):
    code = """
import threading
got = []
threads = [threading.Thread(target=lambda n=n: got.append(input(str(n)) == f'<{n}>')) for n in range(6)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
all(got), len(got)
"""
    assert run(code, on_input=lambda prompt: f"<{prompt}>").text == "(True, 6)"


def test_a_long_prompt_and_a_long_answer_pass(run):
    done = run("len(input('p' * 100_000))", on_input=lambda prompt: "a" * len(prompt) * 2)
    assert (done.text, len(done.stdout)) == ("200000", 100_000)


@pytest.mark.anyio
async def test_the_asynchronous_form_awaits_tools_input_and_listeners():
    heard = []

    async def hear(thing):
        await anyio.lowlevel.checkpoint()
        heard.append(getattr(thing, "text", thing))

    async def answer(prompt):
        await anyio.lowlevel.checkpoint()
        return prompt.upper()

    async def forever():
        await anyio.sleep(1000)

    tools = Tools({**FUNCTIONS, "coroutine": coroutine, "forever": forever}, timeout=0.3)
    async with await AsyncSandbox.create("fake", tools=tools) as sandbox:
        for _turn in range(2):
            heard.clear()
            done = await sandbox.run_code(
                "print(coroutine(4), add(1, 1))\ninput('name')", on_input=answer, on_stdout=hear, on_result=hear
            )
            assert done.error is None
            assert (done.text, "".join(heard)) == ("'NAME'", "8 2\nname'NAME'")
            assert (await sandbox.run_code("helper()")).text != str(threading.get_ident())
            error = (await sandbox.run_code("forever()")).error
            assert (error.name, "0.3 s" in error.value) == ("ToolError", True)
