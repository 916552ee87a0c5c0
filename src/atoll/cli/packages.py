"""`atoll packages`: the environments of Python packages that are kept."""

from __future__ import annotations

import time

from .. import store
from ..errors import InvalidInput
from ..home import state_dir
from ..packages import cache
from ..policy.sizes import format_size
from . import FAILED
from .list import span
from .output import colourful, complain, paint, say, say_json, table
from .parsing import Parser, UsageError

_DESCRIPTION = """\
The Python packages that --packages has installed, each set in an environment of
its own, which later sandboxes start from; newest first.
"""

_EPILOG = """\
examples:
  atoll packages list
  atoll packages remove 3f8a          the beginning of a key is enough
  atoll packages remove --unused      all that no sandbox is made with
"""

_PATIENCE = 10.0
_HEADER = ["KEY", "SIZE", "AGE", "USED BY", "PACKAGES"]


def main(words: list[str]) -> int:
    parser = Parser("packages", "[list] | remove KEY ... | remove --unused", _DESCRIPTION, _EPILOG)
    parser.add_argument("action", nargs="?", default="list", metavar="ACTION", help="list (default) or remove")
    parser.add_argument("keys", nargs="*", metavar="KEY", help="an environment, or the beginning of its key")
    parser.add_argument("--unused", action="store_true", help="remove all that no sandbox is made with")
    parser.add_argument("--json", action="store_true", help="list everything, as JSON")
    args = parser.parse_intermixed_args(words)
    if args.action == "list" and not args.keys and not args.unused:
        return _list(as_json=args.json)
    if args.action != "remove" or bool(args.keys) == args.unused:
        raise UsageError("Say `atoll packages list`, or which to remove: by their keys, or with --unused.")
    home = state_dir()
    used = _users()
    if args.unused:
        chosen = [kept.key for kept in cache.listing(home) if kept.key not in used]
    else:
        chosen = [_find(home, prefix) for prefix in args.keys]
    gone = [_remove(home, key, used) for key in chosen]
    return 0 if all(gone) else FAILED


def _list(*, as_json: bool) -> int:
    found = cache.listing(state_dir())
    used = _users()
    if as_json:
        say_json([{**kept._asdict(), "used_by": used.get(kept.key, [])} for kept in found])
        return 0
    now = time.time()
    rows = [
        [kept.key[:12], format_size(kept.size), span(now - kept.built), str(len(used.get(kept.key, []))),
         " ".join(kept.packages)]
        for kept in found
    ]  # fmt: skip
    head, *lines = table([_HEADER, *rows], {}, colours=False)
    say(paint(head, "bold", wanted=colourful()))
    for line in lines:
        say(line)
    return 0


def _users() -> dict[str, list[str]]:
    """The ids of the sandboxes that are made with each environment, also of stopped ones."""
    found: dict[str, list[str]] = {}
    for row in store.shared().find({}):
        key = row.handle.data.get("environment") if row.handle else None
        if isinstance(key, str):
            found.setdefault(key, []).append(row.id)
    return found


def _find(home: str, prefix: str) -> str:
    keys = [kept.key for kept in cache.listing(home) if kept.key.startswith(prefix)]
    if len(keys) != 1:
        how_many = "No environment's key begins" if not keys else f"{len(keys)} environments' keys begin"
        raise InvalidInput(f"{how_many} with {prefix!r}.", hint="`atoll packages list` shows them.")
    return keys[0]


def _removed(environment: cache.Environment) -> bool:
    """Its zygote, which has sandboxes ready for the next who asks, is ended first."""
    from ..engine import launch

    launch.shut_down_template(environment.home, environment.tree)
    deadline = time.monotonic() + _PATIENCE
    while not (gone := cache.remove(environment)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return gone


def _remove(home: str, key: str, used: dict[str, list[str]]) -> bool:
    """Whether it is gone now."""
    if key in used:
        complain(f"{key[:12]} stays: {', '.join(used[key][:5])} {'is' if len(used[key]) == 1 else 'are'} made with it.")
        return False
    if not _removed(cache.known(home, key)):
        complain(f"{key[:12]} stays: somebody is just using it.")
        return False
    say(key)
    return True
