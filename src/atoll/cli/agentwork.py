"""An agent at work for a command: shown while it works, and what came of it."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..errors import AtollError
from .agentoptions import agent_options, context_of
from .agentprogress import Progress, money
from .output import complain, say, say_json
from .parsing import UsageError

if TYPE_CHECKING:
    from ..agent.agent import AsyncAgent
    from ..agent.results import Result

_INTERRUPTED = 130


def begin(args: Namespace, kind: str) -> int:
    """Have an agent work on what the words say; gives the exit code."""
    task = " ".join(args.words).strip()
    if not task:
        raise UsageError(f'Say what is to be done, as in `atoll {"agent" if kind == "agent" else "ask"} "…"`.')
    agent, progress = _agent(args)
    id = agent.prepare(task, kind=kind, context=context_of(args))
    if getattr(args, "detach", False):
        from ..agent.background import launch

        launch(id, None if args.config is None else os.path.abspath(args.config))
        say(id)
        return 0
    return work(agent, progress, id, args)


def work(agent: AsyncAgent, progress: Progress, id: str, args: Namespace) -> int:
    """Work on a run that is written down, and tell what came of it."""
    try:
        result = _until_interrupted(lambda: agent.resume(id))
    except KeyboardInterrupt:
        progress.close()
        complain(f"Interrupted. `atoll resume {id}` goes on where it was.")
        return _INTERRUPTED
    except AtollError as error:
        progress.close()
        complain(str(error))
        complain(f"What was done is kept: `atoll resume {id}` goes on.")
        return 125
    progress.close()
    return tell(result, args)


def tell(result: Result, args: Namespace) -> int:
    """The answer on stdout, what there is to know about it on stderr; gives the exit code."""
    if args.json:
        say_json({**result._asdict(), "usage": result.usage._asdict(), "success": result.success})
        return 0 if result.success else 1
    if result.response:
        say(result.response)
    if result.limit is not None:
        complain(f"The limit {result.limit} was reached: {result.error} This is the best answer so far.")
    elif result.error is not None:
        complain(result.error)
    if not args.quiet:
        cost = money(result.cost)
        checked = {True: ", checked", False: ", check not passed", None: ""}[result.validated]
        complain(f"{result.trajectory_id}: {result.state}{checked}, {result.usage.total:,} tokens, {cost}.")
        if result.sandbox is not None:
            complain(
                f"The sandbox {result.sandbox} stays: `atoll diff {result.sandbox}`, `atoll apply {result.sandbox}`."
            )
    return 0 if result.success else 1


def resuming(args: Namespace) -> tuple[AsyncAgent, Progress]:
    """An agent that goes on with runs that are written down."""
    return _agent(args)


def _agent(args: Namespace) -> tuple[AsyncAgent, Progress]:
    from ..agent.agent import AsyncAgent

    progress = Progress(quiet=args.quiet or args.json)
    agent = AsyncAgent(**agent_options(args), on_event=progress)
    for warning in agent.warnings:
        complain(warning)
    progress.seconds = agent.step_timeout
    return agent, progress


def _until_interrupted(work: Callable[[], Awaitable[Result]]) -> Result:
    import anyio

    return anyio.run(work)
