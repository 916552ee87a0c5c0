"""Attempts at the jail are made behind bubblewrap, too: a choice of them, as root and as an ordinary user.

Each comes with its own control. What is here are those that bubblewrap, and not the guest, has to withstand.
"""

import os
import stat

import pytest
from tests.escape import residue
from tests.escape.harness import USER, Maker, eventually, script
from tests.escape.prelude import libc
from tests.escape.test_files import (  # noqa: F401
    secret,
    test_a_hard_link_to_a_host_file_cannot_be_made,
    test_a_host_file_cannot_be_read,
    test_climbing_up_ends_at_the_sandboxs_own_root,
    test_host_files_in_view_cannot_be_changed,
    test_kernel_memory_and_messages_stay_hidden,
    test_no_device_can_be_made,
    test_no_open_descriptor_leads_out,
    test_nothing_can_be_made_outside_the_writable_places,
    test_the_few_harmless_devices_work,
    test_the_kernels_switches_cannot_be_turned,
    test_the_same_roads_lead_to_the_sandboxs_own_files,
)
from tests.escape.test_host import (  # noqa: F401
    test_an_abstract_socket_of_the_host_cannot_be_reached,
    test_command_lines_inside_name_no_path_of_the_state,
    test_keys_of_the_maker_do_not_show,
    test_no_descriptor_is_inherited,
    test_no_process_of_the_host_shows_or_can_be_signalled,
    test_shared_memory_of_the_host_cannot_be_found,
    test_the_control_groups_of_the_host_do_not_show,
    test_the_environment_of_the_maker_does_not_show,
    test_the_first_process_shrugs_off_signals_from_inside,
    test_the_guests_own_process_is_closed_to_the_code_it_runs,
)
from tests.escape.test_limits import (  # noqa: F401
    connect_unheard,
    test_what_cannot_be_held_is_declared_and_strict_refuses_it,
)
from tests.escape.test_network import (  # noqa: F401
    test_a_server_of_the_host_cannot_be_reached,
    test_localhost_is_found_by_family_by_an_address_that_leads_nowhere,
    test_no_interface_can_be_added_and_no_other_network_joined,
    test_there_is_no_interface_but_loopback_and_it_works,
)
from tests.escape.test_privileges import (  # noqa: F401
    test_a_set_uid_program_gives_nothing,
    test_every_capability_set_is_empty_and_the_locks_are_on,
    test_no_lost_privilege_comes_back,
    test_no_mount_can_be_made_changed_or_undone,
    test_no_new_namespace_by_any_call,
)


@pytest.fixture(scope="module", params=["root", "user"])
def maker(request):
    """Once as root, once as an ordinary user."""
    if request.param == "root" and os.getuid() != 0:
        pytest.skip("needs uid 0, to make sandboxes as root does")
    uid = 0 if request.param == "root" else (USER if os.getuid() == 0 else os.getuid())
    made = Maker(request.param, uid, driver="bwrap")
    yield made
    made.close()


def list_root():
    return sorted(os.listdir("/"))


def unmount_everything():
    """Take every mount away that can be; what it covered would show."""
    with open("/proc/self/mounts") as file:
        places = [line.split()[1] for line in file]
    return [place for place in reversed(places) if libc.umount2(place.encode(), 2) == 0]


def test_memory_that_waits_in_sockets_is_bounded(maker):
    with maker.create(resources={"memory": 256 << 20}) as box:
        assert box.try_cell(connect_unheard, 8, 4) > 0, "the control"
        done = box.code(script(connect_unheard, 300, 20))
        assert "SIGKILL" in done["error"]["value"], done
        assert box.run("echo alive")["stdout"] == "alive\n"


def test_the_world_that_bubblewrap_was_started_in_does_not_show(maker):
    seen = maker.box.try_cell(list_root)
    assert {"usr", "proc", "workspace", ".atoll"} <= set(seen)
    assert not {"places", "bwrap", "sys", "boot", "mnt", "media", "srv"} & set(seen)
    assert {"places", "sys"} & set(os.listdir("/")) == {"sys"}
    assert maker.box.run("ls -A /.host")["stdout"] == ""


def test_no_mount_can_be_taken_away_to_look_below_it(maker):
    assert maker.box.try_command(unmount_everything) == []


def test_the_user_inside_is_nobody_of_the_host(maker):
    with maker.create() as box:
        users = {_uid(pid) for pid, _ in residue.descendants(box.handle["pid"]) if _is_inside(pid)}
        assert users == {box.handle["uid"] if maker.uid == 0 else maker.uid}
        assert 0 not in users
        assert box.run("id -u")["stdout"] == "1000\n"


def _is_inside(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(len(line.split()) > 2 for line in file if line.startswith("NSpid:"))


def _uid(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Uid:"))


def test_a_killed_steward_takes_all_with_it(maker):
    box = maker.create()
    box.call("start", "sleep 1000")
    processes = residue.descendants(box.handle["pid"])
    assert len(processes) > 3
    os.kill(box.handle["pid"], 9)
    eventually(lambda: not any(map(residue.is_alive, processes)), "steward, bubblewrap and all behind it are dead")
    box.destroy()
    assert not residue.traces(maker, box, processes)


def test_the_programs_of_the_host_are_not_the_sandboxs_to_change(maker):
    """Through /proc/self/exe a process reaches its program past every mount but its own."""

    def chmod_own_program():
        os.chmod("/proc/self/exe", 0o777)

    before = stat.S_IMODE(os.stat(os.path.realpath("/proc/self/exe")).st_mode)
    assert maker.box.try_command(chmod_own_program) in ("EROFS", "EPERM")
    assert stat.S_IMODE(os.stat(os.path.realpath("/proc/self/exe")).st_mode) == before
