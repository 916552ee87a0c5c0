"""What a wall shows of the host by order of `packages.shown`: an environment, or what an installer needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .. import layout


class Lent:
    """Of one sandbox; `job` may have `environment`, the tree of one, and `shown`, a list of paths.

    An environment is kept from being removed for as long as this process lives.

    Attributes:
        places: what is seen read-only, by where it is seen.
        key: of the environment; None without one.
    """

    def __init__(self, job: Mapping[str, Any]) -> None:
        environment: str = job.get("environment") or ""
        self.places = {f"{layout.SHOWN}/{number}": path for number, path in enumerate(job.get("shown", ()))}
        self.key = os.path.basename(os.path.dirname(environment)) or None
        if environment:
            from ..findings import hold

            self.places[layout.PACKAGES] = environment
            hold(environment)
