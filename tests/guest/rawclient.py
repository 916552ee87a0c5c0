"""A guest in a process of its own, started by exec, and a client that speaks bare frames to it."""

import array
import json
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict

import atoll.guest
from atoll.wire import frames
from atoll.wire.frames import CALL, CLOSE, DATA, END, EOF, EVENT, HELLO, OPEN, WINDOW

GUEST = os.path.join(os.path.dirname(atoll.guest.__file__), "__main__.py")
PATIENCE = 30


class Guest:
    """The root is a temporary directory with a `workspace` in it; commands see the whole machine."""

    def __init__(self, root, *, python=sys.executable, main=GUEST, workdir="/workspace", **config):
        self.root = str(root)
        self.clients = []
        self.workspace = os.path.join(self.root, workdir.lstrip("/"))
        os.makedirs(self.workspace, exist_ok=True)
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        settings = {"root": self.root, "workdir": workdir, "env": env, "python": sys.executable, **config}
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            fd = theirs.fileno()
            argv = [python, "-I", "-S", main, "--control-fd", str(fd), "--config", json.dumps(settings)]
            self.process = subprocess.Popen(argv, pass_fds=[fd], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def connect(self, *, greet=True):
        ours, theirs = socket.socketpair()
        with theirs:
            rights = array.array("i", [theirs.fileno()])
            self.control.sendmsg([b"c"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        self.clients.append(Client(ours, greet=greet))
        return self.clients[-1]

    def close(self):
        """Hang up, and see that it ends by itself and has nothing to complain about."""
        for client in self.clients:
            client.close()
        self.control.close()
        complaint = self.process.stderr.read()
        self.process.stderr.close()
        assert self.process.wait(PATIENCE) == 0
        assert complaint == b""


class Ended:
    """All that came on a channel up to its END."""

    def __init__(self):
        self.output = defaultdict(bytearray)
        self.chunks = []
        self.events = []
        self.ok = None
        self.error = None

    @property
    def stdout(self):
        return bytes(self.output[1])

    @property
    def stderr(self):
        return bytes(self.output[2])


class Client:
    def __init__(self, sock, *, greet=True):
        self.sock = sock
        self.sock.settimeout(PATIENCE)
        self.channel = 0
        self.decoder = frames.Decoder()
        self.waiting = []
        self.credit = defaultdict(lambda: WINDOW)
        if greet:
            self.send(frames.encode_json(0, HELLO, {"version": frames.VERSION}))
            assert self.receive().kind == HELLO

    def send(self, data):
        self.sock.sendall(data)

    def receive(self):
        """The next frame, of whatever channel; None at the end of the stream."""
        while not self.waiting:
            data = self.sock.recv(1 << 18)
            if not data:
                return None
            self.waiting += self.decoder.feed(data)
        return self.waiting.pop(0)

    def open(self, op, **arguments):
        self.channel += 1
        self.send(frames.encode_json(self.channel, OPEN, {"op": op, **arguments}))
        return self.channel

    def data(self, channel, payload, stream=0):
        self.send(frames.encode(channel, DATA, payload, stream))

    def eof(self, channel, stream=0):
        self.send(frames.encode(channel, EOF, b"", stream))

    def call(self, channel, **request):
        self.send(frames.encode_json(channel, CALL, request))

    def cancel(self, channel):
        self.send(frames.encode(channel, CLOSE))

    def give(self, channel, count):
        self.send(frames.encode_credit(channel, count))

    def event(self, channel):
        """The next EVENT of a channel."""
        while True:
            frame = self.receive()
            assert frame is not None
            assert frame.channel == channel
            if frame.kind == EVENT:
                return frame.json()
            assert frame.kind != END, frame

    def finish(self, channel):
        """Read until its END, giving all credit back. Frames of other channels are left for later."""
        ended, aside = Ended(), []
        while True:
            frame = self.receive()
            assert frame is not None, "the guest hung up"
            if frame.channel != channel:
                aside.append(frame)
                continue
            if frame.kind == END:
                self.waiting = aside + self.waiting
                answer = frame.json()
                ended.ok, ended.error = answer.get("ok"), answer.get("error")
                return ended
            self._take(ended, frame)

    def _take(self, ended, frame):
        if frame.kind == DATA:
            assert frame.payload
            ended.output[frame.stream] += frame.payload
            ended.chunks.append((frame.stream, frame.payload))
        elif frame.kind == EVENT:
            event = frame.json()
            if "bulk" in event:
                event = json.loads(bytes(ended.output[frames.BULK][-event["bulk"] :]))
            ended.events.append(event)
        elif frame.kind == frames.CREDIT:
            self.credit[frame.channel] += frame.credit()
            assert self.credit[frame.channel] <= WINDOW, "credit that was never used came back"
            return
        self.give(frame.channel, frames.HEADER.size + len(frame.payload))

    def do(self, op, **arguments):
        """A whole operation."""
        return self.finish(self.open(op, **arguments))

    def run(self, *argv, **arguments):
        return self.do("exec", argv=list(argv), **arguments)

    def code(self, code, **arguments):
        return self.do("code", code=code, **arguments)

    def upload(self, op, content, **arguments):
        """An operation that takes input, within its credit."""
        channel = self.open(op, **arguments)
        view = memoryview(content)
        ended = Ended()
        while view:
            size = min(len(view), self.credit[channel], frames.DATA_SIZE)
            if size:
                self.credit[channel] -= size
                self.data(channel, view[:size])
                view = view[size:]
                continue
            frame = self.receive()
            if frame.kind == END:
                self.waiting.insert(0, frame)
                return self.finish(channel)
            self._take(ended, frame)
        self.eof(channel)
        rest = self.finish(channel)
        for stream, data in rest.output.items():
            ended.output[stream] += data
        ended.events += rest.events
        ended.ok, ended.error = rest.ok, rest.error
        return ended

    def close(self):
        self.sock.close()


def eventually(condition, patience=PATIENCE):
    """Wait until something holds, and give it back."""
    deadline = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
