"""Writing to the terminal or pipe that the user gave: unbuffered, whole, and quiet when nobody reads on."""

from __future__ import annotations

import os

STDOUT, STDERR = 1, 2


class OutputClosed(Exception):
    """Whoever read our output has gone, as `head` does when it has seen enough."""


class OutputFailed(Exception):
    """The output cannot be written; the message says why."""


def write(fd: int, data: bytes) -> None:
    """All of `data`, to a descriptor that may be set not to block.

    Raises:
        OutputClosed: nobody reads it.
        OutputFailed: the system refuses, for instance because a disk is full.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            _wait(fd)
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as error:
            raise OutputFailed(f"The output cannot be written: {error.strerror}.") from error


def _wait(fd: int) -> None:
    import select

    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    poller.poll()


def say(text: str) -> None:
    """A line of our own on stdout."""
    write(STDOUT, f"{text}\n".encode("utf-8", "backslashreplace"))


def say_json(value: object) -> None:
    """For programs that read us."""
    import json

    # Among what a model or a sandbox said there may be characters that a terminal obeys.
    say(json.dumps(value, indent=2, ensure_ascii=os.isatty(STDOUT)))


def complain(sentence: str) -> None:
    """A line of our own on stderr, `visible`."""
    write(STDERR, f"atoll: {visible(sentence)}\n".encode("utf-8", "backslashreplace"))


def visible(text: str) -> str:
    """Control characters are shown, not sent: a hostile guest may have chosen them."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def colourful(fd: int = STDOUT) -> bool:
    """Whether colours help there: on a terminal, unless NO_COLOR or a dumb terminal says otherwise."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and os.isatty(fd)


_COLOURS = {"red": 31, "green": 32, "yellow": 33, "cyan": 36, "bold": 1, "faint": 2}


def paint(text: str, colour: str, *, wanted: bool) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if wanted else text


def table(rows: list[list[str]], colour_of: dict[str, str], *, colours: bool) -> list[str]:
    """Aligned lines. Cells whose text is in `colour_of` are painted after they were measured."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        painted = [
            paint(text, colour_of[cell], wanted=colours) if cell in colour_of else text
            for cell, text in zip(row, padded, strict=True)
        ]
        lines.append("  ".join(painted).rstrip())
    return lines
