"""Output as text: a chunk never ends in the middle of a UTF-8 character.

What is not UTF-8 becomes U+FFFD, so that output can always be printed, and the bytes are kept beside it.
"""

from __future__ import annotations

import codecs

REPLACEMENT = "\ufffd"
_DECODER = codecs.getincrementaldecoder("utf-8")


def text_of(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "replace")


def raw_of(text: str, data: bytes | bytearray) -> bytes | None:
    """The bytes that a text was decoded from, where it does not tell them itself."""
    return bytes(data) if REPLACEMENT in text else None


class TextChunks:
    """One stream of bytes as chunks of text."""

    def __init__(self) -> None:
        self._decoder = _DECODER("replace")

    def feed_whole(self, data: bytes) -> tuple[str, bytes | None]:
        """As `feed`, with the bytes of the text where it does not tell them itself."""
        left = self._decoder.getstate()[0]
        text = self._decoder.decode(data)
        if REPLACEMENT not in text:
            return text, None
        return text, (left + data)[: len(left) + len(data) - len(self._decoder.getstate()[0])]

    def finish_whole(self) -> tuple[str, bytes | None]:
        """As `finish`, with the bytes."""
        left = self._decoder.getstate()[0]
        text = self.finish()
        return text, raw_of(text, left)

    def feed(self, data: bytes) -> str:
        """The text that is whole now; may be empty."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left when the stream ended within a character."""
        return self._decoder.decode(b"", True)  # the C decoder takes no keyword
