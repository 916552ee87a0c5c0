"""What a cell shows beside text, as blocks of an answer: pictures, HTML, and the like."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..types import Result
from .desk import shortened, text_block
from .pictures import BYTES_PER_CHARACTER, KINDS, decoded, kind_of

_DOCUMENTS = (("text/html", "html"), ("image/svg+xml", "svg"), ("text/markdown", "md"))
_FRAME = 100
"""Bytes that a block takes whatever is in it."""


def blocks_of(results: tuple[Result, ...], room: int) -> tuple[list[dict[str, Any]], bool]:
    """As much as an answer with so many characters of text holds; and whether that is not all."""
    shelf = _Shelf(room)
    for number, result in enumerate(results):
        if shelf.picture(result.data):
            continue
        if not result.is_main and "text/plain" in result.data:
            shelf.text(str(result.data["text/plain"]))
        shelf.documents(result.data, number)
    return shelf.blocks, shelf.cut


class _Shelf:
    def __init__(self, room: int) -> None:
        self.blocks: list[dict[str, Any]] = []
        self.cut = False
        self._characters = room
        self._bytes = room * BYTES_PER_CHARACTER
        self._stamp = time.time_ns()

    def picture(self, data: Mapping[str, Any]) -> bool:
        """Put a result's picture there, if it has one; whether it had. What only claims to be one is told as text."""
        for claimed in KINDS:
            told = data.get(claimed)
            if not isinstance(told, str):
                continue
            content = decoded(told)
            mime = None if content is None else kind_of(content)
            if mime is None:
                self.text(f"[What the code gave as {claimed} is no picture.]")
                continue
            if self._fits(0, len(told)):
                self.blocks.append({"type": "image", "data": "".join(told.split()), "mimeType": mime})
            return True
        return False

    def text(self, text: str) -> None:
        told, cut = shortened(text, self._characters)
        self.cut = self.cut or cut
        if self._fits(min(len(text), self._characters)):
            self.blocks.append(text_block(told))

    def documents(self, data: Mapping[str, Any], number: int) -> None:
        for mime, ending in _DOCUMENTS:
            text = data.get(mime)
            if isinstance(text, str) and self._fits(len(text)):
                uri = f"atoll://results/{self._stamp}-{number}.{ending}"
                self.blocks.append({"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": text}})

    def _fits(self, characters: int, size: int = 0) -> bool:
        """Whether there is room for so much more, which is then taken."""
        if characters > self._characters or size + _FRAME > self._bytes:
            self.cut = True
            return False
        self._characters -= characters
        self._bytes -= size + _FRAME
        return True
