"""What a cell says and shows, on the user's terminal or pipe, as it comes."""

from __future__ import annotations

from ..types import CodeError, Execution, Result
from . import pictures
from .output import STDERR, STDOUT, colourful, complain, paint, write

TIMED_OUT = 124


class Showing:
    """Listens to a cell, with the callbacks that `run_code` takes.

    Args:
        label: what stands before the main result, such as `Out[3]: `; nothing unless given.
        pictures_to: where the names of saved pictures go.
    """

    def __init__(self, label: str = "", pictures_to: int = STDERR) -> None:
        self._label = label
        self._pictures_to = pictures_to
        self._at_start = {STDOUT: True, STDERR: True}
        self.line = ""

    def on_stdout(self, text: str) -> None:
        self._say(STDOUT, text)

    def on_stderr(self, text: str) -> None:
        self._say(STDERR, text)

    def on_result(self, result: Result) -> None:
        self.fresh_line()
        label = self._label if result.is_main else ""
        if pictures.is_picture(result):
            self._say(self._pictures_to, f"{label}{pictures.save(result)}\n")
            return
        text = result.markdown or result.text or ", ".join(result.formats)
        if label and "\n" in text:
            label = f"{label.rstrip()}\n"
        self._say(STDOUT, f"{label}{text}\n")

    def on_error(self, error: CodeError) -> None:
        self.fresh_line()
        # A shell's command that fails is no news that needs a traceback.
        story = error.value if error.name == "ExitCode" else error.traceback.rstrip("\n")
        *frames, last = story.split("\n")
        self._say(STDERR, "".join(f"{line}\n" for line in frames))
        self._say(STDERR, f"{paint(last, 'red', wanted=colourful(STDERR))}\n")

    def take_line(self) -> str:
        """What the cell has said of a line that is not ended, for whoever goes on with it."""
        line, self.line = self.line, ""
        self._at_start = {STDOUT: True, STDERR: True}
        return line

    def fresh_line(self) -> None:
        """Begin a new line, where the cell has not ended its own."""
        for fd in (STDOUT, STDERR):
            if not self._at_start[fd]:
                self._say(fd, "\n")

    def _say(self, fd: int, text: str) -> None:
        if text:
            self._at_start[fd] = text.endswith("\n")
            self.line = text.rpartition("\n")[2] if "\n" in text else self.line + text
            write(fd, text.encode("utf-8", "backslashreplace"))


def conclude(execution: Execution, seconds: float | None) -> int:
    """Tell what the user cannot see from what was shown; gives the exit code. `seconds` is what the cell had."""
    if execution.truncated:
        complain("The cell said or showed more than may pass; the rest was dropped.")
    if execution.timed_out:
        complain(f"The cell ran out of time after {seconds or 0:g} s; -t gives it more.")
    if execution.state_lost and (execution.error is None or execution.error.name != "ContextDied"):
        complain("The variables of its context are lost.")
    if execution.timed_out:
        return TIMED_OUT
    if execution.exit_code:
        return execution.exit_code
    return 0 if execution.error is None else 1  # output that was dropped is no failure of the code
