"""The magics of IPython that people write most, as Python: for a cell that does not parse, and has a line of them.

`translated` is pure. What it writes calls `Magics` of `magiccalls.py`, which a cell finds as the builtin `__magics__`.
Neither is imported with the guest: `late.py` keeps their texts, and runs them for the first cell that needs them.
"""

from __future__ import annotations

import io
import re
import tokenize
from typing import List, Optional

_LINE = re.compile(r"([ \t]*)(?:([A-Za-z_]\w*(?:[ \t]*,[ \t]*[A-Za-z_]\w*)*)[ \t]*=[ \t]*)?([%!])[ \t]*(.*)", re.DOTALL)
_CELL = re.compile(r"\s*%%(\w+)[ \t]*([^\n]*)\n?(.*)", re.DOTALL)
_SHELLS = ("bash", "sh")


def translated(source: str) -> Optional[str]:
    """The cell as Python, line by line; None where it has no magic that is known, or one that is not.

    Only for a source that does not parse: a line of valid Python never begins with % or !, unless a text or a bracket
    is open there, and such lines are left alone.
    """
    whole = _CELL.fullmatch(source)
    if whole is not None:
        return _cell(*whole.groups())
    lines = source.split("\n")
    made: List[str] = []
    found = False
    while lines:
        line = lines.pop(0)
        match = _LINE.fullmatch(line)
        if match is None or _is_open(made):
            made.append(line)
            continue
        more = 0
        while match[4].endswith("\\") and lines:
            match = _LINE.fullmatch(match[0] + "\n" + lines.pop(0)) or match
            more += 1
        python = _command(match[2], match[4]) if match[3] == "!" else _line(match[2], match[4])
        if python is None:
            return None
        # As many lines as there were, so that those of a traceback are the cell's.
        made += [match[1] + python] + [""] * more
        found = True
    return "\n".join(made) if found else None


def _is_open(lines: List[str]) -> bool:
    """Whether a text, a bracket or a line goes on after these lines."""
    try:
        for _ in tokenize.generate_tokens(io.StringIO("".join([line + "\n" for line in lines])).readline):
            pass
    except tokenize.TokenError as error:
        return "EOF" in str(error) or "unterminated triple" in str(error)
    except SyntaxError:
        return False
    return bool(lines) and lines[-1].endswith("\\") and "#" not in lines[-1]


def _command(names: Optional[str], command: str) -> Optional[str]:
    if not command.strip("! \t"):
        return None
    if command.startswith("!"):
        gives = "" if names is None else names + " = "
        return "%s__magics__.lines(%r)" % (gives, command.lstrip("! \t"))
    if names is not None:
        return "%s = __magics__.lines(%r)" % (names, command)
    return "__magics__.system(%r)" % command


def _line(names: Optional[str], text: str) -> Optional[str]:
    name, _, rest = text.partition(" ")
    rest = rest.strip()
    if name == "matplotlib":
        return "pass"
    if name == "time" and names is None and rest:
        if _parses(rest, "eval"):
            return "__magics__.timed(lambda: (%s))" % rest
        return "__magics__.start(); %s; __magics__.stop()" % rest.rstrip(";") if _parses(rest, "exec") else None
    if name == "ls":
        return _command(names, text)
    if name not in ("pip", "timeit", "cd", "env", "pwd") or (name == "timeit" and not rest):
        return None
    return "%s__magics__.%s(%r)" % (names + " = " if names else "", name, rest)


def _cell(name: str, rest: str, body: str) -> Optional[str]:
    if name in _SHELLS:
        return "__magics__.script(%r, %r)" % (name, body)
    if name == "timeit":
        return "__magics__.timeit(%r, %r)" % (rest, body)
    if name == "writefile" and rest:
        return "__magics__.writefile(%r, %r)" % (rest, body)
    if name == "time":
        inner = body if _parses(body, "exec") else translated(body)
        # It stands where the first line was. `interpreter.py` stops the clock, so that the last value stays the last.
        return None if inner is None else "__magics__.start()\n" + inner
    return None


def _parses(source: str, mode: str) -> bool:
    try:
        compile(source, "<magic>", mode, 0x2000 if mode == "exec" else 0, dont_inherit=True)  # with a top-level await
    except (SyntaxError, ValueError):
        return False
    return True
