"""Pages of the documentation as programs: their Python blocks run in order, and what they claim is checked.

    expression            # -> its repr
    print("words")        # -> what it prints

An arrow in a comment is a claim about its statement, and a ```text block right after a Python block is all that the
block prints. An ellipsis (…) in a claim stands for anything.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
import tokenize
from typing import NamedTuple

_FENCE = re.compile(r"^```([a-z]+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ARROW = re.compile(r"#\s*->\s*(.*)")


class Block(NamedTuple):
    """A Python block; `line` is where its code begins in the page, `output` the text block that follows it."""

    line: int
    code: str
    words: str
    output: str | None


def python_blocks(text):
    found = list(_FENCE.finditer(text))
    for number, match in enumerate(found):
        if match[1] != "python":
            continue
        after = found[number + 1] if number + 1 < len(found) else None
        told = after is not None and after[1] == "text" and not text[match.end() : after.start()].strip()
        line = text.count("\n", 0, match.start(3)) + 1
        yield Block(line, match[3], match[2].strip(), after[3] if told else None)


def run_page(text, name):
    """Run the blocks of a page in one namespace. Raises AssertionError where a claim does not hold."""
    claims = Claims()
    namespace = {"__name__": "page", "_claim": claims.check}
    for block in python_blocks(text):
        assert not block.words, f"{name}:{block.line}: every block runs, and {block.words!r} means nothing"
        code = compile(claims.with_checks(block), name, "exec", dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if block.output is not None:
            assert matches(block.output, printed.getvalue()), f"{name}:{block.line} prints:\n{printed.getvalue()}"
    assert not claims.waiting, f"{name}: claims on these lines were never reached: {sorted(claims.waiting)}"


def matches(claim, found):
    pattern = ".*".join(map(re.escape, claim.strip().split("…")))
    return re.fullmatch(pattern, found.strip(), re.DOTALL) is not None


class Claims:
    """Turns each claim of a block into a call that checks it. `waiting` has the lines of those not reached yet."""

    def __init__(self):
        self.waiting = set()

    def with_checks(self, block):
        # Empty lines in front: errors and tracebacks name the line of the page.
        source = "\n" * (block.line - 1) + block.code
        arrows = {}
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and (arrow := _ARROW.match(token.string)):
                arrows[token.start[0]] = arrow[1]
        self.waiting |= arrows.keys()
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and node.end_lineno in arrows:
                self._check(node, arrows.pop(node.end_lineno))
        assert not arrows, f"these claims belong to no expression: {arrows}"
        return ast.fix_missing_locations(tree)

    def _check(self, node, claim):
        value = node.value
        prints = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"
        told = [ast.Constant(node.end_lineno), ast.Constant(claim), ast.Constant(prints)]
        arguments = value.args if prints else [value]
        call = ast.Call(ast.Name("_claim", ast.Load()), [*told, *arguments], value.keywords if prints else [])
        node.value = ast.copy_location(call, value)

    def check(self, line, claim, prints, *values, **keywords):
        self.waiting.discard(line)
        if not prints:
            assert matches(claim, repr(values[0])), f"line {line} gives {values[0]!r}"
            return
        printed = io.StringIO()
        print(*values, **keywords, file=printed)
        assert matches(claim, printed.getvalue()), f"line {line} prints {printed.getvalue()!r}"
        sys.stdout.write(printed.getvalue())
