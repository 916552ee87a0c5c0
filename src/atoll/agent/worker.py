"""The process of a run in the background: `python -P -m atoll.agent.worker [--no-programs] ID [CONFIG]`."""

from __future__ import annotations

import sys


def main(words: list[str]) -> int:
    import anyio

    from .. import config
    from ..config.servers import reached
    from ..errors import AtollError
    from . import journal
    from .agent import AsyncAgent
    from .background import NO_PROGRAMS

    programs = words[0] != NO_PROGRAMS
    id, *named = words if programs else words[1:]
    path = named[0] if named else None
    try:
        servers = None if programs else reached(config.load(path=path)["mcp_servers"])
        agent = AsyncAgent(config=path, mcp_servers=servers)
        anyio.run(agent.resume, id)
    except AtollError as error:
        # `resume` has written down what came of the run itself; what failed before that is nobody's to hear but here.
        journal.shared().complain(id, str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
