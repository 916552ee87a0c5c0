"""Runs that are parts of a run: helpers that code in a cell asks for, with sandboxes of their own."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from . import prompts
from .ground import sweep
from .journal import FINAL
from .limits import Spent
from .steps import Outcome

if TYPE_CHECKING:
    from .session import Session


async def run_part(above: Session, make: type[Session], key: str, prompt: str, cell: str, context: Any) -> Outcome:
    """What a helper answered. Its id comes from the step, so that a step in doubt finds the run that it began."""
    id = f"tr-{hashlib.sha256(f'{above.hold.run} {key}'.encode()).hexdigest()[:16]}"

    async def act() -> tuple[Outcome, None]:
        above.journal.create(
            "part", _settings(above, prompt, context), context=context, parent=(above.hold.run, key), id=id
        )
        run = above.journal.run(id)
        if run.state in FINAL and run.result is not None:
            # It came to its end, and then the process did, before it could be written down here.
            above.ledger.charge(Spent.from_json(run.result["spent"]))
            return _outcome(id, run.state, run.result), None
        return await _play(above, make, id), None

    request = {"prompt": prompt, "run": id, "context": None if context is None else prompts.about(context)}
    return await above.steps.do(key, "run", "rlm_query", request, act, parent=cell)


async def _play(above: Session, make: type[Session], id: str) -> Outcome:
    import anyio

    hold = above.journal.claim(id, force=True)
    if hold.fence > 1:
        await sweep(id, but=above.journal.run(id).sandbox)
    part = make(
        above.journal, hold, above.journal.run(id), above.kit._replace(check=None), above.ledger, above.depth + 1
    )
    try:
        ending = await part.play()
    except Exception as error:
        with anyio.CancelScope(shield=True):
            await part.ground.close()
        failed = {"response": part.best, "error": str(error), "spent": part.ledger.spent().to_json()}
        above.journal.finish(hold, "failed", failed)
        raise
    except BaseException as error:
        part.ground.leave()
        above.journal.release(
            hold, {"response": part.best, "error": str(error), "spent": part.ledger.spent().to_json()}
        )
        raise
    with anyio.CancelScope(shield=True):
        await part.ground.close()
    result = {**ending._asdict(), "spent": part.ledger.spent().to_json(), "sandbox": None}
    above.journal.finish(hold, ending.state, result)
    return _outcome(id, ending.state, result)


def _settings(above: Session, prompt: str, context: Any) -> dict[str, Any]:
    told = None if context is None else prompts.about(context)
    deeper = above.depth + 1 < above.limits.max_depth
    system = prompts.system_prompt("completion", context=told, workspace=False, checked=False, deeper=deeper, more=None)
    wishes = {name: value for name, value in above.settings["sandbox"].items() if name != "lent"}
    changes = {"prompt": prompt, "system": system, "validate": None, "keep": False, "sandbox": wishes, "redirect": None}
    return {**above.settings, **changes}


def _outcome(id: str, state: str, result: dict[str, Any]) -> Outcome:
    text = result["response"] or result.get("error") or ""
    if state != "completed" and result["response"]:
        text = f"{result['response']}\n[this helper did not come to its end: {result.get('error')}]"
    return {"text": text, "run": id, "state": state, "spent": result["spent"]}
