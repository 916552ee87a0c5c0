"""What `packages=` may hold: requirements as pip writes them (PEP 508), in one spelling each. Pure.

Only names, extras, versions, markers and https addresses. Whatever an installer would take for an option, a file
or a command of its own is refused: the text ends up in its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import InvalidInput
from .text import shown

MAX_REQUIREMENTS = 256
MAX_LENGTH = 1000

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
# Compiled when it is first needed: most sandboxes have no packages.
_REQUIREMENT = (
    rf"(?P<name>{_NAME})\s*"
    rf"(?:\[\s*(?P<extras>{_NAME}(?:\s*,\s*{_NAME})*)?\s*\]\s*)?"
    rf"(?:@\s*(?P<url>https://[!-:<-~]+)|\(?\s*(?P<versions>{_VERSION}(?:\s*,\s*{_VERSION})*)?\s*,?\s*\)?)\s*"
    r"(?:;\s*(?P<marker>[\w\s.\"'()<>=!~,*+-]+))?"
)
_EXAMPLE = "give names as pip takes them, such as 'numpy', 'pandas>=2' or 'uvicorn[standard]==0.30.*'"


def check_requirements(packages: object) -> tuple[str, ...]:
    """The requirements, each in one spelling, sorted, without doubles.

    Raises:
        InvalidInput: the first one that is no requirement, with what to write instead.
    """
    if packages is None:
        return ()
    if isinstance(packages, str | bytes) or not isinstance(packages, Iterable):
        raise InvalidInput(f"packages is {shown(packages)}; give a list such as ['numpy', 'pandas>=2'].")
    found = sorted({_normal(each) for each in packages})
    if len(found) > MAX_REQUIREMENTS:
        raise InvalidInput(f"There are {len(found)} packages; at most {MAX_REQUIREMENTS} can be asked for by name.")
    return tuple(found)


def name_of(requirement: str) -> str:
    """The normal name of the project that a checked requirement asks for."""
    return re.split(r"[\[@;<>=!~ ]", requirement, maxsplit=1)[0]


def _normal(requirement: object) -> str:
    if not isinstance(requirement, str):
        raise InvalidInput(f"packages holds {shown(requirement)}; {_EXAMPLE}.")
    text = requirement.strip()
    if len(text) > MAX_LENGTH:
        raise InvalidInput(f"A requirement has {len(text)} characters; at most {MAX_LENGTH} are taken.")
    _refuse_the_rest_of_pip(text)
    match = re.fullmatch(_REQUIREMENT, text)
    if match is None:
        raise InvalidInput(f"packages holds {shown(requirement)}, which is no requirement; {_EXAMPLE}.")
    return _spelled(match)


def _refuse_the_rest_of_pip(text: str) -> None:
    """What pip would understand and we do not pass on; each gets a sentence of its own."""
    if not text.isprintable():
        raise InvalidInput(f"packages holds {shown(text)}; line breaks and control characters do not fit.")
    if text.startswith("-"):
        raise InvalidInput(
            f"packages holds the option {shown(text)}; only requirements are taken. Where they come from is read "
            "from pip's own settings: PIP_INDEX_URL, PIP_FIND_LINKS and pip.conf."
        )
    is_file = "@" not in text and text.endswith((".whl", ".tar.gz", ".zip", ".txt"))
    if is_file or text.startswith((".", "/", "~", "file:")):
        raise InvalidInput(
            f"packages holds {shown(text)}, which names a file; put wheels into a directory, and set PIP_FIND_LINKS "
            "to it."
        )
    if re.match(r"\w+(\+\w+)?://", text) or re.search(r"@\s*(?!https://)\w+(\+\w+)?:", text):
        raise InvalidInput(f"packages holds {shown(text)}; of addresses only 'name @ https://…' is taken.")


def _spelled(match: re.Match[str]) -> str:
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
    if match["extras"]:
        extras = {re.sub(r"[-_.]+", "-", extra.strip()).lower() for extra in match["extras"].split(",")}
        name += f"[{','.join(sorted(extras))}]"
    if match["url"]:
        name += f" @ {match['url']}"
    elif match["versions"]:
        name += ",".join(sorted(re.sub(r"\s+", "", version) for version in match["versions"].split(",")))
    if match["marker"]:
        # A URL may hold a semicolon, so a space is needed before the one of a marker; elsewhere it does no harm.
        name += f" ; {' '.join(match['marker'].split())}"
    return name
