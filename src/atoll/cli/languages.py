"""The languages that `--file` and `--lang` know, one entry each."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..errors import InvalidInput
from ..policy.text import shown


class Language(NamedTuple):
    """One language.

    `ready` is a shell condition that is true where it can run; `start` is a shell script that runs the file
    "$1" with the rest as its arguments, and ends with its exit code.
    """

    names: tuple[str, ...]
    suffixes: tuple[str, ...]
    needs: str
    ready: str
    start: str
    get: str

    @property
    def name(self) -> str:
        return self.names[0]


_STRIPS_TYPES = "node --experimental-strip-types -e 0"

# A compiled program is started with exec, so that its exit code and signals are what the caller sees.
_COMPILED = 'out=$(mktemp -d)/program && {compile} -o "$out" "$1" && shift && exec "$out" "$@"'

LANGUAGES = (
    Language(
        names=("python", "py", "python3"),
        suffixes=(".py",),
        needs="python3",
        ready="command -v python3",
        # Unbuffered: whoever watches sees each line when it is printed.
        start='exec python3 -u "$@"',
        get="apt-get install python3",
    ),
    Language(
        names=("node", "javascript", "js"),
        suffixes=(".js", ".mjs", ".cjs"),
        needs="node",
        ready="command -v node",
        start='exec node "$@"',
        get="apt-get install nodejs",
    ),
    Language(
        names=("typescript", "ts"),
        suffixes=(".ts", ".mts", ".cts"),
        needs="tsx, deno, bun, ts-node, or node 22.6 or newer",
        ready=f'PATH="$PWD/node_modules/.bin:$PATH"; command -v tsx || command -v deno || command -v bun || '
        f"command -v ts-node || {_STRIPS_TYPES}",
        start='PATH="$PWD/node_modules/.bin:$PATH"; has() { command -v "$1" >/dev/null 2>&1; }\n'
        'has tsx && exec tsx "$@"; has deno && exec deno run --allow-all "$@"; has bun && exec bun run "$@"\n'
        'has ts-node && exec ts-node "$@"\n'
        f"{_STRIPS_TYPES} 2>/dev/null || exit 127\n"
        'exec node --experimental-strip-types --no-warnings "$@"',
        get="npm install --global --prefix /usr/local tsx",
    ),
    Language(
        names=("go", "golang"),
        suffixes=(".go",),
        needs="go",
        ready="command -v go",
        start="command -v go >/dev/null || exit 127; " + _COMPILED.format(compile="go build"),
        get="apt-get install golang-go",
    ),
    Language(
        names=("rust", "rs"),
        suffixes=(".rs",),
        needs="rustc and cc",
        ready="command -v rustc && command -v cc",
        start="command -v rustc >/dev/null && command -v cc >/dev/null || exit 127; "
        + _COMPILED.format(compile="rustc --edition 2021 --crate-name program"),
        get="apt-get install rustc gcc",
    ),
    Language(
        names=("bash",),
        suffixes=(".sh", ".bash"),
        needs="bash or sh",
        ready="command -v bash || command -v sh",
        start='command -v bash >/dev/null && exec bash "$@"; exec sh "$@"',
        get="apt-get install bash",
    ),
    Language(
        names=("sh", "shell"),
        suffixes=(),
        needs="sh",
        ready="command -v sh",
        start='exec sh "$@"',
        get="apt-get install dash",
    ),
)


def by_name(name: str) -> Language:
    """Raises InvalidInput for a language that is not known."""
    for language in LANGUAGES:
        if name.lower() in language.names:
            return language
    raise InvalidInput(f"--lang is {shown(name)}; the known languages are {_known()}.")


def by_file(path: str) -> Language:
    """Raises InvalidInput when the name of the file does not tell."""
    suffix = os.path.splitext(path)[1].lower()
    for language in LANGUAGES:
        if suffix in language.suffixes:
            return language
    raise InvalidInput(f"The language of {shown(path)} cannot be told from its name; say --lang {_known()}.")


def _known() -> str:
    names = [language.name for language in LANGUAGES]
    return f"{', '.join(names[:-1])} or {names[-1]}"
