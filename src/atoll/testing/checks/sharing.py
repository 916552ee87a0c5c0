"""One sandbox and many processes: ids, labels and lifetimes outlive who made it."""

from __future__ import annotations

import pytest

from ...errors import SandboxError, SandboxGone, SandboxNotFound
from ...sync import Sandbox
from ...types import Capability
from ..base import Checks, Make
from ..needs import needs
from ..waiting import eventually


class SharingChecks(Checks):
    """Other processes."""

    @needs(Capability.COMMANDS)
    def test_another_process_reaches_it_by_id(self, make: Make) -> None:
        sandbox = make()
        sandbox.files.write("note", "from here")
        body = """
sandbox = Sandbox.connect(id)
answer = sandbox.run("cat note; echo from there > reply").stdout
"""
        assert self.elsewhere(body, id=sandbox.id).answer() == "from here"
        assert sandbox.files.read("reply") == "from there\n"

    @needs(Capability.COMMANDS)
    def test_another_process_finds_it_by_label(self, make: Make, label: dict[str, str]) -> None:
        sandbox = make(labels={**label, "role": "web"})
        body = """
answer = [[info.id, dict(info.labels), info.status] for info in Sandbox.list(label)]
answer.append(Sandbox.find(label).run("echo found").stdout)
"""
        found = self.elsewhere(body, label=label).answer()
        assert found == [[sandbox.id, {**label, "role": "web"}, "running"], "found\n"]

    @needs(Capability.COMMANDS)
    def test_it_outlives_its_maker(self, label: dict[str, str]) -> None:
        body = """
sandbox = Sandbox.create(driver, **wishes)
sandbox.files.write("note", "still here")
answer = sandbox.id
"""
        id = self.elsewhere(body, wishes=self.with_defaults(labels=label)).answer()
        with Sandbox.connect(id) as sandbox:
            assert sandbox.files.read("note") == "still here"
            assert sandbox.run("cat note").stdout == "still here"
        assert Sandbox.list(label) == []

    @needs(Capability.COMMANDS)
    def test_another_process_destroys_it(self, make: Make) -> None:
        sandbox = make()
        self.elsewhere("Sandbox.connect(id).destroy()", id=sandbox.id).answer()
        with pytest.raises(SandboxError):
            sandbox.run("true")
        assert sandbox.refresh().status == "gone"

    def test_labels_select(self, make: Make, label: dict[str, str]) -> None:
        old, new = make(labels={**label, "n": "1"}), make(labels={**label, "n": "2"})
        assert [info.id for info in Sandbox.list(label)] == [new.id, old.id]
        assert [info.id for info in Sandbox.list({**label, "n": "1"})] == [old.id]
        found = Sandbox.find(label)
        assert found is not None
        assert found.id == new.id
        assert Sandbox.find({**label, "n": "3"}) is None
        assert Sandbox.list(label, driver="another") == []
        assert Sandbox.list(label, status="paused") == []

    @needs(Capability.COMMANDS)
    def test_get_or_create_gives_the_one_there_is(self, label: dict[str, str]) -> None:
        wishes = self.with_defaults()
        with Sandbox.get_or_create(label, self.driver_class.name, **wishes) as first:
            second = Sandbox.get_or_create(label, self.driver_class.name, **wishes)
            assert second.id == first.id
            assert first.labels == label
        with Sandbox.get_or_create(label, self.driver_class.name, **wishes) as third:
            assert third.id != first.id
            assert third.run("echo new").stdout == "new\n"

    @needs(Capability.COMMANDS)
    def test_get_or_create_from_processes_at_once_makes_one(self, label: dict[str, str]) -> None:
        body = """
sandbox = Sandbox.get_or_create(label, driver, **wishes)
answer = [sandbox.id, sandbox.run("echo works").stdout]
"""
        crowd = [self.elsewhere(body, label=label, wishes=self.with_defaults()) for _ in range(3)]
        answers = [each.answer() for each in crowd]
        with Sandbox.connect(answers[0][0]) as sandbox:
            assert answers == [[sandbox.id, "works\n"]] * 3
            assert [info.id for info in Sandbox.list(label)] == [sandbox.id]

    @needs(Capability.COMMANDS, Capability.LIFETIME)
    def test_its_lifetime_ends_it_when_its_maker_is_gone(self, label: dict[str, str]) -> None:
        body = "answer = Sandbox.create(driver, **wishes).id"
        wishes = self.with_defaults(labels=label, lifetime=1.5)
        short = self.elsewhere(body, wishes=wishes)
        long = self.elsewhere(body, wishes={**wishes, "lifetime": 300.0})
        ending, staying = short.answer(), long.answer()
        gone = eventually(lambda: Sandbox.list(label, status="gone"), "its lifetime is over and it is listed as gone")
        assert [info.id for info in gone] == [ending]
        assert "lifetime" in (gone[0].reason or "")
        with pytest.raises(SandboxNotFound):
            Sandbox.connect(ending)
        with Sandbox.connect(staying) as sandbox:
            assert sandbox.run("true").exit_code == 0

    @needs(Capability.LIFETIME)
    def test_set_lifetime_brings_the_end_nearer(self, make: Make) -> None:
        sandbox = make()
        before = sandbox.info.expires
        sandbox.set_lifetime(0.5)
        assert before is not None
        assert sandbox.info.expires is not None
        assert sandbox.info.expires < before
        eventually(lambda: sandbox.refresh().status == "gone", "the new lifetime ends it")

    @needs(Capability.COMMANDS, Capability.LIFETIME)
    def test_set_lifetime_puts_the_end_off(self, make: Make) -> None:
        for lifetime in (4, 16, 64):
            control, sandbox = make(lifetime=lifetime), make(lifetime=lifetime)
            try:
                sandbox.set_lifetime(300)
                break
            except SandboxGone:  # a busy machine took longer to make it than it lives
                continue
        eventually(lambda: control.refresh().status == "gone", "a lifetime that nobody has changed ends")
        assert sandbox.refresh().status == "running"
        assert sandbox.run("echo on").stdout == "on\n"
