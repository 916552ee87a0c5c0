"""The wall: what of the host can be seen, and what of the network. Each denial has a positive control."""

from __future__ import annotations

import os
import pathlib
import socket

import pytest

from ...errors import Unsupported, WallUnavailable
from ...sync import Sandbox
from ...types import Capability
from .. import hosts
from ..base import Checks, Make
from ..needs import lacking, needs
from ..waiting import eventually

CONNECT = """
import socket
def reach(address):
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as sock:
        sock.settimeout(3)
        try:
            sock.connect(address if isinstance(address, str) else tuple(address))
        except OSError as error:
            return type(error).__name__
        return "reached"
"""
OWN_SERVER = """
with socket.create_server(("127.0.0.1", 0)) as own:
    answer = reach(own.getsockname())
answer
"""


class PolicyChecks(Checks):
    """The wall."""

    @needs(Capability.COMMANDS)
    def test_the_host_s_environment_is_not_passed_on(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ATOLL_TEST_SECRET", "do not tell")
        sandbox = make(env={"GIVEN": "on purpose"})
        told = sandbox.run("env").stdout
        assert "GIVEN=on purpose" in told
        assert "do not tell" not in told

    @needs(Capability.ISOLATION)
    def test_a_sandbox_names_its_walls(self, sandbox: Sandbox) -> None:
        walls = sandbox.refresh().walls
        assert walls
        assert all(walls)

    @needs(Capability.COMMANDS, Capability.ISOLATION)
    def test_files_of_the_host_cannot_be_read(self, sandbox: Sandbox, place: str) -> None:
        sandbox.files.write(f"{place}/own", "readable")
        with hosts.secret_files() as secrets:
            assert secrets
            for path, secret in secrets.items():
                assert path.read_text() == secret
                assert sandbox.run(["cat", str(path)]).exit_code != 0
                assert not sandbox.files.exists(str(path))
            found = sandbox.run("cat own; find / -xdev -path '*atoll-secret-*' 2>/dev/null", workdir=place)
        assert found.stdout == "readable"

    @needs(Capability.COMMANDS, Capability.ISOLATION)
    def test_files_of_the_host_cannot_be_written(self, sandbox: Sandbox, place: str) -> None:
        with hosts.secret_files() as secrets:
            for path in secrets:
                sandbox.run(f"echo changed > {path}; echo new > {path}.new; rm -rf {path.parent}")
            assert {path: path.read_text() for path in secrets} == secrets
            assert all(os.listdir(path.parent) == [path.name] for path in secrets)
        assert sandbox.run("echo works > own; cat own", workdir=place).stdout == "works\n"

    @needs(Capability.COMMANDS, Capability.ISOLATION)
    def test_processes_of_the_host_cannot_be_seen(self, sandbox: Sandbox) -> None:
        word = "word-" + os.urandom(8).hex()
        look = 'for f in /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do tr "\\0" "\\n" < $f; done 2>/dev/null'
        with hosts.process(word) as pid, sandbox.start(["sleep", "54321"]):
            seen = sandbox.run(look).stdout
            assert "54321" in seen
            assert word not in seen
            assert sandbox.run(f"kill -0 {pid}").exit_code != 0 or pid in {p.pid for p in sandbox.processes()}

    @needs(Capability.COMMANDS, Capability.ISOLATION)
    def test_code_runs_as_an_ordinary_user(self, sandbox: Sandbox) -> None:
        status = dict(
            line.split(":\t", 1) for line in sandbox.run("cat /proc/self/status").stdout.splitlines() if ":\t" in line
        )
        assert "0" not in status["Uid"].split()
        assert "0" not in status["Gid"].split()
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0

    @needs(Capability.COMMANDS, Capability.ISOLATION)
    def test_two_sandboxes_see_nothing_of_each_other(self, make: Make) -> None:
        word = "word-" + os.urandom(8).hex()
        one, two = make(), make()
        one.run(f"echo {word} > /tmp/left; echo {word} > left", check=True)
        one.start(["sh", "-c", "while :; do sleep 1; done", word])
        look = "cat /tmp/left left; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"
        assert word in one.run(look).stdout
        assert word not in two.run(look).stdout

    @needs(Capability.NETWORK_NONE, Capability.CODE, Capability.COMMANDS)
    def test_without_a_network_nothing_is_reached(self, make: Make) -> None:
        sandbox = make(network="none")
        sandbox.run_code(CONNECT)
        assert sandbox.run_code(OWN_SERVER).text == "'reached'"
        with hosts.servers() as servers:
            addresses = (servers.loopback, servers.outward, servers.abstract)
            for address in addresses:
                if address is None:
                    continue
                assert _reach_from_here(address)
                assert sandbox.run_code(f"reach({address!r})").text != "'reached'"
        assert sandbox.run_code("reach(('203.0.113.1', 80))").text != "'TimeoutError'", "packets go somewhere"

    @needs(Capability.NETWORK_NONE, Capability.CODE)
    @lacking(Capability.COMMANDS)
    def test_where_there_are_no_sockets_nothing_is_reached(self, make: Make) -> None:
        """Not even a server of its own: what has no processes has no kernel, and no loopback either."""
        sandbox = make(network="none")
        sandbox.run_code(CONNECT)
        assert sandbox.run_code("1 + 1").text == "2"
        with hosts.servers() as servers:
            for address in (servers.loopback, servers.outward, servers.abstract):
                if address is not None:
                    assert _reach_from_here(address)
                    assert sandbox.run_code(f"reach({address!r})").text != "'reached'"

    @needs(Capability.NETWORK_NONE, Capability.CODE, Capability.COMMANDS)
    def test_without_a_network_there_is_only_the_loopback(self, make: Make) -> None:
        sandbox = make(network="none")
        names = "import socket; sorted(name for _, name in socket.if_nameindex())"
        assert sandbox.run_code(names).text == "['lo']"
        code = """
import socket
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    sock.sendto(b"x", ("203.0.113.1", 9))
except OSError as error:
    sent = error.strerror
else:
    sent = "sent"
sent
"""
        assert sandbox.run_code(code).text in ("'Network is unreachable'", "'No route to host'")

    @needs(Capability.NETWORK_HOST, Capability.CODE)
    def test_the_host_s_network_is_shared_when_asked_for(self, make: Make) -> None:
        sandbox = make(network="host")
        sandbox.run_code(CONNECT)
        with hosts.servers() as servers:
            assert sandbox.run_code(f"reach({servers.loopback!r})").text == "'reached'"

    @needs(Capability.NETWORK_ALL, Capability.CODE)
    def test_a_network_leads_out_and_not_into_the_host_s_loopback(self, make: Make, label: dict[str, str]) -> None:
        try:
            sandbox = make(network="all", labels=label)
        except (Unsupported, WallUnavailable):
            # A host may lack the tools; then it is refused before anything starts, and never ignored.
            assert Sandbox.list(label) == []
            return
        sandbox.run_code(CONNECT)
        with hosts.servers() as servers:
            assert _reach_from_here(servers.loopback)
            assert sandbox.run_code(f"reach({servers.loopback!r})").text != "'reached'"
            if servers.outward is not None:
                assert sandbox.run_code(f"reach({servers.outward!r})").text == "'reached'"

    @needs(Capability.COMMANDS, Capability.ISOLATION, Capability.SOURCE)
    def test_source_shows_its_directory_and_not_its_neighbours(self, make: Make, tmp_path: pathlib.Path) -> None:
        (tmp_path / "shown").mkdir()
        (tmp_path / "shown" / "file").write_text("shown")
        (tmp_path / "hidden").write_text("hidden")
        (tmp_path / "shown" / "link").symlink_to(tmp_path / "hidden")
        sandbox = make(source=tmp_path / "shown", preset="full-access")
        assert sandbox.run("cat file").stdout == "shown"
        for path in ("link", "../hidden", str(tmp_path / "hidden")):
            assert sandbox.run(["cat", path]).exit_code != 0

    @needs(Capability.COMMANDS, Capability.AUDIT)
    def test_what_the_kernel_refuses_is_told_or_listening_is_refused(self, make: Make, label: dict[str, str]) -> None:
        try:
            sandbox = make(audit=True, labels=label)
        except Unsupported:
            assert Sandbox.list(label) == []
            return
        assert "kernel" in sandbox.info.audit
        sandbox.run("mkdir shut open && chmod 000 shut; ls shut open")
        eventually(lambda: [each.path for each in sandbox.audit(source="kernel")] == ["shut"], "it is told")


def _reach_from_here(address: hosts.Address | str) -> bool:
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as sock:
        sock.connect(address)
    return True
