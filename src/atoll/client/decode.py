"""Output as text: a chunk never ends in the middle of a UTF-8 character.

What is not UTF-8 becomes U+FFFD, so that output can always be printed. Bytes that must survive go
through files.
"""

from __future__ import annotations

import codecs

_DECODER = codecs.getincrementaldecoder("utf-8")


def text_of(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "replace")


class TextChunks:
    """One stream of bytes as chunks of text."""

    def __init__(self) -> None:
        self._decoder = _DECODER("replace")

    def feed(self, data: bytes) -> str:
        """The text that is whole now; may be empty."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left when the stream ended within a character."""
        return self._decoder.decode(b"", True)  # the C decoder takes no keyword
