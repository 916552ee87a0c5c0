"""One round: sandboxes with attackers in them, what is done to them from outside, and a judge who always looks."""

import contextlib
import glob
import os
import queue
import shutil
import signal
import socket
import struct
import sysconfig
import threading
import time

from tests.attack import attackers, judge, plan
from tests.attack.walls import WALLS
from tests.escape import residue
from tests.escape.harness import Maker, Refused

from atoll import errors
from atoll.drivers.docker_engine import Engine, Refused as EngineRefused
from atoll.engine import cgroups

# Of this process alone: what is left of it is found, and killed, by its id, and several may attack at once.
USER = 62000 + os.getpid() % 3000
# How much later than it may an answer still counts as late, and not as none, in seconds.
_HANGS = 30.0
# What one look at the machine may wait for the next, in seconds.
_LOOK = 0.7
_ENDING = 30.0
# The first sandbox of a state directory may have to make what all others stand on.
_FIRST = 120.0


class Arena:
    """A round that is played to its end by `play`."""

    def __init__(self, round, report, marker):
        """`marker` is a path of the host that nobody inside can reach. Beside it will be a file that nobody reads."""
        self._round = round
        self._wall = WALLS[round.wall]
        self.report = report
        self._marker = marker
        self._tag = f"atk{os.getpid()}"
        self._uid = 0 if round.user == "root" else (USER if os.getuid() == 0 else os.getuid())
        self._ids = set()
        self._over = threading.Event()
        self._pace = Pace()
        self._secret = os.urandom(16).hex()
        self._space = None
        self._engine = _engine() if round.wall == "docker" else None

    def play(self):
        """What it finds is in the report afterwards."""
        self.open()
        playing = [threading.Thread(target=self._guarded, args=(each,)) for each in self._round.boxes]
        try:
            for each in playing:
                each.start()
            for each in playing:
                each.join()
        finally:
            self.close()
        self.report.rounds += 1

    def open(self):
        # Whoever comes there may write, whatever id it has.
        os.chmod(os.path.dirname(self._marker), 0o777)
        with open(f"{self._marker}.secret", "w", encoding="ascii") as file:
            file.write(self._secret)
        self._maker = Maker("atk", self._uid, driver=self._wall.name, env=_environment(), packages=_PACKAGES)
        self.state = self._maker.state
        self._began = residue.start_time(self._maker._process.pid)
        if self._wall.name == "jail":
            self._space = residue.mount_namespace(self._maker.zygote())
        else:
            made = self._pace.wait(self._maker.begin("create"), _FIRST)
            self._pace.wait(self.begin("destroy", made["id"]), _FIRST)
        self._judging = threading.Thread(target=self._judge)
        self._judging.start()
        threading.Thread(target=self._pace.follow, args=(self._over,), daemon=True).start()

    def close(self, patience=_ENDING):
        """End everything, and look that nothing is left. Doing so twice is harmless."""
        if self._over.is_set():
            return
        self._over.set()
        self._judging.join()
        for request in ("end", "shut_down"):
            # A sandbox that cannot be ended must not keep the others from it.
            with contextlib.suppress(queue.Empty, Refused):
                self._pace.wait(self._maker.begin(request), _ENDING / 2)
        self._end_warm()
        deadline = time.monotonic() + patience
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.2)
        for what, some in left.items():
            self.violate("left over", "", f"{what}: {some[:4]}")
        self._look_for_marker()
        self._kill(left.get("processes", ()))
        self.clean()

    def violate(self, kind, box, what):
        self.report.violate(kind, self._round.number, f"{self._round.wall} {self._round.user}", box, what)

    def _guarded(self, box):
        try:
            Play(self, box).run()
        except Exception as error:  # noqa: BLE001  # a mistake here must not look like a wall that holds
            self.violate("the attack itself broke", "", f"{type(error).__name__}: {error}")

    def ask(self, operation, pending, box):
        """Wait for an answer as long as it may take; gives it, or raises Refused or Late."""
        began = time.monotonic()
        limit = plan.DEADLINES.get(operation, plan.DEADLINE) + self._wall.patience(operation)
        try:
            answer = self._pace.wait(pending, limit)
        except queue.Empty:
            return self._late(operation, pending, box, began)
        except Refused as refusal:
            own = is_own(refusal.type, operation)
            self.report.note(operation, "refused" if own else "failed", time.monotonic() - began, refusal.type)
            if not own:
                self.violate("wrong error", box, f"{operation} ended with {refusal}")
            raise
        self.report.note(operation, "ok", time.monotonic() - began)
        return answer

    def _late(self, operation, pending, box, began):
        """What comes too late, which is one thing, and what never comes another. Raises Refused or Late."""
        allowed = time.monotonic() - began
        answer = refusal = None
        try:
            answer = pending.get(timeout=_HANGS)
            came = True
        except queue.Empty:
            came = False
        except Refused as error:
            refusal, came = error, is_own(error.type, operation)
        took = time.monotonic() - began
        self.report.note(operation, "failed", took, "late" if came else "no answer")
        if not came:
            self.violate("no answer", box, f"{operation} has not ended after {took:.0f} s")
            raise Late
        self.violate("late", box, f"{operation} took {took:.1f} s, and {allowed:.1f} s were allowed")
        if refusal is not None:
            raise refusal
        return answer

    def begin(self, operation, id, **keywords):
        if operation == "fork":
            return self._maker.begin("fork", id=id, **keywords)
        if operation in ("forget", "connect"):
            return self._maker.begin(operation, **({"id": id} if operation == "connect" else keywords))
        if operation == "list":
            return self._maker.begin("listing")
        return self._maker.begin("method", id=id, name=operation, arguments=[], keywords=keywords)

    def create(self, box):
        wishes = {**box.wishes, "source": self._source()} if box.has_source else box.wishes
        made = self.ask("create", self._maker.begin("create", **wishes), "")
        self._ids.add(made["id"])
        return made["id"]

    def keeper(self, id):
        """The pid of the process outside that stands for a sandbox."""
        return self._maker.call("handle", id=id)["pid"]

    def note_ids(self, ids):
        self._ids.update(ids)

    def begin_attack(self, step, id):
        """Bring an attacker in; it goes on by itself. Where it cannot, gives what it will answer at its end."""
        options = step["options"]
        secrets = [f"{self._marker}.secret", *([self._engine.path] if self._engine else ())]
        text = attackers.source(step["kind"], step["seed"], self._tag, self._marker, options, secrets)
        if self._wall.stays:
            self.report.note_attacker(step["kind"])
            context = f"{step['kind']}-{step['seed'] % 100}"
            return self.begin("run_code", id, code=text, timeout=options["seconds"], context=context)
        if step["in_context"]:
            pending = self.begin("run_code", id, code=text, timeout=10.0)
        else:
            pending = self.begin("start", id, command=attackers.as_command(text, options["seconds"]))
        answer = self.ask("attack", pending, id)
        # Others may have left it no room for its threads; were it always so, it would not be an attack.
        error = answer.get("error") if isinstance(answer, dict) else None
        self.report.note_attacker(step["kind"], error["name"] if error else "")
        self.listen(answer, id)
        return None

    def listen(self, answer, id):
        """What an attacker says must not be what only the host knows."""
        said = str(answer.get("stdout", "")) if isinstance(answer, dict) else ""
        if self._secret in said or "reached" in said:
            self.violate("escape", id, "it has read a file of the host, or reached a socket there")

    def _source(self):
        """A directory of the host's that sandboxes see."""
        path = f"{self._maker.home}/source"
        if not os.path.exists(path):
            made = f"{path}.{threading.get_ident()}"
            os.makedirs(f"{made}/deep/er")
            for name in ("a.py", ".env", "deep/b.txt", "deep/er/c.txt"):
                with open(f"{made}/{name}", "w", encoding="utf-8") as file:
                    file.write("x\n" * 100)
            for top, _, names in os.walk(made):
                for each in (top, *(f"{top}/{name}" for name in names)):
                    os.chown(each, self._uid, self._uid)
            with contextlib.suppress(OSError):
                os.rename(made, path)
        return path

    def _judge(self):
        host = next(task for task in judge.tasks() if task.pid == os.getpid())
        wall = self._wall
        allowed = wall.ids if self._uid == 0 or wall.ids is None else range(self._uid, self._uid + 1)
        group = wall.group if self._uid == 0 and (self._engine or cgroups.find() is not None) else ""
        births, doubles = judge.Lasting(judge.BIRTH), judge.Lasting(2.0)
        while not self._over.wait(_LOOK):
            seen = judge.tasks()
            for fault in judge.escaped(seen, self._tag, host, allowed, wall.shared, group):
                self.violate("escape", "", f"task {fault.task.tid} of process {fault.task.pid}: {fault.why}")
            faults = judge.misplaced(seen, self._groups(), host, allowed, wall.shared, wall.trusted)
            found = {fault.task.key: fault for fault in faults}
            for key in births.look(found, time.monotonic()):
                self.violate("escape", "", f"task {key[1]} in a sandbox's control group: {found[key].why}")
            for id in doubles.look(judge.shared_ids(seen), time.monotonic()):
                self.violate("shared id", "", f"two sandboxes have the host id {id}")
            self._look_for_marker()

    def _groups(self):
        """The names of the sandboxes' control groups, with some of the path."""
        if self._engine is None:
            return tuple(f"atoll/{id}" for id in tuple(self._ids))
        return tuple(f"docker/{container['Id']}" for container in self._containers())

    def _containers(self):
        filters = {"label": [f"atoll.home={self.state}"]}
        return self._engine.get("/containers/json", all=True, filters=filters) or []

    def _end_warm(self):
        """What stewards are forked from waits for the next one, and would be taken for what is left."""
        for path in glob.glob(f"{self.state}/run/stewards-*"):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
                line.connect(path)
                pid = struct.unpack("iII", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
                os.kill(pid, signal.SIGKILL)

    def _look_for_marker(self):
        if os.path.exists(self._marker):
            self.violate("escape", "", f"there is {self._marker}, which nobody inside can reach")
            os.unlink(self._marker)

    def _left(self):
        state = self._maker.state
        found = {
            "processes": sorted({*self._ours(), *self._of_attackers()}),
            "loop devices": residue.loop_devices(state),
            "mounts": residue.mounts(state),
            "boxes": _names(f"{state}/jail/boxes"),
            "sockets": [name for name in _names(f"{state}/jail/run") if name.startswith("sb-")],
            "files": [name for name in _names(f"{state}/{self._wall.name}") if name.startswith(f"{self._wall.name}-")],
            "drafts": [name for name in _names(f"{state}/{self._wall.name}/.snapshots") if name.startswith(".draft")],
            "containers": [each["Names"] for each in self._containers()] if self._engine else [],
        }
        for id in self._ids:
            for what, look in (
                ("control groups", residue.control_groups), ("interfaces", residue.interfaces),
                ("tables", residue.tables),
            ):  # fmt: skip
                found.setdefault(what, []).extend(look(id))
        return {what: some for what, some in found.items() if some}

    def _ours(self):
        """Processes that keep sandboxes, or that they keep."""
        if self._space is not None:
            return residue.in_mount_namespace(self._space)
        stewards = [pid for id in self._ids for pid in residue.started_with(f"atoll: steward {id}")]
        kept = {pid for steward in stewards for pid, _ in residue.descendants(steward)}
        return sorted(kept | set(residue.started_with(self.state)))

    def _of_attackers(self):
        mine = {task.pid for task in judge.tasks() if task.name == self._tag}
        if self._uid not in (0, os.getuid()):
            mine |= {pid for pid in residue.of_user(self._uid) if pid != self._maker._process.pid}
        return mine

    def _kill(self, processes):
        """So that what one round left is not found in the next."""
        for pid in processes:
            # Nobody who was there before is the round's, whatever its namespace says.
            if (residue.start_time(pid) or 0) >= self._began:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._maker._process.kill()
        self._maker._process.wait()
        self._maker._process.stdin.close()

    def clean(self):
        """Remove the round's directories, but for what is still mounted, and its snapshots."""
        if self._engine:
            filters = {"label": [f"atoll.home={self.state}"]}
            for image in self._engine.get("/images/json", filters=filters) or []:
                with contextlib.suppress(EngineRefused):
                    self._engine.delete(f"/images/{image['Id']}", force=True)
        for directory in (self._maker.top, self._maker._shared):
            if directory:
                shutil.rmtree(directory, ignore_errors=True)


class Late(Exception):
    """An operation did not end in time."""


# Where the drivers' own packages are.
_PACKAGES = sysconfig.get_path("purelib")


def _environment():
    """What is made once for a machine, and not for each round."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    told = {"XDG_CACHE_HOME": cache, "DOCKER_HOST": os.environ.get("DOCKER_HOST")}
    return {name: value for name, value in told.items() if value}


def _engine():
    return Engine(os.environ["DOCKER_HOST"].removeprefix("unix://"))


def is_own(name, operation):
    """Whether an error is one of atoll's that this operation may end with, whatever hostile code does."""
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.AtollError)):
        return False
    if operation == "destroy":
        return False
    if operation in ("refresh", "list", "set_lifetime"):
        # The guest is not asked, so nothing that it does is an excuse.
        return issubclass(kind, errors.SandboxError) and not issubclass(kind, errors.Unresponsive)
    return not issubclass(kind, errors.InvalidInput)


