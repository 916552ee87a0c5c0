"""AsyncAgent: a model with a sandbox, whose work survives anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .. import models
from ..errors import InvalidInput
from ..policy.text import shown
from . import checks, conducting, journal, tracing
from .events import Event, Listener
from .ground import CHANGING
from .kit import Kit, price_of
from .limits import Price
from .options import Options, changed, options, run_settings
from .results import Result, Status, Trajectory, result_of, status_of, trajectory_of
from .sandboxtools import NAMES
from .toolspec import Tool

if TYPE_CHECKING:
    from .journal import Hold
    from .rows import Run, Step
    from .streaming import AsyncRunning


class AsyncAgent:
    """A model that works in a sandbox.

    Everything that it does is in a journal, before it happens and after. `resume` goes on with a run whose process was
    killed, in any other process; `fork` begins a second line at one of its steps.

    Args:
        model: such as "openai/gpt-4o-mini"; `$ATOLL_MODEL`, or `model` of atoll.toml, unless given.
        base_url: of a server that speaks as OpenAI's does, for models of your own.
        api_key: the provider's environment variable unless given. It is written nowhere, and enters no sandbox.
        sandbox: the keywords of `Sandbox.create` in a mapping; or a sandbox, or its id, that is lent to it.
        tools: functions of yours that the model may call; see `tool`.
        mcp_servers: MCP servers whose tools it may call, by name, as Claude's configuration has them.
        system: more for the first message, such as how to answer.
        validate: what an answer must pass: a command, {"code": …}, or a function of the answer.
        keep: let the sandbox live when the run has ended; True unless given for one with a source.
        config: an atoll.toml to read, instead of the one that is found.
        on_event: called with each `Event` as it happens.
        limits: max_depth, max_iterations, max_cost, step_timeout, max_subcalls, token_budget, max_tool_calls,
            concurrency.

    Raises:
        InvalidInput: something cannot be, with what to write instead.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        sandbox: Any = None,
        tools: Iterable[Callable[..., Any] | Tool] = (),
        mcp_servers: Mapping[str, Any] | None = None,
        system: str | None = None,
        validate: checks.Check | None = None,
        keep: bool | None = None,
        config: str | None = None,
        on_event: Listener | None = None,
        **limits: Any,
    ) -> None:
        self._options: Options = options(
            model, base_url, api_key, sandbox, tools, mcp_servers, system, validate,
            keep=keep, config_file=config, limits=limits,
        )  # fmt: skip
        self._listen = on_event

    @property
    def warnings(self) -> list[str]:
        """What of a configuration file was not taken, and why."""
        return list(self._options.settings.warnings)

    @property
    def step_timeout(self) -> float:
        """Seconds that one call in the sandbox may take."""
        return float(self._options.settings["step_timeout"])

    async def completion(self, prompt: str, *, context: Any = None, validate: checks.Check | None = None) -> Result:
        """Answer a question, with a sandbox at hand.

        Args:
            context: what the question is about, however long: text, or anything that is JSON. It is a variable in the
                sandbox, and the model is told only what it is and how long.
            validate: instead of the agent's own.

        Raises:
            InvalidInput: the prompt, the context or the check cannot be.
            ModelError: the model refused or did not answer. The run can be resumed.
            AtollError: the sandbox cannot be made.
        """
        return await self._start("completion", prompt, context, validate)

    async def run(self, task: str, *, context: Any = None, validate: checks.Check | None = None) -> Result:
        """Work on a task, step by step, until it is done or a limit is reached. Raises as `completion` does."""
        return await self._start("agent", task, context, validate)

    def stream(
        self, task: str, *, kind: str = "agent", context: Any = None, validate: checks.Check | None = None
    ) -> AsyncRunning:
        """The same, told as it happens: `async with agent.stream(task) as steps: async for event in steps: …`.

        `steps.result` is there when the iteration has ended. Leaving the block early interrupts the run, which can
        then be resumed.
        """
        from .streaming import AsyncRunning

        return AsyncRunning(self, self.prepare(task, kind=kind, context=context, validate=validate))

    def prepare(
        self, task: str, *, kind: str = "agent", context: Any = None, validate: checks.Check | None = None
    ) -> str:
        """Write a new run down, without beginning it; its id. `resume` begins it. Raises InvalidInput, ModelError."""
        settings = run_settings(self._options, kind, task, context, validate)
        clash = NAMES & {tool.name for tool in self._options.tools}
        if clash:
            raise InvalidInput(f"A tool of yours has the name {shown(min(clash))}, which the sandbox has already.")
        return journal.shared().create(kind, settings, context=_json(context))

    async def resume(
        self, trajectory_id: str, *, validate: Callable[[str], Any] | None = None, **changes: Any
    ) -> Result:
        """Go on with a run that was interrupted, at the very step; what has ended is not done again.

        The model, the limits and the sandbox are those of the run; tools, servers and keys are this agent's.

        Args:
            changes: `model`, `base_url`, `keep` or limits, for what is left of it. A run that ended at a limit goes on
                when a larger one is given.

        Raises:
            TrajectoryNotFound: there is none; the beginning of an id is enough.
            InvalidInput: it has ended, or a function is to judge its answers that is not given.
            Busy: a process works on it.
        """
        kept = journal.shared()
        run = kept.resolve(trajectory_id)
        hold = kept.claim(run.id, changes=changed(run.settings, changes))
        return await self._conduct(hold, validate, self._listen)

    async def follow(self, trajectory_id: str, listen: Listener | None) -> Result:
        """As `resume`, with another listener beside the agent's own."""
        kept = journal.shared()
        hold = kept.claim(kept.resolve(trajectory_id).id)
        return await self._conduct(hold, None, _both(self._listen, listen))

    async def fork(self, trajectory_id: str, at: int, *, prompt: str | None = None, **changes: Any) -> Result:
        """Branch off a run after its step `at`, with conversation, files and variables as they were then.

        Args:
            at: the number of a step, as `atoll logs` shows it; 0 is the beginning.
            prompt: something to tell the model there.
            changes: as for `resume`.

        Raises:
            TrajectoryNotFound, InvalidInput: there is no such run, or step.
        """
        return await self.resume(self.prepare_fork(trajectory_id, at, prompt=prompt, **changes))

    def prepare_fork(self, trajectory_id: str, at: int, *, prompt: str | None = None, **changes: Any) -> str:
        """As `fork`, without going on; the id of the new line."""
        kept = journal.shared()
        run = kept.resolve(trajectory_id)
        if "lent" in run.settings["sandbox"]:
            raise InvalidInput(f"{run.id} worked in a sandbox that was lent to it, which a fork cannot have.")
        _check_kept(kept.steps(run.id), at)
        turns = sum(step.kind == "model" and step.number <= at for step in kept.steps(run.id))
        redirect = None if prompt is None else {"turn": turns, "text": prompt}
        return kept.fork(run.id, at, {**changed(run.settings, changes), "redirect": redirect})

    def status(self, trajectory_id: str) -> Status:
        """How a run stands, whichever process works on it. Raises TrajectoryNotFound."""
        kept = journal.shared()
        return status_of(kept, kept.resolve(trajectory_id))

    def cancel(self, trajectory_id: str) -> bool:
        """End a run, whichever process works on it; whether it had not ended before.

        Raises:
            TrajectoryNotFound: there is none.
            InvalidInput: it is a helper's; cancel the run that it helps.
        """
        from .forgetting import cancel

        kept = journal.shared()
        return cancel(kept, kept.resolve(trajectory_id).id)

    def trajectory(self, trajectory_id: str) -> Trajectory:
        """A run with all of its steps. Raises TrajectoryNotFound."""
        kept = journal.shared()
        return trajectory_of(kept, kept.resolve(trajectory_id))

    def latest_trajectory(self) -> Trajectory | None:
        """The run that was begun last, by whichever process."""
        kept = journal.shared()
        newest = kept.runs(limit=1)
        return trajectory_of(kept, newest[0]) if newest else None

    async def _start(self, kind: str, prompt: str, context: Any, validate: checks.Check | None) -> Result:
        id = self.prepare(prompt, kind=kind, context=context, validate=validate)
        return await self._conduct(journal.shared().claim(id), validate if callable(validate) else None, self._listen)

    def _check_key(self, run: Run) -> None:
        """Raises InvalidInput where a key would go to another server than the one that it was given for."""
        settings = self._options.settings
        if self._options.api_key is not None and settings["base_url"] != run.settings["base_url"]:
            raise InvalidInput(
                f"api_key was given for {settings['base_url'] or 'the usual server'}, and the run {run.id} "
                f"asks {run.settings['base_url'] or 'that of ' + str(run.settings['model'])}.",
                hint="Give the agent the base_url that the key is for, and resume with base_url= to change it.",
            )

    async def _conduct(self, hold: Hold, function: Callable[[str], Any] | None, listen: Listener | None) -> Result:
        from .mcptools import attached

        kept = journal.shared()
        try:
            run = kept.run(hold.run)
            self._check_key(run)
            model = models.load(run.settings["model"], base_url=run.settings["base_url"], api_key=self._options.api_key)
            price = _price(run)
        except BaseException as error:
            _give_up(kept, hold, error)
            raise
        begun = False
        traced = tracing.listener(run.settings["model"])
        try:
            async with attached(self._options.servers) as more:
                check = function or (self._options.validate if callable(self._options.validate) else None)
                begun = True
                tools = (*self._options.tools, *more)
                heard = _both(listen, traced) or _nobody
                await conducting.conduct(kept, hold, Kit(model, price, tools, heard, check))
        except BaseException as error:
            if traced is not None:
                traced.close(type(error).__name__)
            if not begun:
                _give_up(kept, hold, error)
            raise
        finally:
            await model.aclose()
        return result_of(kept.run(hold.run))


