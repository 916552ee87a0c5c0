"""The maker of sandboxes in the escape tests: a process of its own, root's or an ordinary user's.

It reads one JSON request a line and answers each with one line, in the order in which they are done.
"""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading

from atoll import PathRule, Sandbox, Snapshots
from atoll.engine import launch, messages
from atoll.engine.layout import Layout
from atoll.home import state_dir

_boxes = {}
_held = []
_writing = threading.Lock()


def _plain(value):
    """JSON of what the API gives."""
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    return repr(value)


def create(**wishes):
    if isinstance(wishes.get("permissions"), list):
        wishes["permissions"] = [PathRule(*rule) for rule in wishes["permissions"]]
    box = Sandbox.create(**wishes)
    _boxes[box.id] = box
    return {"id": box.id, "info": box.info, "handle": dict(box._core._record.handle.data)}


def connect(id):
    _boxes[id] = Sandbox.connect(id)


def handle(id):
    return dict(_boxes[id]._core._record.handle.data)


def method(id, name, arguments, keywords):
    """Call `name`, such as "files.read", on a sandbox."""
    target = _boxes[id]
    for part in name.split("."):
        target = getattr(target, part)
    return target(*arguments, **keywords)


def fork(id, **keywords):
    """The twins' ids; `method` knows them from now on."""
    twins = _boxes[id].fork(**keywords)
    _boxes.update({twin.id: twin for twin in twins})
    return [twin.id for twin in twins]


def forget(name):
    """Delete a snapshot."""
    Snapshots().delete(name)


def listing():
    return Sandbox.list()


def outside(source):
    """Run Python as this user, on the bare host."""
    done = subprocess.run([sys.executable, "-I", "-"], input=source, capture_output=True, text=True, check=False)
    return {"stdout": done.stdout, "stderr": done.stderr, "exit_code": done.returncode}


def start_zygote(before):
    """Start a zygote that first runs some Python, which may take a layer away or replace the guest."""
    home = state_dir()
    places = Layout(home)
    places.make()
    reader, writer = os.pipe()
    code = f"{before}\nfrom atoll.engine.zygote import daemon\ndaemon({home!r}, {launch.tag()!r}, {writer})\n"
    with open(f"{places.run}/zygote.log", "ab") as log:
        argv = [sys.executable, "-S", "-c", code]
        subprocess.run(argv, pass_fds=[writer], stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    if answer != b"ok":
        raise RuntimeError(answer.decode())


def ask_keeper(id, request, times=1):
    """Send a request to a sandbox's keeper as often as wanted, each on a connection of its own; the answers."""
    answers = []
    for _ in range(times):
        with messages.connect(Layout(state_dir()).socket(id)) as sock:
            sock.settimeout(10)
            messages.send(sock, request)
            answer, fds = messages.receive(sock)
            _held.extend(fds)
            answers.append(answer)
    return answers


def zygote():
    """The pid of the zygote, started if need be."""
    with launch.connect(state_dir()) as sock:
        return struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def zygotes():
    """The pids of all that live: sandboxes with packages have their own."""
    run = Layout(state_dir()).run
    found = []
    for name in os.listdir(run) if os.path.isdir(run) else ():
        if name.startswith("zygote-"):
            with contextlib.suppress(OSError), messages.connect(f"{run}/{name}") as sock:
                found.append(struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
    return found


def shut_down():
    """End the zygote; the next request starts another, which sweeps."""
    launch.shut_down(state_dir())


def change_directory(path):
    os.chdir(path)


def end():
    """Leave nothing: no sandbox, no zygote."""
    for box in _boxes.values():
        box.destroy()
    launch.shut_down(state_dir())


_FUNCTIONS = (
    create, connect, handle, method, fork, forget, listing, outside, start_zygote, ask_keeper, zygote, zygotes,
    shut_down, change_directory, end,
)  # fmt: skip
_OPERATIONS = {function.__name__: function for function in _FUNCTIONS}


def _answer(request):
    try:
        said = {"value": _plain(_OPERATIONS[request["op"]](**request["with"]))}
    except Exception as error:  # noqa: BLE001  # the test decides what it means
        said = {"error": {"type": type(error).__name__, "message": str(error)}}
    with _writing:
        sys.stdout.write(json.dumps({"number": request["number"], **said}) + "\n")
        sys.stdout.flush()


def main():
    os.umask(0o022)
    for line in sys.stdin:
        threading.Thread(target=_answer, args=(json.loads(line),), daemon=True).start()


if __name__ == "__main__":
    main()