class Pace:
    """How slow the machine is: a deadline is stretched by as much. Attackers and tests share its processors.

    An ordinary user's keepers have no control group for processors: beside hundreds of tasks that want them, any
    process is served late each time it wakes. How late is measured by waking as often as a question and its answer do.
    """

    _WORK, _WAKES = 20_000, 12
    MOST, LATEST = 4.0, 10.0

    def __init__(self):
        self._rest = min(self._measure() for _ in range(5))
        self.slowness, self.lateness = 1.0, 0.0

    def follow(self, over):
        """Measure again and again, until `over` is set."""
        while not over.wait(0.3):
            now = min(self.MOST, max(1.0, self._measure() / self._rest))
            # What was slow a moment ago still counts for what began then.
            self.slowness = max(now, self.slowness * 0.9)
            began = time.monotonic()
            for _ in range(self._WAKES):
                time.sleep(0.001)
                self._measure()
            late = time.monotonic() - began - self._WAKES * (0.001 + self._rest)
            self.lateness = max(min(self.LATEST, late), self.lateness * 0.9)

    def _measure(self):
        began = time.perf_counter()
        sum(range(self._WORK))
        return time.perf_counter() - began

    def wait(self, pending, limit):
        """The answer. Raises queue.Empty when it does not come in `limit` seconds of an idle machine, Refused."""
        began = time.monotonic()
        while True:
            try:
                return pending.get(timeout=0.2)
            except queue.Empty:
                if time.monotonic() - began > limit * self.slowness + self.lateness:
                    raise


