"""The tools for the files of a session. Its kernel decides what is allowed there; no path of the host is touched."""

from __future__ import annotations

import binascii
from base64 import b64encode
from typing import Any

from ..errors import InvalidInput
from .desk import Desk, Outcome, said, text_block
from .encoding import encoded
from .pictures import BYTES_PER_CHARACTER, kind_of
from .sessions import DEFAULT
from .sessiontools import moment

_ENTRIES = 1000


def read_file(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """Text as text, a whole picture as an image, anything else as base64; as much as an answer holds."""
    session = desk.sessions.existing(arguments.get("session_id", DEFAULT))
    files = session.sandbox.files
    path, offset = arguments["path"], int(arguments.get("offset", 0))
    room = desk.settings.max_output
    asked = arguments.get("size")
    content = files.read_bytes(path, offset=offset, size=room + 1 if asked is None else min(int(asked), room + 1))
    mime = None if offset or asked is not None else kind_of(content)
    if mime is not None:
        most = room * BYTES_PER_CHARACTER
        content = files.read_bytes(path, size=most + 1)
        # It may be another one by now.
        if len(content) <= most and kind_of(content) == mime:
            return _image(session.name, path, content, mime)
    truncated = len(content) > room
    text, content = _text(content[:room], cut=truncated or asked is not None)
    structured = {
        "session_id": session.name,
        "path": path,
        "size": len(content),
        "encoding": "base64" if text is None else "utf-8",
        "content": b64encode(content).decode("ascii") if text is None else text,
        "truncated": truncated,
    }
    blocks = [text_block(str(structured["content"]))]
    if truncated:
        blocks.append(text_block(f"[There is more. Go on with offset={offset + len(content)}.]"))
    return Outcome(blocks, structured)


def _image(session: str, path: str, content: bytes, mime: str) -> Outcome:
    data = b64encode(content).decode("ascii")
    structured = {"session_id": session, "path": path, "size": len(content), "encoding": mime, "content": "",
                  "truncated": False}  # fmt: skip
    return Outcome([{"type": "image", "data": data, "mimeType": mime}], structured)


def _text(content: bytes, *, cut: bool) -> tuple[str | None, bytes]:
    """The text of it, None if it is none, and the bytes that it stands for. What is cut may end within a character."""
    try:
        return content.decode("utf-8"), content
    except UnicodeDecodeError as error:
        if not (cut and error.reason == "unexpected end of data" and error.start > len(content) - 4):
            return None, content
        whole = content[: error.start]
        return whole.decode("utf-8"), whole


def write_file(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """Write text or bytes; the file is there when it is whole."""
    content: str | bytes = arguments["content"]
    if arguments.get("encoding") == "base64":
        try:
            content = binascii.a2b_base64("".join(str(content).split()), strict_mode=True)
        except ValueError as error:
            raise InvalidInput(f"content is no base64: {error}.") from None
    else:
        content = _utf8(str(content))
    session = desk.sessions.open(arguments.get("session_id", DEFAULT))
    path = arguments["path"]
    size = session.sandbox.files.write(path, content, append=arguments.get("append", False))
    fresh, session.fresh = session.fresh, False
    structured = {"session_id": session.name, "path": path, "size": size, "new_session": fresh}
    return said(f"Wrote {size} bytes to {path}.", structured)


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput("content holds half a surrogate pair, which no text can; give it as base64.") from None


def list_files(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """The entries of a directory, as many as an answer holds."""
    session = desk.sessions.existing(arguments.get("session_id", DEFAULT))
    path = arguments.get("path", ".")
    found = session.sandbox.files.list(path, recursive=arguments.get("recursive", False))
    entries, lines, room = [], [], desk.settings.max_output
    for each in found[:_ENTRIES]:
        entry = {"path": each.path, "name": each.name, "type": each.type, "size": each.size,
                 "mode": f"{each.mode & 0o7777:o}", "modified": moment(each.modified)}  # fmt: skip
        room -= len(encoded(entry))
        if room < 0:
            break
        entries.append(entry)
        lines.append(f"{each.path}/" if each.type == "directory" else f"{each.path}  {each.size}")
    left_out = len(found) - len(entries)
    truncated = left_out > 0
    if truncated:
        lines.append(f"[{left_out} more are left out; list a directory below.]")
    if found.skipped:
        lines.append(f"[{found.skipped} directories may not be read, or lie too deep.]")
    structured = {"session_id": session.name, "path": path, "entries": entries, "skipped": found.skipped,
                  "truncated": truncated}  # fmt: skip
    return said("\n".join(lines) or "(empty)", structured)
