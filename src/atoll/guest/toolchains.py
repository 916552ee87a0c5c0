"""The languages, one entry each: pure data for contexts (`languages.py`) and for `atoll run --lang`."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

PYTHON, SHELL, DRIVER, FILE = "python", "shell", "driver", "file"


class Language(NamedTuple):
    """One language.

    Args:
        names: the first is its own, the others are aliases.
        suffixes: of its files.
        kind: how a context runs it: PYTHON natively; SHELL in one shell that stays; DRIVER in one interpreter
            that stays and runs a driver of ours; FILE with a fresh process for each cell, without state.
        tools: programs that a context needs; all must be on PATH.
        needs: the same in words, for cells and whole programs alike.
        ready: a shell condition that is true where whole programs can run.
        start: a shell script that runs the file "$1" with the rest as its arguments and ends with its exit code.
        compile: a shell command that makes the program "$out" of the file "$1", for a language that is compiled.
        get: how to get it.
    """

    names: Tuple[str, ...]
    suffixes: Tuple[str, ...]
    kind: str
    tools: Tuple[str, ...]
    needs: str
    ready: str
    get: str
    start: str = ""
    compile: Optional[str] = None

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def program(self) -> str:
        """The script for a whole program; 127 where a tool is missing."""
        if self.compile is None:
            return self.start
        # A compiled program is started with exec, so that its exit code and signals are what the caller sees.
        build = 'out=$(mktemp -d)/program && %s && shift && exec "$out" "$@"' % self.compile
        return "%s || exit 127; %s" % (" && ".join("command -v %s >/dev/null" % tool for tool in self.tools), build)

    @property
    def cell(self) -> str:
        """The script for a cell, a file "$1" in a directory of its own; `uncompiled` in there says what it says."""
        if self.compile is None:
            return self.start
        return 'out=${1%%/*}/program; %s || { : >"${1%%/*}/uncompiled"; exit 1; }; exec "$out"' % self.compile


_STRIPS_TYPES = "node --experimental-strip-types -e 0"

LANGUAGES = (
    Language(
        names=("python", "py", "python3"),
        suffixes=(".py",),
        kind=PYTHON,
        tools=(),
        needs="python3",
        ready="command -v python3",
        # Unbuffered: whoever watches sees each line when it is printed.
        start='exec python3 -u "$@"',
        get="apt-get install python3",
    ),
    Language(
        names=("javascript", "js", "node"),
        suffixes=(".js", ".mjs", ".cjs"),
        kind=DRIVER,
        tools=("node",),
        needs="node",
        ready="command -v node",
        start='exec node "$@"',
        get="apt-get install nodejs",
    ),
    Language(
        names=("typescript", "ts"),
        suffixes=(".ts", ".mts", ".cts"),
        kind=DRIVER,
        tools=("node",),
        needs="node 22.13 or newer, or tsx",
        ready='PATH="$PWD/node_modules/.bin:$PATH"; command -v tsx || command -v deno || command -v bun || '
        "command -v ts-node || %s" % _STRIPS_TYPES,
        # Types are dropped and not checked, whichever it is: without a project's files `console` would have none.
        start='PATH="$PWD/node_modules/.bin:$PATH"; has() { command -v "$1" >/dev/null 2>&1; }\n'
        'has tsx && exec tsx "$@"; has deno && exec deno run --allow-all "$@"; has bun && exec bun run "$@"\n'
        'has ts-node && exec ts-node --transpile-only "$@"\n'
        "%s 2>/dev/null || exit 127\n"
        'exec node --experimental-strip-types --no-warnings "$@"' % _STRIPS_TYPES,
        get="npm install --global --prefix /usr/local tsx",
    ),
    Language(
        names=("go", "golang"),
        suffixes=(".go",),
        kind=FILE,
        tools=("go",),
        needs="go",
        ready="command -v go",
        compile='go build -o "$out" "$1"',
        get="apt-get install golang-go",
    ),
    Language(
        names=("rust", "rs"),
        suffixes=(".rs",),
        kind=FILE,
        tools=("rustc", "cc"),
        needs="rustc and cc",
        ready="command -v rustc && command -v cc",
        compile='rustc --edition 2021 --crate-name program -o "$out" "$1"',
        get="apt-get install rustc gcc",
    ),
    Language(
        names=("java",),
        suffixes=(".java",),
        kind=FILE,
        tools=("java",),
        needs="java 11 or newer",
        ready="command -v java",
        # A single file needs no step of its own, and its class any name.
        start='command -v java >/dev/null || exit 127; exec java "$@"',
        get="apt-get install default-jdk-headless",
    ),
    Language(
        names=("r", "rscript"),
        suffixes=(".r",),
        kind=FILE,
        tools=("Rscript",),
        needs="Rscript",
        ready="command -v Rscript",
        start='exec Rscript "$@"',
        get="apt-get install r-base-core",
    ),
    Language(
        names=("bash",),
        suffixes=(".sh", ".bash"),
        kind=SHELL,
        tools=("bash",),
        needs="bash",
        ready="command -v bash || command -v sh",
        start='command -v bash >/dev/null && exec bash "$@"; exec sh "$@"',
        get="apt-get install bash",
    ),
    Language(
        names=("zsh",),
        suffixes=(".zsh",),
        kind=SHELL,
        tools=("zsh",),
        needs="zsh",
        ready="command -v zsh",
        start='exec zsh "$@"',
        get="apt-get install zsh",
    ),
    Language(
        names=("sh", "shell"),
        suffixes=(),
        kind=SHELL,
        tools=("sh",),
        needs="sh",
        ready="command -v sh",
        start='exec sh "$@"',
        get="apt-get install dash",
    ),
)


def find(name: str) -> Optional[Language]:
    """The language of a name or alias, in any case."""
    wanted = name.lower()
    return next((language for language in LANGUAGES if wanted in language.names), None)


def lacking(language: Language) -> str:
    """The sentence for a sandbox that does not have what a language needs."""
    lacks = "has none of them" if "," in language.needs else "does not have it"
    if " and " in language.needs:
        lacks = "does not have them"
    return "%s needs %s, and this sandbox %s." % (language.name, language.needs, lacks)


def remedy(language: Language, image: bool) -> str:
    """How to get it into sandboxes, which see the programs of their image or of their host."""
    what = "them" if " and " in language.needs else "it"
    if image:
        return "It sees the programs of its image only: use an image that has %s." % what
    return "Install %s on the host (`%s`), or use an image that has %s." % (what, language.get, what)


def known() -> str:
    names = [language.name for language in LANGUAGES]
    return "%s or %s" % (", ".join(names[:-1]), names[-1])
