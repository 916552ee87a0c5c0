"""Which environment of packages a sandbox gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..engine.layout import PACKAGES
from ..errors import CreateFailed, InvalidInput, Unsupported
from ..types import Spec
from . import cache
from .cache import Environment


def environment(spec: Spec, known: Mapping[str, Any] | None, home: str, python: str | None = None) -> Environment:
    """The environment that a sandbox is made with.

    `known` is what is known of it, or of the one that it is a twin of, from before: it has the environment of then.
    """
    if spec.image:
        raise Unsupported(
            "packages= and image= do not go together: the packages fit this machine's own Python.",
            hint="Install them in the image, or leave image= out.",
        )
    if f"{spec.workdir}/".startswith(f"{PACKAGES}/"):
        raise InvalidInput(f"workdir={spec.workdir!r} is where the packages are; choose another one.")
    key = known.get("environment") if known else None
    if not isinstance(key, str):
        return cache.wanted(home, spec.packages, python)
    environment = cache.known(home, key)
    if not environment.is_built:
        raise CreateFailed(f"The packages that this sandbox was made with are gone from {cache.directory(home)}.")
    return environment
