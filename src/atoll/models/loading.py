"""From the name of a model to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .contract import Model


def load(name: str, *, base_url: str | None = None, api_key: str | None = None, retries: int = 4) -> Model:
    """The model of that name.

    Raises: InvalidInput for a name, URL or number that cannot be; ModelError, with a hint, when a key is missing.
    """
    raise NotImplementedError
