"""`atoll init`: a commented atoll.toml to begin with."""

from __future__ import annotations

import os

from ..config import files, template, trust
from ..errors import InvalidInput
from .output import say
from .parsing import Parser

_DESCRIPTION = """\
Write an atoll.toml that explains every setting of agents and sets none, and
trust it. Agents find it from this directory and from those below.
"""

_EPILOG = """\
examples:
  atoll init
  atoll init ~/work/project

exit code:
  0, or 125 when there is such a file already or it cannot be written
"""


def main(words: list[str]) -> int:
    parser = Parser("init", "[--force] [PATH]", _DESCRIPTION, _EPILOG)
    parser.add_argument("path", nargs="?", default=".", metavar="PATH", help="a directory, or the file (default: here)")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    args = parser.parse_args(words)
    path = os.path.join(args.path, files.NAME) if os.path.isdir(args.path) else args.path
    _write(path, force=args.force)
    trust.trust(path)
    say(os.path.abspath(path))
    return 0


def _write(path: str, *, force: bool) -> None:
    if os.path.lexists(path) and not force:
        raise InvalidInput(f"There is {path} already.", hint="Give --force to write over it.")
    # Others see all of it or nothing, and nothing is written through a link.
    draft = f"{path}.{os.getpid()}.new"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            with os.fdopen(fd, "w") as file:
                file.write(template.text())
            if force:
                os.rename(draft, path)
            else:
                os.link(draft, path)
        finally:
            if os.path.lexists(draft):
                os.unlink(draft)
    except FileExistsError:
        raise InvalidInput(f"There is {path} already.", hint="Give --force to write over it.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"{path!r} cannot be written: {reason}.") from None
