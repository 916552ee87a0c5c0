"""What the keeper wants of a guest for live forks: to have its contexts stand still, and to take in those of others."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

from . import contextstart
from .births import newborn
from .contexts import Contexts
from .contextstart import ContextSettings
from .descriptors import close_all
from .keeperline import ADOPT, HOLD, RELEASE, KeeperLine, Order
from .machine import Machine
from .refusal import Refused
from .sessions import Sessions
from .standing import Report, Standing

ORDERS = (HOLD, RELEASE, ADOPT)


class Family:
    def __init__(self, machine: Machine, line: KeeperLine, contexts: Contexts, sessions: Sessions) -> None:
        self._machine = machine
        self._line = line
        self._contexts = contexts
        self._sessions = sessions
        self._standing: Optional[Standing] = None

    def obey(self, order: Order) -> None:
        message: Dict[str, Any] = json.loads(order.rest or b"{}")
        if order.kind == ADOPT:
            if self._machine.births is not None:
                self._adopt(message, order.descriptors)
            else:
                close_all(order.descriptors)
            return
        if self._standing is not None:
            self._standing.release()
            self._standing = None
        if order.kind == HOLD:
            self._standing = Standing(
                self._machine.loop, self._contexts.all(), message["wait"], message["seconds"], self._held
            )

    def _held(self, reports: List[Report]) -> None:
        self._line.tell({"held": {"contexts": reports, "sessions": self._sessions.names()}})

    def _adopt(self, message: Dict[str, Any], descriptors: List[int]) -> None:
        """What cannot be taken in sees its wire end, and goes."""
        brought = newborn(message["number"], message["pid"], descriptors)
        settings = ContextSettings(message["name"], "python", message["cwd"], message["env"])
        try:
            self._contexts.adopt(settings, contextstart.adopted(self._machine, brought))
        except (Refused, OSError):
            brought.wire.close()
            close_all(brought.outputs)
