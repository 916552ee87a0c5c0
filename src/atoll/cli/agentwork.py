"""An agent at work for a command: shown while it works, and what came of it."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import AtollError
from .agentoptions import agent_options, context_of, servers_of
from .agentprogress import Progress, money
from .output import STDOUT, complain, say, say_json, visible
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
    agent, progress = _agent(args, agent_options(args))
    id = agent.prepare(task, kind=kind, context=context_of(args))
    if getattr(args, "detach", False):
        from ..agent.background import launch

        launch(id, None if args.config is None else os.path.abspath(args.config))
        say(id)
        return 0
    return work(agent, progress, id, args)


def work(
    agent: AsyncAgent, progress: Progress, id: str, args: Namespace, changes: Mapping[str, Any] | None = None
) -> int:
    """Work on a run that is written down, and tell what came of it."""
    signals = _Signals()
    try:
        result = _until_interrupted(lambda: agent.resume(id, **(changes or {})))
    except KeyboardInterrupt:
        progress.close()
        complain(f"Interrupted. `atoll resume {id}` goes on where it was.")
        return signals.exit_code
    except AtollError as error:
        progress.close()
        complain(str(error))
        if _can_go_on(id):
            complain(f"What was done is kept: `atoll resume {id}` goes on.")
        return 125
    progress.close()
    return tell(result, args)


def tell(result: Result, args: Namespace) -> int:
    """The answer on stdout, what there is to know about it on stderr; gives the exit code."""
    if args.json:
        more = {"usage": result.usage._asdict(), "success": result.success}
        say_json({"id": result.trajectory_id, **result._asdict(), **more})
        return 0 if result.success else 1
    if result.response:
        say(_harmless(result.response) if os.isatty(STDOUT) else result.response)
    if result.limit is not None:
        best = "This is the best answer so far." if result.response else "There is no answer yet."
        option = f"--{result.limit.replace('_', '-')}"
        complain(f"The limit {result.limit} was reached: {result.error} {best}")
        complain(f"`atoll resume {result.trajectory_id} {option} …` goes on with a larger one.")
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
    return _agent(args, servers_of(args))


def _can_go_on(id: str) -> bool:
    from ..agent import journal

    try:
        run = journal.shared().resolve(id)
    except AtollError:
        return False
    return journal.state_of(run) == "interrupted"


def _harmless(text: str) -> str:
    """What a model says may be made to change a terminal; lines and tabs stay."""
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.split("\n"))


class _Signals:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: orderly, and with a word on how to go on."""

    def __init__(self) -> None:
        import signal

        self.exit_code = _INTERRUPTED
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, frame: object) -> None:
        import signal

        self.exit_code = 128 + number
        signal.raise_signal(signal.SIGINT)


def _agent(args: Namespace, options: dict[str, Any]) -> tuple[AsyncAgent, Progress]:
    from ..agent.agent import AsyncAgent

    progress = Progress(quiet=args.quiet or args.json)
    agent = AsyncAgent(**options, on_event=progress)
    for warning in agent.warnings:
        complain(warning)
    progress.seconds = agent.step_timeout
    return agent, progress


def _until_interrupted(work: Callable[[], Awaitable[Result]]) -> Result:
    import anyio

    return anyio.run(work)
