"""Fake drivers with one bug each, and the tests that must find it.

Most are bugs that shipped in other products (see "Bugs to not repeat" of the project's notes on its peers).
"""

from __future__ import annotations

import os
import shutil
from typing import ClassVar

from atoll.drivers.fake import FakeDriver
from atoll.types import Capability, Offers, Resources
from atoll.wire.frames import DATA, END, OPEN, STDERR, STDOUT, Frame

from .tampered import Answers, Buffered, LeaderOnly, Requests, Tampered, with_json

BROKEN = {}
"""Each broken driver with the names of the tests that must fail on it."""


def found_by(*tests):
    def note(driver):
        BROKEN[driver] = tests
        return driver

    return note


class Meddling(FakeDriver):
    """A fake whose streams go through `Middle`."""

    Middle = Tampered

    async def open_guest(self, handle):
        return self.Middle(await super().open_guest(handle))


@found_by("test_a_timeout_kills_children", "test_a_timeout_kills_what_has_forked_twice_and_left_its_session")
class LeaksChildren(Meddling):
    name = "leaks-children"
    Middle = LeaderOnly


@found_by("test_a_timeout_is_told_and_is_no_success", "test_timeout_of_the_sandbox_is_for_each_command")
class SwallowsTimeouts(Meddling):
    name = "swallows-timeouts"

    class Middle(Answers):
        def change(self, ok):
            if ok.get("timed_out"):
                ok.update(timed_out=False, exit_code=0)


@found_by("test_exit_codes_are_told", "test_check_turns_failure_into_an_error")
class ReportsSuccess(Meddling):
    name = "reports-success"

    class Middle(Answers):
        def change(self, ok):
            if "exit_code" in ok:
                ok["exit_code"] = 0


@found_by("test_a_stream_is_live", "test_callbacks_hear_output_while_it_comes")
class BuffersStreams(Meddling):
    name = "buffers-streams"
    Middle = Buffered


@found_by("test_stdout_and_stderr_are_apart")
class DropsStderr(Meddling):
    name = "drops-stderr"

    class Middle(Tampered):
        def incoming(self, frame):
            return [] if (frame.kind, frame.stream) == (DATA, STDERR) else [frame]


@found_by("test_env_is_for_one_command")
class IgnoresEnv(Meddling):
    name = "ignores-env"

    class Middle(Requests):
        def change(self, request):
            request.pop("env", None)


@found_by("test_the_host_s_environment_is_not_passed_on")
class PassesTheEnvironmentOn(Meddling):
    name = "passes-the-environment-on"

    class Middle(Requests):
        def change(self, request):
            if request["op"] == "exec":
                request["env"] = {**os.environ, **request.get("env", {})}


@found_by("test_workdir_is_where_a_command_starts")
class IgnoresWorkdir(Meddling):
    name = "ignores-workdir"

    class Middle(Requests):
        def change(self, request):
            request.pop("cwd", None)


@found_by(
    "test_output_over_the_limit_is_cut_and_said_to_be", "test_output_of_a_cell_over_the_limit_is_cut_and_said_to_be"
)
class TruncatesSilently(Meddling):
    name = "truncates-silently"

    class Middle(Answers):
        def change(self, ok):
            if "truncated" in ok:
                ok["truncated"] = False


@found_by("test_cells_share_their_state", "test_another_process_goes_on_in_the_same_state")
class LosesState(Meddling):
    name = "loses-state"

    class Middle(Requests):
        def change(self, request):
            if request["op"] == "code":
                request["context"] = os.urandom(4).hex()


@found_by("test_contexts_share_no_variables")
class SharesContexts(Meddling):
    name = "shares-contexts"

    class Middle(Requests):
        def change(self, request):
            if request["op"] == "code":
                request["context"] = "main"


@found_by(
    "test_a_timeout_kills_what_will_not_stop_and_says_that_state_is_lost",
    "test_a_context_that_dies_says_so_and_comes_back",
)
class HidesLostState(Meddling):
    name = "hides-lost-state"

    class Middle(Answers):
        def change(self, ok):
            if ok.get("state_lost"):
                ok["state_lost"] = False


@found_by("test_leaving_a_stream_kills_its_tree")
class GoesOnWithoutAClient(Meddling):
    name = "goes-on-without-a-client"

    class Middle(Requests):
        def change(self, request):
            if request["op"] == "exec":
                request["hold"] = True


