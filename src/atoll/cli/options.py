"""The options that several commands share."""

from __future__ import annotations

import re
from argparse import Namespace
from typing import Any

from .parsing import Parser, UsageError
from .permitting import add_permission_options, permissions_of
from .values import duration, labels, number, whole_number

# What docker's options are here.
HABITS = {
    **dict.fromkeys(("-d", "--detach"), "A sandbox stays with --keep, and `atoll exec` runs more in it."),
    **dict.fromkeys(("-v", "--volume", "--mount"), "--source DIR has the files of DIR, and `atoll cp` copies."),
    "--rm": "A sandbox is gone afterwards unless you say --keep.",
    "--name": "Name it by a label: -l name=…",
    "-m": "Write --memory.",
    "--cpus": "Write --cpu.",
}
_RESOURCES = ("memory", "cpu", "pids", "disk")


def add_sandbox_options(parser: Parser) -> None:
    """What decides how a new sandbox is made and how long it stays."""
    add = parser.add_argument_group("the sandbox").add_argument
    add("-p", "--driver", metavar="NAME", help="the wall, or `strongest`, or an order such as gvisor,jail; "
        "`atoll providers` lists them (default: jail)")  # fmt: skip
    add("--image", metavar="IMAGE", help="a root file system: a directory or tar, or a name that the wall knows")
    add("--source", metavar="DIR", help="start with the files of DIR as the workspace; DIR itself is never changed")
    add("--codebase", metavar="NAME", help="the same with a stored tree; `atoll codebase list` shows them")
    add("--snapshot", metavar="NAME", help="begin with a snapshot; `atoll snapshot list` shows them")
    add("--workdir", metavar="DIR", help="where to start: a directory of the workspace, or an absolute path "
        "to have the workspace there (default: /workspace)")  # fmt: skip
    add("--network", metavar="KIND", help="none (default), all, or host for sharing this machine's")
    add("--memory", metavar="SIZE", help="limit such as 512M or 2G (default: 512M)")
    add("--cpu", metavar="CORES", help="limit such as 0.5 or 2 (default: no limit)")
    add("--pids", metavar="COUNT", help="limit on processes and threads (default: 256)")
    add("--disk", metavar="SIZE", help="limit on what is written (default: 1G)")
    add("--packages", metavar="NAMES", action="append", default=[], help="Python packages to have, such as "
        "numpy,pandas; installed once and kept for the next run; may be repeated")  # fmt: skip
    add("--strict", action="store_true", help="refuse a machine that cannot hold every limit in the kernel")
    add("--audit", action="store_true", help="have `atoll audit` tell also what the kernel denies; needs root")
    add("--lifetime", metavar="TIME", help="until the sandbox ends by itself, such as 30m or 2h (default: as long as "
        "the run needs; 1h with --keep or --reuse)")  # fmt: skip
    add("-l", "--label", metavar="KEY=VALUE", action="append", default=[], help="name it; may be repeated")
    add("--reuse", action="store_true", help="use the sandbox that has these labels, or make it; it stays")
    add("--keep", action="store_true", help="let it stay, and print its id on stderr")
    add_permission_options(parser, "what it sees of the workspace")


def add_env_option(parser: Parser) -> None:
    parser.add_argument("-e", "--env", metavar="NAME=VALUE", action="append", default=[],
        help="set a variable; NAME alone passes on yours; may be repeated")  # fmt: skip


def add_command_options(parser: Parser) -> None:
    """How one command runs."""
    add = parser.add_argument
    add("-t", "--timeout", metavar="TIME",
        help="kill the command after so many seconds, or 5m, or none (default: 60; with a terminal none)")  # fmt: skip
    add("-n", "--no-stdin", action="store_true", help="do not pass on standard input")
    add("-i", "--interactive", action="store_true", help="pass on standard input, as is done anyway")
    add("--tty", "-it", "-ti", action="store_true", help="give it your terminal; a command has it anyway where all of "
        "standard input, output and error are one")  # fmt: skip
    add("--json", action="store_true", help="print one JSON object at the end: what was said, and how it ended")
    add_env_option(parser)