def _names(path):
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


class Play:
    """What is done to one sandbox of a round, in its order; beside it somebody asks all the time how it stands."""

    def __init__(self, arena, box):
        self._arena = arena
        self._box = box
        self._twins = []
        self._cells = []
        self._done = threading.Event()

    def run(self):
        try:
            self._id = self._arena.create(self._box)
        except (Late, Refused):
            return
        watching = threading.Thread(target=self._watch)
        watching.start()
        try:
            for step in self._box.steps:
                time.sleep(step.wait)
                if not self._step(step):
                    break
        finally:
            self._done.set()
            watching.join()
            self._destroy_all()
            self._hear_all()

    def _hear_all(self):
        """The cells of attackers have ended with the sandbox, or before."""
        for pending in self._cells:
            with contextlib.suppress(Late, Refused):
                self._arena.listen(self._arena.ask("attack", pending, self._id), self._id)

    def _step(self, step):
        """Whether the sandbox is still there afterwards."""
        try:
            if step.operation == "attack":
                pending = self._arena.begin_attack(step.keywords, self._id)
                self._cells += [] if pending is None else [pending]
            elif step.operation == "expire":
                self._expire()
            elif step.operation == "destroy":
                return False
            else:
                answer = self._arena.ask(
                    step.operation, self._arena.begin(step.operation, self._id, **step.keywords), self._id
                )
                if step.operation == "fork":
                    self._meet(answer)
        except Late:
            return False
        except Refused as refusal:
            return refusal.type not in ("SandboxGone", "SandboxNotFound")
        return True

    def _meet(self, twins):
        """They answer as any sandbox does, and end."""
        self._arena.note_ids(twins)
        for id in twins:
            with contextlib.suppress(Refused):
                self._arena.ask("run_code", self._arena.begin("run_code", id, code="1 + 1", timeout=5.0), id)
            self._destroy(id)

    def _expire(self):
        """Its time is up soon, and then it is gone, whatever it does."""
        self._arena.ask("set_lifetime", self._arena.begin("set_lifetime", self._id, seconds=1.0), self._id)
        began = time.monotonic()
        while time.monotonic() - began < plan.DEADLINES["expire"]:
            try:
                if self._arena.ask("refresh", self._arena.begin("refresh", self._id), self._id)["status"] == "gone":
                    return
            except Refused:
                return
            time.sleep(0.2)
        self._arena.violate("no end", self._id, "it lives on after the end of its lifetime")

    def _watch(self):
        """While other things are done to it, it tells how it stands, without delay."""
        while not self._done.wait(0.5):
            for operation in ("refresh", "list"):
                try:
                    self._arena.ask(operation, self._arena.begin(operation, self._id), self._id)
                except Refused:
                    continue
                except Late:
                    return

    def _destroy_all(self):
        with contextlib.suppress(Late, Refused):
            self._destroy(self._id)

    def _destroy(self, id):
        self._arena.ask("destroy", self._arena.begin("destroy", id), id)