@found_by("test_no_path_leads_out")
class ReadsTheHost(Meddling):
    name = "reads-the-host"

    class Middle(Tampered):
        """Answers a read of a path that the host has by itself, as a string prefix check would let it."""

        def __init__(self, stream):
            super().__init__(stream)
            self._content = None

        def outgoing(self, frame):
            request = frame.json() if frame.kind == OPEN else {"op": None}
            if request["op"] not in ("read", "stat") or not os.path.isfile(request["path"]):
                return [frame]
            with open(request["path"], "rb") as file:
                self._content = request["op"], file.read()
            return [with_json(frame, {"op": "stat", "path": ".", "follow": True})]

        def incoming(self, frame):
            if frame.kind != END or self._content is None:
                return [frame]
            (op, content), self._content = self._content, None
            if op == "stat":
                return [frame]
            return [Frame(frame.channel, DATA, STDOUT, content), with_json(frame, {"ok": {"size": len(content)}})]


@found_by("test_what_is_destroyed_answers_nobody", "test_another_process_destroys_it")
class SurvivesDestroy(FakeDriver):
    name = "survives-destroy"
    alive: ClassVar = []

    async def destroy(self, handle):
        self.alive.append(handle)


@found_by("test_another_process_finds_it_by_label", "test_a_new_sandbox_is_running_and_says_what_it_is")
class ForgetsLabels(FakeDriver):
    name = "forgets-labels"

    async def describe(self, handle, info):
        return (await super().describe(handle, info))._replace(labels={})


@found_by("test_another_process_reaches_it_by_id", "test_it_outlives_its_maker")
class KnowsOnlyItsOwn(FakeDriver):
    name = "knows-only-its-own"
    own: ClassVar = set()

    async def create(self, spec, register, resume=None):
        handle = await super().create(spec, register, resume)
        self.own.add(handle.id)
        return handle

    async def status(self, handle):
        return await super().status(handle) if handle.id in self.own else "gone"


@found_by("test_its_lifetime_ends_it_when_its_maker_is_gone")
class IgnoresLifetime(FakeDriver):
    name = "ignores-lifetime"

    async def create(self, spec, register, resume=None):
        return await super().create(spec._replace(lifetime=3600.0), register, resume)


@found_by("test_a_paused_sandbox_stands_still_and_then_goes_on")
class OnlySaysPaused(FakeDriver):
    name = "only-says-paused"
    paused: ClassVar = set()

    async def pause(self, handle):
        self.paused.add(handle.id)

    async def resume(self, handle):
        self.paused.discard(handle.id)

    async def status(self, handle):
        return "paused" if handle.id in self.paused else await super().status(handle)


@found_by("test_a_stopped_sandbox_keeps_its_files_and_nothing_else")
class StopLosesFiles(FakeDriver):
    name = "stop-loses-files"

    async def stop(self, handle):
        await super().stop(handle)
        workspace = handle.data["box"] + "/files/workspace"
        shutil.rmtree(workspace)
        os.mkdir(workspace)


@found_by("test_source_is_the_workspace_and_never_changes")
class SharesTheSource(FakeDriver):
    """Has the caller's own files where it should have copied them."""

    name = "shares-the-source"

    async def create(self, spec, register, resume=None):
        handle = await super().create(spec._replace(source=None), register, resume)
        if spec.source:
            workspace = handle.data["box"] + "/files/workspace"
            shutil.copytree(spec.source, workspace, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
        return handle


@found_by("test_image_is_refused", "test_limits_are_refused", "test_a_network_is_refused")
class OffersMore(FakeDriver):
    """Offers what it does not declare, and ignores it."""

    name = "offers-more"

    async def offers(self):
        return Offers(frozenset(Capability))

    async def create(self, spec, register, resume=None):
        plain = spec._replace(image=None, resources=Resources(), strict=False, network="none")
        return await super().create(plain, register, resume)


@found_by(
    "test_files_of_the_host_cannot_be_read",
    "test_files_of_the_host_cannot_be_written",
    "test_a_sandbox_names_its_walls",
    "test_without_a_network_nothing_is_reached",
    "test_without_a_network_there_is_only_the_loopback",
    "test_limits_are_promised_and_enforced_by_somebody",
    "test_memory_is_bounded",
)
class ClaimsAWall(FakeDriver):
    name = "claims-a-wall"
    capabilities = FakeDriver.capabilities | {Capability.ISOLATION, Capability.NETWORK_NONE, Capability.LIMITS}

    async def create(self, spec, register, resume=None):
        return await super().create(spec._replace(resources=Resources()), register, resume)
