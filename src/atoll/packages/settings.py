"""Where packages come from: pip's own settings on this host, from the environment and from its files.

Only what says where to look and what to choose is taken; what says where to install to is not.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from ..errors import Unsupported

# Settings that decide what is installed, and so belong to an environment's key.
_CHOOSING = ("index-url", "extra-index-url", "find-links", "no-index", "only-binary", "no-binary", "pre")
_REACHING = ("trusted-host", "cert", "proxy", "timeout", "prefer-binary")
_LISTS = frozenset(("extra-index-url", "find-links", "trusted-host", "only-binary", "no-binary"))
_FLAGS = frozenset(("no-index", "pre", "prefer-binary"))
_REFUSED = {
    "constraint": "pin versions in packages= instead",
    "client-cert": "it would be shown to code of the packages",
    "require-hashes": "packages= takes no hashes yet",
}
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
_LONGEST_FILE = 1 << 20
# What the default image shows of the host as it is.
_VISIBLE = ("/usr/", "/etc/ssl/certs/", "/etc/pki/tls/certs/")
PLACE = "/shown"
_PROXY = "ATOLL_PACKAGES_PROXY"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


class Sources(NamedTuple):
    """Where an installer looks. `options` are pip's, in pip's words; `shown` are host paths that it must see.

    A path in `options` is that of the host; `inside` gives what it is in a sandbox that shows `shown`.
    """

    options: tuple[tuple[str, tuple[str, ...]], ...]

    def get(self, name: str) -> tuple[str, ...]:
        return next((values for key, values in self.options if key == name), ())

    @property
    def is_local(self) -> bool:
        """Whether nothing needs a network."""
        places = (*(self.get("index-url") or (() if self.get("no-index") else ("https:",))),
                  *self.get("extra-index-url"), *self.get("find-links"))  # fmt: skip
        return all(_path(place) is not None for place in places)

    @property
    def wants_source(self) -> bool:
        """Whether something is to be built here although there may be a wheel."""
        return any(value != ":none:" for value in self.get("no-binary"))

    def choosing(self) -> list[list[str]]:
        """What of it decides about the result; without passwords, which do not."""
        return [[name, *map(_without_password, values)] for name, values in self.options if name in _CHOOSING]

    def shown(self) -> tuple[str, ...]:
        """The files and directories of the host that an installer must see, and does not see anyhow."""
        found = []
        for name in ("index-url", "extra-index-url", "find-links", "cert"):
            for value in self.get(name):
                path = _path(value)
                if path is not None:
                    found.append(_top(path, is_index=name.endswith("index-url")))
        seen = dict.fromkeys(path for path in found if not path.startswith(_VISIBLE) and os.path.exists(path))
        return tuple(seen)

    def inside(self) -> list[list[str]]:
        """The options with every path as the sandbox has it.

        Raises:
            Unsupported: a proxy has a password, and nobody has said that it may be shown.
        """
        if _PROXY not in os.environ:
            for value in self.get("proxy"):
                _check_proxy("pip's setting 'proxy'", value)
        return [[name, *(self._moved(value) for value in values)] for name, values in self.options]

    def remote(self) -> Sources:
        """Without what a sandbox that shows nothing could not reach."""
        kept = [(name, tuple(filter(_is_seen_anywhere, values))) for name, values in self.options]
        return Sources(tuple((name, values) for name, values in kept if values))

    def _moved(self, value: str) -> str:
        path = _path(value)
        if path is None:
            return value
        for number, top in enumerate(self.shown()):
            if path == top or path.startswith(f"{top}/"):
                moved = f"{PLACE}/{number}{path[len(top) :]}"
                return f"file://{moved}" if value.startswith("file:") else moved
        return value


def read() -> Sources:
    """The settings of this host and this user.

    Raises:
        Unsupported: one of them cannot be honoured; it is never ignored.
    """
    found: dict[str, tuple[str, ...]] = {}
    for path in _files():
        found.update(_parse(path))
    found.update(_from_environment())
    if _PROXY in os.environ:
        found["proxy"] = tuple(filter(None, [os.environ[_PROXY]]))
    if not found.get("cert"):
        # Where pip looks next.
        found["cert"] = tuple(filter(None, map(os.environ.get, _CERTIFICATES)))[:1]
    for name, why in _REFUSED.items():
        if found.get(name):
            raise Unsupported(f"pip's setting {name!r} is not honoured by packages=: {why}.", hint="Unset it.")
    known = [(name, found[name]) for name in (*_CHOOSING, *_REACHING) if found.get(name)]
    return Sources(tuple(known))


def proxies(*, shown: bool = True) -> dict[str, str]:
    """The variables that say how to reach the network, for an installer. If `shown`, code of packages reads them, too.

    Raises:
        Unsupported: one that would be shown has a password, and nobody has said that it may be.
    """
    given = os.environ.get(_PROXY)
    found = {n: os.environ.get(n) if given is None else given for each in _PROXIES for n in (each, each.lower())}
    if given is None and shown:
        for name, value in found.items():
            _check_proxy(name, value or "")
    found |= {n: os.environ.get(n) for n in ("NO_PROXY", "no_proxy")}
    return {name: value for name, value in found.items() if value}


def _check_proxy(name: str, value: str) -> None:
    if "@" in value.partition("://")[2 if "://" in value else 0].partition("/")[0]:
        raise Unsupported(
            f"{name} has a password in it, and code of the packages would read it while they are installed.",
            hint=f"Set {_PROXY} to the proxy that installers may know, with its password if it must be.",
        )


def _files() -> list[str]:
    """pip's files, the strongest last."""
    own = os.environ.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return []
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    everyone = [
        f"{each}/pip/pip.conf" for each in reversed((os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"))
    ]
    files = [*everyone, "/etc/pip.conf", f"{home}/.pip/pip.conf", f"{config}/pip/pip.conf", f"{sys.prefix}/pip.conf"]
    return [*files, own] if own else files


def _parse(path: str) -> dict[str, tuple[str, ...]]:
    """The sections [global] and [install] of an ini file. By hand: `configparser` takes as long as a sandbox."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(_LONGEST_FILE).splitlines()
    except OSError:
        return {}
    sections: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    values: list[str] = []
    for line in lines:
        text = line.strip()
        if not text or text[0] in "#;":
            continue
        if line[0].isspace():
            values.append(text)
        elif text[0] == "[":
            section = sections.setdefault(text.strip("[]").strip(), {})
        else:
            name, _, value = text.replace(":", "=", 1).partition("=") if "=" not in text else text.partition("=")
            values = section[_name(name)] = [value.strip()]
    found: dict[str, tuple[str, ...]] = {}
    for part in ("global", "install"):
        for name, given in sections.get(part, {}).items():
            found[name] = _values(name, " ".join(given))
    return found


def _from_environment() -> dict[str, tuple[str, ...]]:
    return {
        _name(name[4:]): _values(_name(name[4:]), value)
        for name, value in os.environ.items()
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE" and value
    }


def _name(text: str) -> str:
    return text.strip().lower().replace("_", "-")


def _values(name: str, text: str) -> tuple[str, ...]:
    if name in _FLAGS or name == "require-hashes":
        return ("1",) if text.lower() in ("1", "true", "yes", "on") else ()
    if name in _LISTS:
        return tuple(text.split())
    return (text,) if text else ()


def _path(value: str) -> str | None:
    """The host path behind an address, if there is one."""
    if value.startswith("file:"):
        path = value[5:].removeprefix("//localhost")
        if "%" in path:
            from urllib.parse import unquote

            path = unquote(path)
        return os.path.normpath("/" + path.lstrip("/"))
    if value.startswith(("/", "~", ".")):
        return os.path.abspath(os.path.expanduser(value))
    return None


def _is_seen_anywhere(value: str) -> bool:
    path = _path(value)
    return path is None or path.startswith(_VISIBLE)


def _top(path: str, *, is_index: bool) -> str:
    """What to show for it: an index is usually called "simple", and points to files beside it."""
    if is_index and os.path.basename(path) == "simple":
        return os.path.dirname(path)
    return path


def _without_password(value: str) -> str:
    scheme, found, rest = value.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" if found else value
