"""Pictures by what they begin with, not by what somebody says of them: a model's provider refuses a whole conversation
for one image that is none. Pure."""

from __future__ import annotations

from base64 import b64decode

KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")
BYTES_PER_CHARACTER = 32
"""How many bytes of pictures an answer may have for each character of text: a picture is worth many words."""

_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_WEBP = (b"VP8 ", b"VP8L", b"VP8X")


def kind_of(content: bytes) -> str | None:
    """The media type of a picture; None for anything else."""
    if content.startswith(_PNG) and len(content) > len(_PNG) + 8 and _has_area(content[len(_PNG) :][:8], 4):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content[:6] in (b"GIF87a", b"GIF89a") and len(content) > 10 and _has_area(content[6:10], 2):
        return "image/gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP" and content[12:16] in _WEBP:
        return "image/webp"
    return None


def _has_area(sides: bytes, width: int) -> bool:
    return any(sides[:width]) and any(sides[width:])


def decoded(data: str) -> bytes | None:
    """The bytes of base64, which may have line ends in it; None for what is none."""
    try:
        return b64decode("".join(data.split()), validate=True)
    except ValueError:
        return None
