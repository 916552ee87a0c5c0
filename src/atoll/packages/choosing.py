"""Which environment of packages a sandbox gets."""

from __future__ import annotations

from ..engine.layout import PACKAGES
from ..errors import CreateFailed, InvalidInput, Unsupported
from ..types import Handle, Spec
from . import cache
from .cache import Environment


def environment(spec: Spec, resume: Handle | None, home: str) -> Environment:
    """The environment that a sandbox is made with; one that is resumed has that of its first start."""
    if spec.image:
        raise Unsupported(
            "packages= and image= do not go together: the packages fit this machine's own Python.",
            hint="Install them in the image, or leave image= out.",
        )
    if f"{spec.workdir}/".startswith(f"{PACKAGES}/"):
        raise InvalidInput(f"workdir={spec.workdir!r} is where the packages are; choose another one.")
    key = resume.data.get("environment") if resume else None
    if not isinstance(key, str):
        return cache.wanted(home, spec.packages)
    environment = cache.known(home, key)
    if not environment.is_built:
        raise CreateFailed(f"The packages that this sandbox was made with are gone from {cache.directory(home)}.")
    return environment
