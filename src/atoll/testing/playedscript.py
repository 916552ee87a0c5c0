"""Which reply a played model gives to which request.

A script is one of these; the last three can be in a JSON file:

- a function from the request (a dict) to a reply;
- a list: reply number N is for a conversation that has N messages of the assistant already, so that a request that is
  sent again, or resumed by another process, gets the same reply;
- in such a list, a list instead of a reply: one for each time that this turn is asked for, then the last for ever;
- `{"rules": [{"when": {...}, "replies": [...]}, ...]}`: the first rule whose `when` fits has the list. `when` may say
  `contains` (anywhere in the conversation), `system`, `first` (user message) or `last` (message) contains a text,
  `model` is a name, `has_tools` is true or false. Without `when` it always fits.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import InvalidInput
from ..policy.text import shown
from .playedreplies import Played, check, fails

Script = Callable[[dict[str, Any]], Any] | Sequence[Any] | Mapping[str, Any]
_WHEN = {"contains", "system", "first", "last", "model", "has_tools"}


class Chooser:
    """Chooses replies by a script; it may be asked by several threads at once.

    Raises: InvalidInput for a script that is none.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._rules = [] if callable(script) else _rules(script)
        self._asked: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()

    def choose(self, request: dict[str, Any]) -> Played:
        """The reply for a request. When the script has none it is an error of status 400, which nobody retries."""
        if callable(self._script):
            return check(self._script(request))
        turn = turn_of(request)
        for number, (when, replies) in enumerate(self._rules):
            if _fits(when, request):
                if turn >= len(replies):
                    return fails(400, f"The script has {len(replies)} replies, and this conversation has had {turn}.")
                return self._one_of(replies[turn], (number, turn))
        return fails(400, "No rule of the script fits this request.")

    def _one_of(self, replies: Any, key: tuple[int, int]) -> Played:
        if not isinstance(replies, list | tuple):
            return check(replies)
        with self._lock:
            time = self._asked.get(key, 0)
            self._asked[key] = time + 1
        return check(replies[min(time, len(replies) - 1)])


def read_script(path: str) -> Any:
    """The script in a JSON file. Raises: InvalidInput."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise InvalidInput(f"The script {path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"The script {path} is no JSON: {error}.", hint='Write a list of replies, such as [{"text": "Hello."}].'
        ) from None


def turn_of(request: Any) -> int:
    """How many messages of the assistant a conversation has."""
    return sum(1 for message in _messages(request) if message.get("role") == "assistant")


def _messages(request: Any) -> list[dict[str, Any]]:
    found = request.get("messages") if isinstance(request, dict) else None
    return [message for message in found if isinstance(message, dict)] if isinstance(found, list) else []


def _rules(script: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    if isinstance(script, Mapping):
        if set(script) != {"rules"} or not isinstance(script["rules"], list):
            raise InvalidInput('A played script is a list of replies or {"rules": [...]}.')
        rules = [_rule(rule) for rule in script["rules"]]
    elif isinstance(script, list | tuple):
        rules = [({}, list(script))]
    else:
        raise InvalidInput(f"A played script is a function, a list or a dict, not {type(script).__name__}.")
    for _, replies in rules:
        for reply in replies:
            for one in reply if isinstance(reply, list | tuple) and reply else [reply]:
                check(one)
    return rules


def _rule(rule: Any) -> tuple[dict[str, Any], list[Any]]:
    if not isinstance(rule, dict) or not {"replies"} <= set(rule) <= {"when", "replies"}:
        raise InvalidInput('A rule of a played script is {"when": {...}, "replies": [...]}.')
    when = rule.get("when", {})
    if not isinstance(when, dict) or not isinstance(rule["replies"], list | tuple):
        raise InvalidInput('A rule of a played script is {"when": {...}, "replies": [...]}.')
    for key, wanted in when.items():
        if key in _WHEN and not isinstance(wanted, bool if key == "has_tools" else str):
            what = "true or false" if key == "has_tools" else "a text"
            raise InvalidInput(f"A rule's `when` has {shown(wanted)} for {key}; give {what}.")
    if unknown := set(when) - _WHEN:
        raise InvalidInput(f"A rule's `when` has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(_WHEN))}.")
    return when, list(rule["replies"])


def _fits(when: dict[str, Any], request: dict[str, Any]) -> bool:
    messages = _messages(request)
    by_role = {role: [message for message in messages if message.get("role") == role] for role in ("system", "user")}
    among = {"contains": messages, "system": by_role["system"], "first": by_role["user"][:1], "last": messages[-1:]}
    for key, wanted in when.items():
        if key == "model":
            fits = request.get("model") == wanted
        elif key == "has_tools":
            fits = bool(request.get("tools")) == wanted
        else:
            fits = wanted in "\n".join(_text(message) for message in among[key])
        if not fits:
            return False
    return True


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    spoken = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    called = message.get("tool_calls")
    return f"{spoken}\n{json.dumps(called, ensure_ascii=False)}" if called else spoken
