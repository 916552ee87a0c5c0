"""The loop: a model is asked, does what it wants in the sandbox, hears what came of it, and is asked again.

It is a function of the journal. Nothing here asks a clock or throws dice: going through the same outcomes again leads
to the same place, which is how a run goes on after a crash.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ..models import Reply, ToolCall
from . import checks, prompts
from .calling import GONE, Calling
from .ground import Ground
from .journal import Hold, Journal
from .kit import Kit
from .limits import Allowance, Ledger, LimitReached, Limits, Price, Spent
from .parts import run_part
from .recursion import Recursion, prompt_tokens, spent_on
from .rows import Run
from .steps import Outcome, Steps

_SILENCES = 3
Messages = list[dict[str, Any]]


class Ending(NamedTuple):
    """How a run ended: "completed", "limited" or "failed". `limit` names the limit, `error` says what went wrong."""

    state: str
    response: str
    limit: str | None = None
    error: str | None = None
    validated: bool | None = None


class Session:
    """One run in this process, or a run that is a part of one.

    Args:
        hold: the right to write to it.
        above: what the run has spent that this one is a part of.
        depth: 1 for a run of its own.
    """

    def __init__(
        self, journal: Journal, hold: Hold, run: Run, kit: Kit, above: Ledger | None = None, depth: int = 1
    ) -> None:
        self.journal = journal
        self.hold = hold
        self.kit = kit
        self.depth = depth
        self.settings = run.settings
        self.limits = Limits(**run.settings["limits"])
        self.ledger = Ledger(self.limits, above)
        self.steps = Steps(journal, hold, self.ledger, depth - 1, kit.listen)
        deeper = depth < self.limits.max_depth
        self.recursion = Recursion(self.steps, self.ledger, self.ask, self._part if deeper else None)
        self.ground = Ground(journal, hold, run, self.recursion.functions(), journal.context(run.id))
        for step in self.steps.written:
            self.ground.remember(step)
        told = [each["function"]["name"] for each in run.settings.get("tools", ())]
        self.calling = Calling(self.steps, self.ledger, self.ground, self.recursion, kit.tools, told)
        if not told:
            self.settings = {**run.settings, "tools": [tool.definition() for tool in self.calling.tools.values()]}
            journal.set_settings(hold, self.settings)
        # What this process does not have is not offered by it.
        self._offered = [each for each in self.settings["tools"] if each["function"]["name"] in self.calling.tools]
        self.best = ""
        self._validated: bool | None = None if run.settings["validate"] is None else False

    async def play(self) -> Ending:
        """To its end, or to the first limit; then with the best answer so far.

        Raises:
            ModelError, LeaseLost, AtollError: it cannot go on now. Another process may go on later.
        """
        try:
            return await self._turns()
        except LimitReached as reached:
            return Ending("limited", self.best, reached.limit, str(reached), self._validated)

    async def ask(self, messages: Messages, *, tools: bool) -> tuple[Reply, Spent]:
        """Send a conversation to the model. Raises LimitReached, ModelError."""
        offered = self._offered if tools else []
        tokens = prompt_tokens(messages, offered)
        allowance = await self._room(tokens)
        try:
            reply = await self.kit.model.ask(
                messages,
                tools=offered,
                max_tokens=allowance.reply,
                on_retry=lambda why: self.steps.tell("retry", text=why),
            )
        finally:
            self.ledger.settle(allowance)
        spent = spent_on(reply, tokens)
        self.ledger.charge(spent)
        return reply, spent

    async def _room(self, tokens: int) -> Allowance:
        """Set aside what a call may take. Where calls under way hold what it needs, it waits for what they leave."""
        while True:
            try:
                return self.ledger.allow(tokens, self._price())
            except LimitReached:
                import anyio

                settled = anyio.Event()
                if not self.ledger.tell_when_settled(settled.set):
                    raise
                await settled.wait()

    def _price(self) -> Price:
        """The first call does not wait for the table of prices."""
        return self.kit.price() if self.ledger.tokens or self.settings["strict_cost"] else Price()

    async def _turns(self) -> Ending:
        messages: Messages = [
            {"role": "system", "content": self.settings["system"]},
            {"role": "user", "content": self.settings["prompt"]},
        ]
        told, silent, answered, cut = list(messages), 0, 0, ""
        for turn in range(self.limits.max_iterations):
            self._redirect(turn, messages, told)
            reply = await self._reply(turn, messages, told)
            messages.append(_assistant(reply))
            told = []
            if reply.refusal and not reply.tool_calls:
                return Ending("failed", reply.refusal, error=f"The model refused: {reply.refusal}")
            answer = await self._act(turn, reply, cut, told)
            silent = silent + 1 if told == [_user(prompts.NUDGE)] else 0
            if silent >= _SILENCES:
                return Ending("failed", self.best, error=f"The model said nothing {_SILENCES} times in a row.")
            cut = cut + reply.text if told == [_user(prompts.GO_ON)] else ""
            if answer is not None:
                self.best = answer
                reason = await self._check(answered, answer)
                answered += 1
                if reason is None:
                    return Ending("completed", answer, validated=self._validated)
                told.append(_user(prompts.failed_check(reason)))
            messages += told
        often = "once" if self.limits.max_iterations == 1 else f"{self.limits.max_iterations} times"
        raise LimitReached("max_iterations", f"The model was asked {often}, which is as often as it may be.")

    def _redirect(self, turn: int, messages: Messages, told: Messages) -> None:
        """What a fork was told, where it begins to go its own way."""
        redirect = self.settings.get("redirect")
        if redirect is not None and redirect["turn"] == turn:
            messages.append(_user(redirect["text"]))
            told.append(_user(redirect["text"]))

    async def _reply(self, turn: int, messages: Messages, told: Messages) -> Reply:
        key = f"m{turn}"
        if not self.steps.is_done(key):
            # What has no room is refused before it is written down as begun.
            tokens = prompt_tokens(messages, self._offered)
            self.ledger.settle(self.ledger.allow(tokens, self._price()))

        async def act() -> tuple[Outcome, None]:
            reply, spent = await self.ask(messages, tools=True)
            return {"reply": reply.to_json(), "spent": spent.to_json()}, None

        outcome = await self.steps.do(key, "model", self.kit.model.name, {"added": list(told)}, act)
        return Reply.from_json(outcome["reply"])

    async def _act(self, turn: int, reply: Reply, cut: str, told: Messages) -> str | None:
        """Do what a reply wants; what the model is told of it goes to `told`. The answer, if there is one."""
        if reply.text.strip():
            self.best = cut + reply.text
        if reply.tool_calls:
            outcomes = await self.calling.all(turn, list(reply.tool_calls))
            told += [_tool(call, outcome) for call, outcome in zip(reply.tool_calls, outcomes, strict=False)]
            self.calling.check_complete(reply.tool_calls, outcomes)
            return _final(outcomes)
        blocks = prompts.blocks_of(reply.text)
        if blocks:
            calls = [ToolCall(f"block-{n}", "run_code", json.dumps({"code": code})) for n, code in enumerate(blocks)]
            outcomes = await self.calling.all(turn, calls)
            told.append(_user("\n\n".join(f"[block {n + 1}]\n{outcome['text']}" for n, outcome in enumerate(outcomes))))
            self.calling.check_complete(calls, outcomes)
            return _final(outcomes)
        if reply.finish == "length":
            told.append(_user(prompts.GO_ON))
            return None
        if not reply.text.strip() and not cut:
            told.append(_user(prompts.NUDGE))
            return None
        return await self._spoken(turn, cut + reply.text, told)

    async def _spoken(self, turn: int, text: str, told: Messages) -> str | None:
        """The answer in a text, which may say FINAL or FINAL_VAR as code does."""
        final = prompts.final_of(text)
        if final is None or final[0] == "text":
            return text if final is None else final[1]
        outcome = await self.calling.variable(turn, final[1])
        if outcome["failed"]:
            told.append(_user(outcome["text"]))
            return None
        return str(outcome["text"])

    async def _check(self, number: int, answer: str) -> str | None:
        """Why an answer does not count, or None."""
        check = self.settings["validate"]
        if check is None:
            return None

        async def act() -> tuple[Outcome, None]:
            try:
                reason = await checks.judge(check, self.kit.check, self.ground, answer, self.limits.step_timeout)
            except GONE as error:
                reason = f"The check could not be run to its end: {error}"
            return {"passed": reason is None, "text": reason or ""}, None

        outcome = await self.steps.do(f"v{number}", "check", next(iter(check)), {**check, "answer": answer}, act)
        self._validated = bool(outcome["passed"])
        return None if self._validated else str(outcome["text"])

    async def _part(self, key: str, prompt: str, cell: str, context: Any) -> Outcome:
        return await run_part(self, Session, key, prompt, cell, context)


def _final(outcomes: list[Outcome]) -> str | None:
    return next((str(outcome["final"]) for outcome in outcomes if outcome.get("final") is not None), None)


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _tool(call: ToolCall, outcome: Outcome) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": outcome["text"]}


def _assistant(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}
            for call in reply.tool_calls
        ]
    return message