def _both(one: Listener | None, two: Listener | None) -> Listener | None:
    if one is None or two is None:
        return one or two

    def tell(event: Event) -> None:
        one(event)
        two(event)

    return tell


def _check_kept(steps: list[Step], at: int) -> None:
    """Raises InvalidInput where the sandbox was not kept as it was after the step `at`."""
    changing = [
        step for step in steps if step.name in CHANGING and step.number <= at and (step.outcome or {}).get("ran")
    ]
    if changing and changing[-1].snapshot is None:
        good = max((step.number for step in changing if step.snapshot is not None), default=0)
        raise InvalidInput(
            f"The sandbox could not be kept after step {changing[-1].number}, so no fork can begin at {at}.",
            hint=f"Begin at {good}. A step is not kept while a process has a file open to write to.",
        )


def _give_up(kept: journal.Journal, hold: Hold, error: BaseException) -> None:
    """Let go of a run; of one that did nothing yet, nothing is left."""
    kept.release(hold, {"error": str(error)})
    if hold.fence == 1 and not kept.steps(hold.run):
        kept.delete(hold.run)


def _nobody(event: Event) -> None:
    """Hears of nothing."""


def _price(run: Run) -> Callable[[], Price]:
    """Looks the price up when it is wanted: the table is long, and the first call need not wait for it.

    Raises:
        InvalidInput: a limit on the cost was asked for, and cannot be held.
    """
    known: list[Price] = []

    def price() -> Price:
        if not known:
            known.append(price_of(run.settings["model"]))
        return known[0]

    if run.settings["strict_cost"] and None in price():
        raise InvalidInput(
            f"max_cost was given, and the price of {run.settings['model']} is not known, so it cannot be held.",
            hint="Leave max_cost out, and give a token_budget instead.",
        )
    return price


def _json(context: Any) -> Any:
    """Raises InvalidInput for what is no JSON."""
    import json

    try:
        return json.loads(json.dumps(context))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"context cannot be written down: {error}.", hint="Give text, or values that are JSON."
        ) from None
