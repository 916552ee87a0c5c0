"""`run`: what goes into a command, and how it ends."""

from __future__ import annotations

import hashlib
import io
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...errors import CommandFailed, FileMissing, InvalidInput
from ...sync import Sandbox
from ...types import Capability
from ..base import Checks
from ..needs import needs

AWKWARD = ["two words", "it's", 'say "hi"', "'''", "$HOME `id` \\", "line\nbreak", "", "*", "-n", "naïve ☃"]
LARGE = 3 << 20


class CommandChecks(Checks):
    """Commands."""

    @needs(Capability.COMMANDS)
    def test_exit_codes_are_told(self, sandbox: Sandbox) -> None:
        for code in (0, 1, 42, 255):
            done = sandbox.run(f"exit {code}")
            assert (done.exit_code, done.success) == (code, code == 0)
            assert (done.timed_out, done.truncated) == (False, False)

    @needs(Capability.COMMANDS)
    def test_a_signal_is_told_as_128_and_its_number(self, sandbox: Sandbox) -> None:
        assert sandbox.run("kill -TERM $$").exit_code == 128 + 15
        assert sandbox.run("kill -KILL $$").exit_code == 128 + 9

    @needs(Capability.COMMANDS)
    def test_text_goes_to_bash_where_there_is_one_and_else_to_sh(self, sandbox: Sandbox) -> None:
        own = "echo ${BASH_VERSION:+bash}"
        has_bash = sandbox.run(["/bin/sh", "-c", "test -x /bin/bash"]).success
        assert sandbox.run(own).stdout == ("bash\n" if has_bash else "\n")
        assert sandbox.run("echo $0", shell="sh").stdout == "/bin/sh\n"  # noqa: S604  # inside
        with sandbox.stream(own) as output:
            assert "".join(chunk.text for chunk in output) == sandbox.start(own).wait().stdout
        if has_bash:
            done = sandbox.run("set -o pipefail; [[ a == a ]] && echo {1..3}; source /dev/null; false | true")
            assert (done.exit_code, done.stdout) == (1, "1 2 3\n")

    @needs(Capability.COMMANDS)
    def test_a_shell_that_is_not_there_is_127(self, sandbox: Sandbox) -> None:
        assert sandbox.run("true", shell="no-such-shell").exit_code == 127  # noqa: S604  # inside
        for wrong in ("", True, 3, "-x"):
            with pytest.raises(InvalidInput, match="give the name of one"):
                sandbox.run("true", shell=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="a list is a program"):
            sandbox.run(["true"], shell="sh")  # noqa: S604  # inside

    @needs(Capability.COMMANDS)
    def test_a_program_that_is_not_there_is_127(self, sandbox: Sandbox) -> None:
        for command in ("no-such-program", ["no-such-program"], ["/no/such/program", "x"]):
            done = sandbox.run(command)
            assert done.exit_code == 127
            assert "no" in done.stderr

    @needs(Capability.COMMANDS)
    def test_a_file_that_is_no_program_is_126(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/data", "echo never", mode=0o644)
        assert sandbox.run("./data", workdir=place).exit_code == 126
        assert sandbox.run(["./data"], workdir=place).exit_code == 126
        assert sandbox.run("sh ./data", workdir=place).stdout == "never\n"

    @needs(Capability.COMMANDS)
    def test_arguments_of_a_list_arrive_as_they_are(self, sandbox: Sandbox) -> None:
        done = sandbox.run(["printf", "%s\\0", *AWKWARD], check=True)
        assert done.stdout.split("\0")[:-1] == AWKWARD

    @needs(Capability.COMMANDS)
    def test_arguments_may_be_any_bytes(self, sandbox: Sandbox) -> None:
        done = sandbox.run(["sh", "-c", 'printf %s "$1" | od -An -tx1', "sh", b"\xff\xfe\x80"], check=True)
        assert done.stdout.split() == ["ff", "fe", "80"]

    @needs(Capability.COMMANDS)
    def test_text_goes_to_a_shell_with_every_quote(self, sandbox: Sandbox) -> None:
        script = """x='''a'''; y="b'c"; cat <<'END'\nthree ''' and \"\"\" quotes $x\nEND\necho "$x$y" | tr a-z A-Z"""
        assert sandbox.run(script).stdout == "three ''' and \"\"\" quotes $x\nAB'C\n"

    @needs(Capability.COMMANDS)
    def test_a_large_argument_arrives_whole(self, sandbox: Sandbox) -> None:
        assert sandbox.run(["sh", "-c", "echo ${#1}", "sh", "x" * 100_000]).stdout == "100000\n"

    @needs(Capability.COMMANDS)
    def test_stdin_is_text_or_bytes_or_a_file_or_pieces(self, sandbox: Sandbox) -> None:
        for stdin in ("grüße\n", "grüße\n".encode(), io.BytesIO("grüße\n".encode()), iter(["grü", "ße\n"])):
            assert sandbox.run("cat", stdin=stdin).stdout == "grüße\n"

    @needs(Capability.COMMANDS)
    def test_without_stdin_a_command_sees_its_end(self, sandbox: Sandbox) -> None:
        done = sandbox.run("cat; echo over", timeout=20)
        assert (done.stdout, done.timed_out) == ("over\n", False)

    @needs(Capability.COMMANDS)
    def test_stdin_of_any_size_arrives_whole(self, sandbox: Sandbox) -> None:
        data = bytes(range(256)) * (LARGE // 256)
        done = sandbox.run("sha256sum", stdin=data, check=True)
        assert done.stdout.split()[0] == hashlib.sha256(data).hexdigest()

    @needs(Capability.COMMANDS)
    def test_large_input_and_large_output_at_once_do_not_block(self, sandbox: Sandbox) -> None:
        data = "0123456789abcdef" * (LARGE // 16)
        done = sandbox.run("tee /dev/stderr", stdin=data, check=True)
        assert done.stdout == data
        assert done.stderr == data

    @needs(Capability.COMMANDS)
    def test_a_command_need_not_read_its_stdin(self, sandbox: Sandbox) -> None:
        done = sandbox.run("exec 0<&-; echo unread", stdin="x" * LARGE)
        assert (done.exit_code, done.stdout) == (0, "unread\n")

    @needs(Capability.COMMANDS)
    def test_env_is_for_one_command(self, sandbox: Sandbox) -> None:
        value = "a=b 'c' \"d\"\nnext $HOME ☃"
        assert sandbox.run('printf %s "$ODD"', env={"ODD": value}).stdout == value
        assert sandbox.run('printf %s "${ODD-unset}"').stdout == "unset"

    @needs(Capability.COMMANDS)
    def test_a_command_finds_a_usual_environment(self, sandbox: Sandbox) -> None:
        script = (
            'f=$(mktemp) && echo x > "$f" && cat "$f" && echo y > "$HOME/probe" && cat "$HOME/probe" && ls / | head -1'
        )
        done = sandbox.run(script, check=True)
        assert done.stdout.splitlines()[:2] == ["x", "y"]
        assert "UTF-8" in sandbox.run('echo "$LANG"').stdout.upper()

    @needs(Capability.COMMANDS)
    def test_workdir_is_where_a_command_starts(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.mkdir(f"{place}/sub dir")
        absolute = sandbox.files.info(f"{place}/sub dir").path
        for workdir in (f"{place}/sub dir", absolute):
            assert sandbox.run("pwd", workdir=workdir).stdout.endswith(f"/{place}/sub dir\n")
        assert not sandbox.run("pwd").stdout.endswith("sub dir\n")

    @needs(Capability.COMMANDS)
    def test_a_workdir_that_is_not_there_is_an_error(self, sandbox: Sandbox) -> None:
        with pytest.raises(FileMissing):
            sandbox.run("true", workdir="no/such/directory")

    @needs(Capability.COMMANDS)
    def test_check_turns_failure_into_an_error(self, sandbox: Sandbox) -> None:
        assert sandbox.run("echo fine", check=True).stdout == "fine\n"
        with pytest.raises(CommandFailed) as caught:
            sandbox.run("echo partly; echo broken >&2; exit 5", check=True)
        completed = caught.value.completed
        assert (completed.exit_code, completed.stdout, completed.stderr) == (5, "partly\n", "broken\n")
        assert "broken" in str(caught.value)
        with pytest.raises(CommandFailed):
            sandbox.run("sleep 1000", check=True, timeout=0.2)

    @needs(Capability.COMMANDS)
    def test_a_command_has_no_descriptors_but_its_own(self, sandbox: Sandbox) -> None:
        # `ls` itself holds one for the listing.
        assert sandbox.run("ls /proc/self/fd", check=True).stdout.split() == ["0", "1", "2", "3"]

    @needs(Capability.COMMANDS)
    def test_many_commands_at_once(self, sandbox: Sandbox) -> None:
        def ask(number: int) -> tuple[int, str, str]:
            done = sandbox.run(f"cat; echo {number} >&2; exit {number}", stdin=f"in {number}")
            return done.exit_code, done.stdout, done.stderr

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(ask, range(32)))
        assert answers == [(n, f"in {n}", f"{n}\n") for n in range(32)]
