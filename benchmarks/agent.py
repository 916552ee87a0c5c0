"""Agents: what the journal costs, how soon a run goes on after a crash, how well calls of models run side by side."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time

from .measure import Figure, clean_environment, median, milliseconds, say

_STEPS = 2000
_RESUMES = 11
_LITE = 3
_PROMPTS = 50
_LATENCY = 0.1
_ATOLL = os.path.join(os.path.dirname(sys.executable), "atoll")
_ASKS = f"""
import time
began = time.perf_counter()
llm_query_batched([f"prompt {{n}}" for n in range({_PROMPTS})])
FINAL(str(time.perf_counter() - began))
"""


def measure() -> list[Figure]:
    return [_journal(), *_resume(), *(_batched(concurrency) for concurrency in (8, 10, 25))]


def _journal() -> Figure:
    """A step with an outcome of a few hundred bytes: a row before it and one after it."""
    say("Writing steps …")
    from atoll.agent.journal import Journal

    with tempfile.TemporaryDirectory() as directory:
        journal = Journal(os.path.join(directory, "agent.db"))
        hold = journal.claim(journal.create("agent", {"prompt": "x", "model": "m", "sandbox": {}}))
        outcome = {"text": "x" * 300, "failed": False}

        def step(number: int) -> None:
            journal.begin(hold, f"m{number}", "tool", "run_code", {"arguments": {"code": "x" * 200}})
            journal.end(hold, f"m{number}", outcome, "snapshot")

        seen = [milliseconds(lambda number=number: step(number)) for number in range(_STEPS)]
        journal.close()
    return Figure("an agent's journal: a step, before and after", median(seen), "ms", "", None, 0.3)


def _resume() -> list[Figure]:
    """A run that has two finished steps and a sandbox is resumed, again and again: its next model call always fails."""
    from atoll.agent import Agent
    from atoll.errors import ModelError
    from atoll.testing.playedmodel import PlayedModel, calls, fails

    say("Resuming runs …")
    figures = []
    with PlayedModel([calls(("run_code", {"code": "x = 1"})), fails(400, "not now")]) as server:
        for model, rounds in (("played", _RESUMES), ("litellm/openai/played", _LITE)):
            agent = Agent(model, base_url=server.url, api_key="k")
            try:
                agent.run("go")
            except ModelError:
                pass
            run = agent.latest_trajectory()
            assert run is not None
            seen = [_until_asked(server, run.id) for _ in range(rounds)]
            if model == "played":
                figures.append(
                    Figure("resume → next model call, from the start of the process", median(seen), "ms", "", None, 300)
                )
            else:
                lite = median([_import_of_litellm() for _ in range(rounds)])
                figures.append(Figure("the same with LiteLLM", median(seen), "ms", "", None, 1500))
                figures.append(
                    Figure("the same, its import not counted", max(median(seen) - lite, 0), "ms", "", None, 300)
                )
    return figures


def _until_asked(server: object, id: str) -> float:
    before = len(server.requests)  # type: ignore[attr-defined]
    began = time.time()
    environment = {**clean_environment(), "ATOLL_API_KEY": "k"}
    subprocess.run([_ATOLL, "resume", "-q", id], check=False, capture_output=True, env=environment)
    return (server.requests[before].at - began) * 1e3  # type: ignore[attr-defined]


def _import_of_litellm() -> float:
    """With the settings that atoll imports it with."""
    environment = {**clean_environment(), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

    code = "import time; t = time.perf_counter(); import litellm; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout) * 1e3


def _batched(concurrency: int) -> Figure:
    from atoll.agent import Agent
    from atoll.testing.playedmodel import PlayedModel, calls, says

    say(f"Asking {_PROMPTS} at once, {concurrency} at a time …")

    def script(request: dict) -> dict:
        return calls(("run_code", {"code": _ASKS})) if request.get("tools") else says("ok", delay=_LATENCY)

    ideal = math.ceil(_PROMPTS / concurrency) * _LATENCY * 1e3
    with PlayedModel(script) as server:
        agent = Agent("played", base_url=server.url, concurrency=concurrency, max_subcalls=1000, token_budget=500_000)
        seen = [float(agent.completion("go").response) * 1e3 for _ in range(3)]
    return Figure(
        f"llm_query_batched of {_PROMPTS}, {concurrency} at once", median(seen), "ms", "the ideal", ideal, 1.2
    )
