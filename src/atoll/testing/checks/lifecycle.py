"""From `create` to `destroy`."""

from __future__ import annotations

import pytest

from ...errors import AtollError, SandboxGone, SandboxNotFound
from ...sync import Sandbox, run, run_many
from ...types import Capability, Resources
from ..base import Checks, Make
from ..needs import needs


class LifecycleChecks(Checks):
    """Life and death."""

    def test_a_new_sandbox_is_running_and_says_what_it_is(self, make: Make, label: dict[str, str]) -> None:
        sandbox = make(labels=label)
        for info in (sandbox.info, sandbox.refresh(), *Sandbox.list(label)):
            assert (info.id, info.driver, info.status) == (sandbox.id, self.driver_class.name, "running")
            assert info.labels == label
            assert info.expires is not None
            assert info.expires > info.created
        assert [info.id for info in Sandbox.list(label)] == [sandbox.id]

    def test_info_tells_who_enforces_each_limit(self, sandbox: Sandbox) -> None:
        limits = sandbox.refresh().limits
        assert set(limits) - {"sockets"} == set(Resources._fields)
        assert set(limits.values()) <= {"kernel", "polled", "none"}

    @needs(Capability.COMMANDS)
    def test_a_with_block_destroys_at_its_end(self, label: dict[str, str]) -> None:
        with self.create(labels=label) as sandbox:
            assert sandbox.run("true").exit_code == 0
        assert Sandbox.list(label) == []
        with pytest.raises(SandboxGone):
            sandbox.run("true")

    @needs(Capability.COMMANDS)
    def test_a_with_block_that_fails_leaves_no_sandbox(self, label: dict[str, str]) -> None:
        with pytest.raises(ZeroDivisionError), self.create(labels=label) as sandbox:
            sandbox.run("exit 1")
            raise ZeroDivisionError
        assert Sandbox.list(label) == []

    def test_destroying_twice_is_harmless(self, make: Make) -> None:
        sandbox = make()
        other = Sandbox.connect(sandbox.id)
        for each in (sandbox, sandbox, other, other):
            each.destroy()
        assert sandbox.info.status == "gone"

    @needs(Capability.COMMANDS)
    def test_what_is_destroyed_answers_nobody(self, make: Make) -> None:
        sandbox = make()
        other = Sandbox.connect(sandbox.id)
        assert other.run("echo alive").stdout == "alive\n"
        sandbox.destroy()
        for each in (sandbox, other):
            with pytest.raises(SandboxGone):
                each.run("true")
            with pytest.raises(SandboxGone):
                list(each.stream("true"))
            with pytest.raises(SandboxGone):
                each.start("true")
            with pytest.raises(SandboxGone):
                each.files.read("x")
            with pytest.raises(SandboxGone):
                each.processes()
            assert each.refresh().status == "gone"

    def test_what_is_destroyed_is_found_by_nobody(self, make: Make, label: dict[str, str]) -> None:
        sandbox = make(labels=label)
        assert Sandbox.find(label) is not None
        sandbox.destroy()
        assert Sandbox.find(label) is None
        assert Sandbox.list(label) == []
        with pytest.raises(SandboxNotFound):
            Sandbox.connect(sandbox.id)

    @needs(Capability.COMMANDS)
    def test_destroying_ends_a_stream_with_an_error(self, make: Make) -> None:
        sandbox = make()
        stream = sandbox.stream("echo on; sleep 1000")
        assert next(stream).text == "on\n"
        sandbox.destroy()
        with pytest.raises(AtollError):
            list(stream)

    def test_a_failed_create_leaves_nothing(self, label: dict[str, str]) -> None:
        with pytest.raises(AtollError):
            self.create(labels=label, source="/there/is/no/such/directory", preset="full-access")
        assert Sandbox.list(label) == []

    @needs(Capability.COMMANDS)
    def test_two_sandboxes_share_no_files(self, make: Make) -> None:
        one, two = make(), make()
        one.files.write("mine", "one")
        assert one.files.exists("mine")
        assert not two.files.exists("mine")
        assert two.run("ls").stdout == ""

    @needs(Capability.COMMANDS)
    def test_env_of_the_sandbox_reaches_every_command(self, make: Make) -> None:
        sandbox = make(env={"COLOUR": "deep blue", "EMPTY": ""})
        assert sandbox.run('echo "$COLOUR ${EMPTY-unset}"').stdout == "deep blue \n"
        assert sandbox.run('echo "$COLOUR"', env={"COLOUR": "red"}).stdout == "red\n"
        assert sandbox.run('echo "$COLOUR"').stdout == "deep blue\n"

    @needs(Capability.COMMANDS)
    def test_workdir_of_the_sandbox_is_where_commands_and_files_start(self, make: Make) -> None:
        sandbox = make(workdir="/srv/project")
        assert sandbox.run("pwd").stdout.endswith("/srv/project\n")
        sandbox.files.write("here", "x")
        assert sandbox.files.info("here").path == "/srv/project/here"
        assert sandbox.run("cat here").stdout == "x"

    @needs(Capability.COMMANDS)
    def test_timeout_of_the_sandbox_is_for_each_command(self, make: Make) -> None:
        sandbox = make(timeout=0.5)
        assert sandbox.run("sleep 1000").timed_out
        assert not sandbox.run("sleep 0.6; echo done", timeout=60).timed_out

    @needs(Capability.COMMANDS)
    def test_run_leaves_no_sandbox(self, label: dict[str, str]) -> None:
        wishes = self.with_defaults(labels=label)
        wishes.pop("lifetime")
        done = run("cat; exit 3", self.driver_class.name, stdin="in", **wishes)
        assert (done.exit_code, done.stdout) == (3, "in")
        assert Sandbox.list(label) == []

    @needs(Capability.COMMANDS)
    def test_run_many_keeps_the_order(self, label: dict[str, str]) -> None:
        wishes = self.with_defaults(labels=label)
        wishes.pop("lifetime")
        done = run_many([f"echo {n}; exit {n}" for n in range(5)], self.driver_class.name, max_workers=3, **wishes)
        assert [(each.exit_code, each.stdout) for each in done] == [(n, f"{n}\n") for n in range(5)]
        assert Sandbox.list(label) == []
