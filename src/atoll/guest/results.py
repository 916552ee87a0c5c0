"""Displayed values on their way out of a context: bounded, and in their place between the output."""

from __future__ import annotations

import _thread
import json
from typing import Any, Dict, Optional

from .cellstreams import Streams
from .port import Port

_encode_text = json.encoder.encode_basestring_ascii

LIMIT = 64 << 20
"""Of one encoded bundle, unless the client wants less."""


class Results:
    """Sends MIME bundles for the cell that runs."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._port: Optional[Port] = None
        self._lock = _thread.RLock()
        self._limit = LIMIT
        self.truncated = False

    def begin(self, port: Port, limit: Optional[int]) -> None:
        self._port = port
        self._limit = LIMIT if limit is None else min(limit, LIMIT)
        self.truncated = False

    def end(self) -> None:
        """What another thread is about to show still belongs to the cell."""
        with self._lock:
            self._port = None

    def renew_lock(self) -> None:
        """In a forked child, whose parent's threads may hold it."""
        self._lock = _thread.RLock()

    def send_text(self, text: str) -> None:
        """A main result that is a short text."""
        if self._port is not None:
            self._streams.flush()
            if 6 * len(text) + 20 > self._limit:
                self.send({"text/plain": text}, main=True)
            else:
                self._port.tell(b'{"result":{"text/plain":%s},"main":true}' % _encode_text(text).encode("ascii"))

    def send(self, bundle: Dict[str, Any], main: bool) -> None:
        """What is displayed while no cell runs is shown to nobody."""
        with self._lock:
            port = self._port
            if port is None:
                return
            self._streams.flush()
            port.tell(b'{"result":%s,"main":%s}' % (self._fitting(bundle), b"true" if main else b"false"))

    def _fitting(self, bundle: Dict[str, Any]) -> bytes:
        """JSON within the limit: the largest forms go first, and of the text what does not fit."""
        text = bundle.get("text/plain")
        if len(bundle) == 1 and text is not None and len(text) < self._limit // 12:
            return b'{"text/plain":%s}' % _encode_text(text).encode("ascii")
        encoded = json.dumps(bundle)
        while len(encoded) > self._limit:
            self.truncated = True
            sizes = {kind: len(json.dumps(value)) for kind, value in bundle.items() if kind != "text/plain"}
            bundle = dict(bundle)
            if sizes:
                del bundle[max(sizes, key=lambda kind: sizes[kind])]
            else:
                text = bundle.get("text/plain", "")
                bundle["text/plain"] = text[: max(len(text) * 3 // 4, 1)] if self._limit > 40 else ""
                if len(text) <= 1:
                    return json.dumps(bundle).encode("ascii")
            encoded = json.dumps(bundle)
        return encoded.encode("ascii")
