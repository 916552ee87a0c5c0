from __future__ import annotations

import os
import pickle
import threading

import pytest

from atoll import InvalidInput


def commands(sandbox):
    return [process.command for process in sandbox.processes()]


def test_chunks_come_while_the_command_runs_and_the_result_after_the_last(sandbox):
    output = sandbox.stream("rm -f go; echo first; while [ ! -e go ]; do sleep 0.01; done; echo second >&2; exit 4")
    first = next(output)
    assert first == ("stdout", "first\n")
    assert output.result is None
    sandbox.files.write("go", "")
    assert list(output) == [("stderr", "second\n")]
    assert output.result is not None
    assert (output.result.exit_code, output.result.stdout) == (4, "")
    assert list(output) == []


def test_a_chunk_never_ends_within_a_character(sandbox):
    output = sandbox.stream(r"rm -f go; printf 'a\342\202'; until [ -e go ]; do sleep 0.01; done; printf '\254b\303'")
    assert next(output).text == "a"
    sandbox.files.write("go", "")
    assert "".join(chunk.text for chunk in output) == "€b\ufffd"


def test_the_command_starts_with_the_first_chunk_and_bad_input_is_refused_before(sandbox):
    sandbox.run("rm -f started")
    output = sandbox.stream("touch started; echo x")
    assert not sandbox.files.exists("started")
    with output:
        assert next(output).text == "x\n"
    assert sandbox.files.exists("started")
    with pytest.raises(InvalidInput):
        sandbox.stream([])


def test_leaving_early_kills_the_command_and_all_that_it_started(sandbox, eventually):
    with sandbox.stream("echo x; sleep 1001.5 & sleep 1001.5") as output:
        next(output)
        assert any("1001.5" in command for command in commands(sandbox))
    eventually(lambda: not any("1001.5" in command for command in commands(sandbox)))
    assert list(output) == []
    assert output.result is None


def test_dropping_the_object_kills_the_command(sandbox, eventually):
    output = sandbox.stream("echo x; sleep 1002.5")
    next(output)
    del output
    eventually(lambda: not any("1002.5" in command for command in commands(sandbox)))


def test_closing_from_another_thread_ends_the_iteration(sandbox, eventually):
    output = sandbox.stream("echo x; sleep 1003.5")
    next(output)
    taken = []
    reader = threading.Thread(target=lambda: taken.extend(output))
    reader.start()
    output.close()
    reader.join(30)
    assert not reader.is_alive()
    assert taken == []
    eventually(lambda: not any("1003.5" in command for command in commands(sandbox)))


def test_a_reader_that_is_slow_holds_the_command_back(sandbox):
    """Backpressure: the writer stops after the windows and pipes are full, long before it is done."""
    sandbox.run("rm -f done")
    with sandbox.stream("head -c 50000000 /dev/zero; touch done") as output:
        next(output)
        assert not sandbox.files.exists("done")
        total = 0
        for chunk in output:
            total += len(chunk.text)
    assert sandbox.files.exists("done")
    assert total > 49_000_000


def test_stdin_and_timeout_work_as_in_run(sandbox):
    assert "".join(chunk.text for chunk in sandbox.stream("cat", stdin=b"x" * 3_000_000)) == "x" * 3_000_000
    output = sandbox.stream("sleep 1000", timeout=0.3)
    assert list(output) == []
    assert output.result is not None
    assert output.result.timed_out


def test_max_output_bounds_a_stream_that_asks_for_it(sandbox):
    output = sandbox.stream("head -c 100000 /dev/zero", max_output=1000)
    assert sum(len(chunk.text) for chunk in output) == 1000
    assert output.result is not None
    assert output.result.truncated


def test_an_open_stream_keeps_no_descriptor_after_its_end(sandbox):
    list(sandbox.stream("echo x"))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(6):
        list(sandbox.stream("echo x"))
        with sandbox.stream("echo x; sleep 1000") as output:
            next(output)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_chunk_prints_as_its_text(sandbox):
    assert "".join(str(chunk) for chunk in sandbox.stream("echo one; echo two")) == "one\ntwo\n"


def test_a_chunk_has_the_bytes_that_were_written(sandbox):
    output = sandbox.stream(r"rm -f go; printf 'a\342\202'; until [ -e go ]; do :; done; printf '\254\377b\303'")
    chunks = [next(output)]
    sandbox.files.write("go", "")
    chunks += list(output)
    assert [chunk.data for chunk in chunks] == [b"a", b"\xe2\x82\xac\xffb", b"\xc3"]
    assert [tuple(chunk) for chunk in pickle.loads(pickle.dumps(chunks))][1:] == [
        ("stdout", "€\ufffdb"),
        ("stdout", "\ufffd"),
    ]
    assert pickle.loads(pickle.dumps(chunks))[1].data == b"\xe2\x82\xac\xffb"


def test_a_process_gives_its_bytes_too(sandbox):
    with sandbox.start(r"printf 'a\377'; printf '\376' >&2") as process:
        done = process.wait()
    assert (done.stdout, done.stdout_bytes, done.stderr_bytes) == ("a\ufffd", b"a\xff", b"\xfe")
