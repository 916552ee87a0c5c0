"""The text of a Python cell: what IPython does with it that Python does not, and what only IPython knows."""

from __future__ import annotations

import re

_FIRST = re.compile(r"(?:[ \t\f]*\r?\n)*([ \t]+)\S")
_NOT_PYTHON = re.compile(r"\s*(?:[%!?]|[\w.]+\s*=\s*[%!]\s*\w|[^#'\"]*\?\s*$)")
_MAGIC = re.compile(r"^[ \t]*(?:[A-Za-z_][\w, \t]*=[ \t]*)?[%!]", re.MULTILINE)
_INSTALLS = re.compile(r"\s*[%!]?\s*(?:python3?\s+-m\s+)?pip3?\s+install\b")
_OF_IPYTHON = "%, ! and ? are IPython's: use language='jupyter:python3', or sb.run for a command"
_OF_PIP = "packages are installed by sb.install([...]), or by create(packages=[...])"


def dedented(source: str) -> str:
    """Without the indentation of the first line, on every line that has it; in texts of several lines, too."""
    found = _FIRST.match(source)
    if found is None:
        return source
    indent = found[1]
    lines = source.split("\n")
    return "\n".join([line[len(indent) :] if line.startswith(indent) else line for line in lines])


def hides_its_value(source: str) -> bool:
    """Whether it ends with a semicolon, a comment aside."""
    if ";" not in source[source.rstrip().rfind("\n") + 1 :]:
        return False
    import io
    import tokenize

    last = ""
    skipped = (tokenize.COMMENT, tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER)
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in skipped:
                last = token.string
    except (SyntaxError, tokenize.TokenError):  # of a cell with magics
        return source.rstrip().endswith(";")
    return last == ";"


def may_have_magics(source: str) -> bool:
    """Whether a line begins as IPython's do, for a source that does not parse."""
    return _MAGIC.search(source) is not None


def explain(error: SyntaxError, source: str) -> None:
    """Say in its message what to do instead, where a line is no Python but IPython's."""
    lines = source.split("\n")
    if error.lineno is None or not 0 < error.lineno <= len(lines):
        return
    line = lines[error.lineno - 1]
    if _INSTALLS.match(line):
        error.msg = "%s (%s)" % (error.msg, _OF_PIP)
    elif _NOT_PYTHON.match(line):
        error.msg = "%s (%s)" % (error.msg, _OF_IPYTHON)
