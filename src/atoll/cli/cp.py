"""`atoll cp`: files and directories between this machine and a sandbox."""

from __future__ import annotations

import os
import posixpath
import re
from argparse import Namespace
from typing import NamedTuple

from ..errors import FileMissing, FilePresent
from ..sync.sandbox import Sandbox
from ..types import Transfer
from .output import complain
from .parsing import Parser, UsageError
from .places import find

_DESCRIPTION = """\
Copy a file or a whole directory into a sandbox or out of it. One of the two is
ID:PATH, where the beginning of an id is enough and PATH is absolute or begins
in the workspace. A directory that is there gets the copy inside it, as with
`cp -r`; `DIR/.` stands for what is in DIR.
"""

_EPILOG = """\
examples:
  atoll cp data.csv sb-k3:        into the workspace
  atoll cp src sb-k3:/tmp/        to /tmp/src
  atoll cp src/. sb-k3:           what is in src, into the workspace
  atoll cp sb-k3:report.html .
  atoll cp sb-k3:out/. results    what is in out, to the directory results

A name with a colon that is a file here is written as ./a:b.
"""


class _Remote(NamedTuple):
    id: str
    path: str


def main(words: list[str]) -> int:
    parser = Parser("cp", "[OPTIONS] FILE ID:PATH | ID:PATH FILE", _DESCRIPTION, _EPILOG)
    parser.add_argument("source", metavar="FROM", help="a path here, or ID:PATH")
    parser.add_argument("target", metavar="TO", help="ID:PATH, or a path here")
    parser.add_argument("-f", "--force", action="store_true",
        help="out of a sandbox: replace files in a directory that is there")  # fmt: skip
    parser.add_argument("--symlinks", action="store_true",
        help="out of a sandbox: make symbolic links too, wherever they point to")  # fmt: skip
    args = parser.parse_intermixed_args(words)
    source, target = _parse(args.source), _parse(args.target)
    if isinstance(source, str) and isinstance(target, _Remote):
        moved = _upload(source, find(target.id), target.path)
    elif isinstance(source, _Remote) and isinstance(target, str):
        moved = _download(find(source.id), source.path, target, args)
    else:
        raise UsageError("One of the two is in a sandbox, written as ID:PATH, and the other is here.")
    if moved.skipped:
        names = ", ".join(moved.skipped[:5])
        complain(f"{len(moved.skipped)} left out, being no files, directories or wanted links: {names}")
    return 0


def _parse(text: str) -> str | _Remote:
    match = re.match(r"([A-Za-z0-9][A-Za-z0-9_-]*):", text)
    return text if match is None else _Remote(match[1], text[match.end() :] or ".")


def _upload(local: str, sandbox: Sandbox, remote: str) -> Transfer:
    if not os.path.lexists(local):
        raise FileMissing(f"{local}: there is no such file here.")
    contents = local in (".", "..") or local.endswith(("/.", "/.."))
    if not contents and (remote.endswith("/") or _is_directory(sandbox, remote)):
        remote = posixpath.join(remote, os.path.basename(local.rstrip("/")))
    return sandbox.files.upload(local, remote)


def _is_directory(sandbox: Sandbox, path: str) -> bool:
    try:
        return sandbox.files.info(path).type == "directory"
    except FileMissing:
        return False


def _download(sandbox: Sandbox, remote: str, local: str, args: Namespace) -> Transfer:
    contents = remote in (".", "..") or remote.endswith(("/.", "/.."))
    if not contents and (local.endswith("/") or os.path.isdir(local)):
        local = os.path.join(local, posixpath.basename(remote.rstrip("/")))
    os.makedirs(os.path.dirname(os.path.abspath(local)), exist_ok=True)
    try:
        return sandbox.files.download(remote, local, overwrite=args.force, symlinks=args.symlinks)
    except FilePresent:
        raise UsageError(f"{local} is there already and not empty; -f replaces files in it.") from None
