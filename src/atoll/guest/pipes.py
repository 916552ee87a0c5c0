"""The guest's ends of the pipes to a child: one that is read as its taker has room, one that is fed."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections import deque
from typing import Callable, Deque, Optional, Tuple

from ..wire.frames import DATA_SIZE
from .loop import IN, OUT, Callback, Loop

Consumed = Callable[[int], None]


class Source:
    """Reads a pipe or a terminal for as long as the taker has room; otherwise the child has to wait.

    Args:
        take: gets what was read.
        room: how much may be read now.
        ended: called once, when the source is closed by the other side or by `close`.
        before: called before each reading, to take what was said elsewhere before it was written.
    """

    def __init__(
        self,
        loop: Loop,
        fd: int,
        take: Callable[[bytes], None],
        room: Callable[[], int],
        ended: Callback,
        before: Optional[Callback] = None,
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._take = take
        self._room = room
        self._ended = ended
        self._before = before
        self._watched = False
        self._left: Optional[int] = None
        self._settled: Optional[Callback] = None
        os.set_blocking(fd, False)
        self.resume()

    @property
    def open(self) -> bool:
        return self._fd >= 0

    def resume(self) -> None:
        """There may be room again."""
        if self.open and not self._watched and self._room() > 0:
            self._watched = True
            self._loop.watch(self._fd, IN, self._ready)

    def settle(self, done: Callback) -> None:
        """Take what is in the pipe now, then call `done`; what is written later does not delay it."""
        self._left = self._available()
        self._settled = done
        self._check_settled()

    def close(self) -> None:
        if self.open:
            self._pause()
            os.close(self._fd)
            self._fd = -1
            self._left = 0
            self._check_settled()
            self._ended()

    def _ready(self, _mask: int) -> None:
        if self._before is not None:
            self._before()
            if not self.open:
                return
        room = self._room()
        if room <= 0:
            self._pause()
            return
        try:
            data = os.read(self._fd, min(room, DATA_SIZE))
        except BlockingIOError:
            return
        except OSError:
            data = b""  # a terminal whose other side is closed says EIO
        if not data:
            self.close()
            return
        self._take(data)
        if self._left is not None:
            self._left -= len(data)
            self._check_settled()

    def _check_settled(self) -> None:
        if self._settled is not None and self._left is not None and self._left <= 0:
            done, self._settled, self._left = self._settled, None, None
            done()

    def _available(self) -> int:
        if not self.open:
            return 0
        count: int = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, b"\0\0\0\0"))[0]
        return count

    def _pause(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.forget(self._fd)


class Sink:
    """Feeds a pipe or a terminal as fast as the child reads it.

    A child that closes its input early is no error: what comes afterwards is dropped.

    Args:
        end_mark: what stands for the end of input where closing does not, as on a terminal.
    """

    def __init__(self, loop: Loop, fd: int, end_mark: bytes = b"") -> None:
        self._loop = loop
        self._fd = fd
        self._end_mark = end_mark
        self._waiting: Deque[Tuple[memoryview, Consumed]] = deque()
        self._ending = False
        self._watched = False
        os.set_blocking(fd, False)

    def put(self, data: bytes, consumed: Consumed) -> None:
        """`consumed` is told how many bytes are done with, written or dropped."""
        if self._fd < 0 or self._ending:
            consumed(len(data))
            return
        self._waiting.append((memoryview(data), consumed))
        self._write()

    def end(self) -> None:
        """No more input; the child sees that once it has read what there is."""
        if self._fd < 0 or self._ending:
            return
        self._ending = True
        if self._end_mark:
            self._waiting.append((memoryview(self._end_mark), _nobody))
        self._write()

    def close(self) -> None:
        if self._fd >= 0:
            self._watch(False)
            os.close(self._fd)
            self._fd = -1
        while self._waiting:
            view, consumed = self._waiting.popleft()
            consumed(len(view))

    def _ready(self, _mask: int) -> None:
        self._write()

    def _write(self) -> None:
        while self._waiting and self._fd >= 0:
            view, consumed = self._waiting[0]
            try:
                written = os.write(self._fd, view)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            consumed(written)
            if written == len(view):
                self._waiting.popleft()
            else:
                self._waiting[0] = view[written:], consumed
        if self._ending and not self._waiting and not self._end_mark:
            self.close()
            return
        self._watch(bool(self._waiting))

    def _watch(self, wanted: bool) -> None:
        if wanted != self._watched:
            self._watched = wanted
            if wanted:
                self._loop.watch(self._fd, OUT, self._ready)
            else:
                self._loop.forget(self._fd)


def _nobody(_size: int) -> None:
    pass
