"""The path rules that a command line asks for."""

from __future__ import annotations

from argparse import Namespace

from ..errors import InvalidInput
from ..types import Permissions
from .parsing import Parser

_MOST_BYTES = 4 << 20


def add_permission_options(parser: Parser, title: str) -> None:
    add = parser.add_argument_group(title).add_argument
    add("--preset", metavar="NAME", help="what it sees of a source (default: agent-safe, without secrets); "
        "full-access shows all and lets all be changed; `atoll policy presets` lists them")  # fmt: skip
    add("--rules", metavar="FILE", help="rules from the table [permissions] of a TOML file, which may name a preset")
    add("--allow", metavar="LEVEL:PATTERN", action="append", default=[], help="view:, read: or write: and a pattern "
        "such as read:src/**; all that no rule matches is hidden; may be repeated")  # fmt: skip
    add("--hide", metavar="PATTERN", action="append", default=[], help="hide what matches, and all below it, whatever "
        "else is allowed; may be repeated")  # fmt: skip
    add("--ignore", metavar="PATTERN", action="append", default=[], help="leave out of the source what this line of a "
        ".gitignore would; may be repeated")  # fmt: skip


def permissions_of(args: Namespace) -> Permissions | None:
    """What --preset, --rules, --allow and --hide ask for, if they ask for anything.

    Raises:
        InvalidInput: they contradict each other, or one of them is wrong.
    """
    if args.preset is None and args.rules is None and not args.allow and not args.hide:
        return None
    from ..policy.permissions import from_flags

    base = None if args.rules is None else _from_file(args.rules)
    return from_flags(args.allow, args.hide, args.preset, base)


def _from_file(path: str) -> Permissions:
    import tomllib

    from ..policy.permissions import from_toml

    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise InvalidInput(f"--rules {path}: the file is longer than {_MOST_BYTES} bytes.")
        return from_toml(tomllib.loads(text.decode()))
    except OSError as error:
        raise InvalidInput(f"--rules {path}: {error.strerror}.") from None
    except InvalidInput as error:
        raise InvalidInput(f"--rules {path}: {error}") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise InvalidInput(f"--rules {path} is no TOML: {error}.") from None