def add_program_options(parser: Parser) -> None:
    add = parser.add_argument_group("a program instead of a command").add_argument
    add("-f", "--file", metavar="PATH", help="run this file; what else you give are its arguments")
    add("--lang", metavar="NAME", help="the language: python, javascript, typescript, go, rust, java, r, bash, zsh "
        "or sh. Without --file the program is the first argument, or comes from standard input")  # fmt: skip
    add("--deps", metavar="PATH", nargs="?", const="", help="install this requirements.txt, package.json or go.mod "
        "inside the sandbox first; without PATH, the one beside --file. Needs --network all or host")  # fmt: skip


def add_code_options(parser: Parser) -> None:
    add = parser.add_argument_group("a cell instead: code in a context that keeps its variables").add_argument
    add("--code", metavar="CODE", help="run this and show its last value; - reads it from standard input. Python, or "
        "what --lang says")  # fmt: skip
    add("--code-file", metavar="PATH", help="the same, from a file")
    add("--context", metavar="NAME", help="which context; it is made if it is not there (default: main, or the one "
        "of the language)")  # fmt: skip


def is_cell(args: Namespace) -> bool:
    """Whether a cell was asked for, rather than a command or a program. Raises UsageError for half of one."""
    if args.code is not None or args.code_file is not None:
        if args.tty:
            raise UsageError("A cell has no terminal; leave out --tty: its input() asks here anyway.")
        return True
    if args.context:
        raise UsageError("--context is for a cell, and there is none; give it with --code or --code-file.")
    return False


def add_driver_option(parser: Parser, help: str) -> None:
    parser.add_argument("-p", "--driver", metavar="NAME", help=help)


def wishes(args: Namespace) -> dict[str, Any]:
    """The keywords for `Sandbox.create` that were asked for, and no others. Raises InvalidInput."""
    found: dict[str, Any] = {
        name: getattr(args, name) for name in ("image", "source", "codebase", "network", "snapshot")
    }
    found["labels"] = labels(args.label)
    found["workdir"] = None if args.workdir is None or starts_inside(args.workdir) else args.workdir
    found["lifetime"] = None if args.lifetime is None else duration(args.lifetime, "--lifetime")
    found["strict"] = args.strict
    found["audit"] = args.audit
    found["resources"] = _resources(args)
    found["packages"] = packages_of(args.packages)
    found["permissions"] = permissions_of(args)
    found["ignore"] = tuple(args.ignore)
    return {name: value for name, value in found.items() if value not in (None, False, {}, ())}


def packages_of(given: list[str]) -> tuple[str, ...]:
    """Requirements from `numpy,pandas>=2`. A comma inside a version, as in `a>=1,<2`, belongs to it."""
    return tuple(name for each in given for name in re.split(r",(?=\s*[A-Za-z0-9])(?![^\[]*\])", each) if name.strip())


def _resources(args: Namespace) -> dict[str, Any]:
    given = {name: getattr(args, name) for name in _RESOURCES if getattr(args, name) is not None}
    if "cpu" in given:
        given["cpu"] = number(given["cpu"], "--cpu")
    if "pids" in given:
        given["pids"] = whole_number(given["pids"], "--pids")
    return given


def starts_inside(workdir: str) -> bool:
    """Whether --workdir names a directory of the usual workspace, rather than another place for all of it."""
    return not workdir.startswith("/") or workdir == "/workspace" or workdir.startswith("/workspace/")


def start_directory(args: Namespace) -> str | None:
    """The directory to start the command in, where that is not the sandbox's own."""
    return args.workdir if args.workdir is not None and starts_inside(args.workdir) else None


def check_reuse(args: Namespace) -> None:
    if args.reuse and not args.label:
        raise UsageError("--reuse finds a sandbox by its labels; give at least one, such as -l project=docs.")


def refuse_wishes(args: Namespace) -> None:
    """Raises UsageError for what only a new sandbox can be given."""
    given = [name for name in wishes(args) if name not in ("labels", "workdir")]
    given += [name for name in ("driver", "label", "reuse", "keep") if getattr(args, name)]
    if given:
        raise UsageError(f"The sandbox {args.id} exists already; leave out what is for a new one: {', '.join(given)}.")
