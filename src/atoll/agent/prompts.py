"""What an agent tells its model. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_COMPLETION = """\
You answer a question. You have a sandbox: a Linux machine of your own, with Python whose variables stay from call to \
call. Compute, look and check there rather than guess. What you do not print you do not see.\
"""
_AGENT = """\
You work on a task by yourself, step by step, until it is done. You have a sandbox: a Linux machine of your own, with \
Python whose variables stay from call to call. Do the work there, look at what came of it, and check it before you \
say that it is done. What you do not print you do not see.\
"""
_END = "When you have the answer, reply with it as plain text and call no more tools."
_RECURSION = """\
Code in run_code can call: llm_query(prompt) -> str, a fresh model that sees only that prompt; \
llm_query_batched(prompts) -> list of str, many at once; {rlm}FINAL(answer) and FINAL_VAR("name"), which end the work \
with a text or with the value of a variable.\
"""
_RLM = (
    "rlm_query(prompt, context) -> str, a helper like you with a sandbox of its own and `context` as a variable there; "
)
_CONTEXT = """\
The variable `context` in run_code holds what the question is about: {about}. It may be far too long to print: look at \
parts of it, search it with code, and give pieces of it to llm_query.\
"""
_WORKSPACE = (
    "Your working directory /workspace has the user's files. Nothing that you change there reaches the user unreviewed."
    " What you may not change is read-only; what you make then goes to /workspace/output."
)
_NO_TOOLS = """\
If you cannot call tools, write code in a block that begins with ```repl and ends with ```; what it prints comes back.\
"""
_CHECKED = "Your answer is checked before it counts. If the check fails, you are told why and go on."

NUDGE = "You said nothing. Go on with the task, or reply with your answer."
GO_ON = "Your reply was cut off because it was long. Go on exactly where it stopped, without repeating anything."

_FINAL_VAR = re.compile(r"^\s*FINAL_VAR\(\s*[\"']?([A-Za-z_]\w*)[\"']?\s*\)\s*$")


def system_prompt(
    kind: str, *, context: str | None, workspace: bool, checked: bool, deeper: bool, more: str | None
) -> str:
    """The first message of a conversation."""
    parts = [_AGENT if kind == "agent" else _COMPLETION]
    if workspace:
        parts.append(_WORKSPACE)
    if context is not None:
        parts.append(_CONTEXT.format(about=context))
    parts += [_RECURSION.format(rlm=_RLM if deeper else ""), _NO_TOOLS]
    if checked:
        parts.append(_CHECKED)
    parts.append(_END)
    if more:
        parts.append(more)
    return "\n\n".join(parts)


def about(context: Any) -> str:
    """All that a model is told of a long context: its type and how long it is."""
    if isinstance(context, str):
        return f"a str of {len(context)} characters in {context.count(chr(10)) + 1} lines"
    if isinstance(context, list | dict):
        return f"a {type(context).__name__} of {len(context)} items"
    return f"a value of the type {type(context).__name__}"


def blocks_of(text: str) -> list[str]:
    """Code that a model wrote into its text, for want of tool calls."""
    blocks: list[str] = []
    inside: list[str] | None = None
    for line in text.splitlines(keepends=True):
        mark = line.strip()
        if inside is None:
            inside = [] if mark == "```repl" else None
        elif mark == "```":
            blocks.append("".join(inside))
            inside = None
        else:
            inside.append(line)
    return blocks


def final_of(text: str) -> tuple[str, str] | None:
    """("text", answer) or ("variable", name), if a model ended its work by words."""
    found = _FINAL_VAR.match(text)
    if found:
        return "variable", found[1]
    said = text.strip()
    if said.startswith("FINAL(") and said.endswith(")"):
        return "text", _unquoted(said.removeprefix("FINAL(")[:-1].strip())
    return None


def failed_check(reason: str) -> str:
    return f"The check of your answer failed:\n{reason}\n\nMend it, then reply with your answer again."


def unknown_tool(name: str, known: Iterable[str]) -> str:
    return f"There is no tool {name[:80]!r}. You have: {', '.join(known)}."


def _unquoted(text: str) -> str:
    for mark in ('"""', "'''", '"', "'"):
        if len(text) >= 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
            return text[len(mark) : -len(mark)]
    return text
