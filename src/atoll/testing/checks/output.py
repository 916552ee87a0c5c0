"""Output of commands: whole, live, apart, bounded and said to be so."""

from __future__ import annotations

from ...sync import Sandbox
from ...types import Capability, Chunk
from .. import waiting
from ..base import Checks
from ..needs import needs

LARGE = 2 << 20


def _until(path: str) -> str:
    return f"while [ ! -e {path} ]; do sleep 0.02; done"


class OutputChecks(Checks):
    """Output."""

    @needs(Capability.COMMANDS)
    def test_stdout_and_stderr_are_apart(self, sandbox: Sandbox) -> None:
        done = sandbox.run("echo out; echo err >&2; echo more")
        assert (done.stdout, done.stderr) == ("out\nmore\n", "err\n")

    @needs(Capability.COMMANDS)
    def test_large_output_arrives_whole(self, sandbox: Sandbox) -> None:
        done = sandbox.run(f"head -c {LARGE} /dev/zero | tr '\\0' a; head -c {LARGE} /dev/zero | tr '\\0' b >&2")
        assert done.stdout == "a" * LARGE
        assert done.stderr == "b" * LARGE
        assert not done.truncated

    @needs(Capability.COMMANDS)
    def test_output_over_the_limit_is_cut_and_said_to_be(self, sandbox: Sandbox) -> None:
        done = sandbox.run("head -c 100000 /dev/zero | tr '\\0' a; exit 3", max_output=1000)
        assert done.truncated
        assert done.stdout
        assert set(done.stdout) == {"a"}
        assert len(done.stdout) <= 1000
        assert done.exit_code == 3

    @needs(Capability.COMMANDS)
    def test_output_within_the_limit_is_not_said_to_be_cut(self, sandbox: Sandbox) -> None:
        done = sandbox.run("printf aaaa; printf bbbb >&2", max_output=8)
        assert (done.stdout, done.stderr, done.truncated) == ("aaaa", "bbbb", False)

    @needs(Capability.COMMANDS)
    def test_endless_output_ends_with_the_timeout(self, sandbox: Sandbox) -> None:
        done = sandbox.run("yes", max_output=10_000, timeout=0.5)
        assert (done.timed_out, done.truncated) == (True, True)
        assert 0 < len(done.stdout) <= 10_000

    @needs(Capability.COMMANDS)
    def test_output_that_is_no_text_still_arrives(self, sandbox: Sandbox) -> None:
        done = sandbox.run("printf 'a\\377b\\0c\\303\\251\\r\\n'")
        assert done.stdout == "a�b\0cé\r\n"

    @needs(Capability.COMMANDS)
    def test_a_stream_is_live(self, sandbox: Sandbox, place: str) -> None:
        seen: list[Chunk] = []
        stream = sandbox.stream(f"echo first; {_until('go')}; echo second", workdir=place, timeout=waiting.HURRY)
        for chunk in stream:
            if not seen:
                # The command goes on only because its first output is here already.
                sandbox.files.write(f"{place}/go", "")
            seen.append(chunk)
        assert stream.result is not None
        assert not stream.result.timed_out, "the first output came only after the command had ended"
        assert [chunk.text for chunk in seen] == ["first\n", "second\n"]

    @needs(Capability.COMMANDS)
    def test_a_stream_tells_which_and_how_it_ended(self, sandbox: Sandbox) -> None:
        stream = sandbox.stream("echo out; echo err >&2; exit 7")
        before = stream.result
        assert before is None
        texts = {"stdout": "", "stderr": ""}
        for chunk in stream:
            texts[chunk.stream] += chunk.text
        assert texts == {"stdout": "out\n", "stderr": "err\n"}
        assert stream.result is not None
        assert stream.result.exit_code == 7

    @needs(Capability.COMMANDS)
    def test_callbacks_hear_output_while_it_comes(self, sandbox: Sandbox, place: str) -> None:
        heard: list[str] = []

        def hear(text: str) -> None:
            if not heard:
                sandbox.files.write(f"{place}/go", "")
            heard.append(text)

        script = f"echo first; {_until('go')}; echo second; echo aside >&2"
        aside: list[str] = []
        done = sandbox.run(script, workdir=place, timeout=waiting.HURRY, on_stdout=hear, on_stderr=aside.append)
        assert not done.timed_out, "the first output came only after the command had ended"
        assert "".join(heard) == done.stdout == "first\nsecond\n"
        assert "".join(aside) == done.stderr == "aside\n"

    @needs(Capability.COMMANDS)
    def test_a_chunk_never_ends_within_a_character(self, sandbox: Sandbox, place: str) -> None:
        script = f"printf 'x\\303'; touch half; {_until('go')}; printf '\\251y'"
        texts = []
        for chunk in sandbox.stream(script, workdir=place, timeout=waiting.HURRY):
            texts.append(chunk.text)
            sandbox.files.write(f"{place}/go", "")
        assert texts == ["x", "éy"]

    @needs(Capability.COMMANDS)
    def test_a_slow_reader_loses_nothing(self, sandbox: Sandbox) -> None:
        stream = sandbox.stream(f"head -c {2 * LARGE} /dev/zero | tr '\\0' a")
        size = len(next(stream).text)
        # Another command has the line while nobody reads the first one.
        assert sandbox.run("echo between").stdout == "between\n"
        assert size + sum(len(chunk.text) for chunk in stream) == 2 * LARGE
        assert stream.result is not None
        assert not stream.result.truncated
