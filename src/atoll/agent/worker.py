"""The process of a run that was begun in the background: `python -m atoll.agent.worker ID [CONFIG]`."""

from __future__ import annotations

import sys


def main(words: list[str]) -> int:
    import anyio

    from ..errors import AtollError
    from . import journal
    from .agent import AsyncAgent

    id, *config = words
    try:
        agent = AsyncAgent(config=config[0] if config else None)
        anyio.run(agent.resume, id)
    except AtollError as error:
        # `resume` has written down what came of the run itself; what failed before that is nobody's to hear but here.
        journal.shared().complain(id, str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
