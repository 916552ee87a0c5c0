"""Made-up runs, with whatever a journal may hold.

From a number each: hypothesis chooses only that, since runs are large and shrinking them would take minutes.
"""

from __future__ import annotations

import math
import random

from hypothesis import strategies as st

from atoll.agent.records import Recorded
from atoll.agent.rows import Run, Step

WORDS = ["", "hello", "a\nb\r\nc", "\x1b[31mred", "\ud800", "\u202eback", "x" * 300, "\x00\x07", "{", "Ünï — 文字", " "]
STATES = ["waiting", "running", "interrupted", "completed", "limited", "failed", "cancelled"]


def runs():
    return st.integers(0, 2**32).map(lambda seed: Making(random.Random(seed)).run())


class Making:
    def __init__(self, chance):
        self.chance = chance

    def word(self):
        return self.chance.choice(WORDS)

    def maybe(self, value):
        return value if self.chance.random() < 0.5 else None

    def some(self, make, most=3):
        return [make() for _ in range(self.chance.randint(0, most))]

    def json(self, depth=0):
        simple = [None, True, -3, 0.5, math.nan, math.inf, self.word()]
        if depth < 2 and self.chance.random() < 0.4:
            inner = self.some(lambda: self.json(depth + 1), 2)
            return inner if self.chance.random() < 0.5 else {self.word(): each for each in inner}
        return self.chance.choice(simple)

    def spent(self):
        tokens = {
            name: self.chance.randint(0, 10**6) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
        }
        return {**tokens, "cost": self.maybe(self.chance.random())}

    def call(self):
        return {
            "id": self.word(),
            "name": self.word(),
            "arguments": self.chance.choice([*WORDS, '{"code": "1"}', "[1]"]),
        }

    def reply(self):
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "cached_tokens": 0}
        return {
            "text": self.word(),
            "tool_calls": self.some(self.call),
            "finish": self.word(),
            "usage": self.maybe(usage),
            "model": self.word(),
            "cost": None,
            "reasoning": self.maybe(self.word()),
            "refusal": self.maybe(self.word()),
            "attempts": self.chance.randint(1, 3),
        }

    def message(self):
        return {"role": self.chance.choice(["user", "system", "tool"]), "content": self.word()}

    def tool_outcome(self):
        images = [[self.chance.choice(["image/png", "text/html"]), "aGk="] for _ in range(2)]
        more = {"images": images, "final": self.word(), "lost": {"main/x": "why"}, "unknown": True, "ran": True}
        kept = {name: value for name, value in more.items() if self.chance.random() < 0.3}
        return {"text": self.word(), "failed": self.chance.random() < 0.5, **kept}

    def steps(self, run, parts):
        """As the loop writes them, some of them not at their end."""
        found = []

        def add(key, kind, name, request, outcome, parent=None):
            began = self.chance.uniform(1e9, 2e9)
            after = outcome if self.chance.random() < 0.85 else None
            ended = None if after is None else began + self.chance.uniform(0, 100)
            kept = self.maybe("snap") if after else None
            tries = self.chance.randint(1, 2)
            found.append(Step(run, key, len(found) + 1, parent, kind, name, request, began, tries, after, kept, ended))

        for turn in range(self.chance.randint(0, 3)):
            added = {"added": self.some(self.message)}
            add(f"m{turn}", "model", self.word(), added, {"reply": self.reply(), "spent": self.spent()})
            for index in range(self.chance.randint(0, 3)):
                key = f"m{turn}.t{index}"
                request = {"id": self.chance.choice([*WORDS, f"block-{index}"]), "arguments": self.json()}
                add(key, "tool", self.word(), request, self.tool_outcome())
                if self.chance.random() < 0.5:
                    said = {"text": self.word(), "reply": self.reply(), "spent": self.spent()}
                    add(f"{key}/q", "query", "llm_query", {"prompt": self.word()}, said, key)
                if parts and self.chance.random() < 0.5:
                    child = parts.pop()
                    said = {"text": self.word(), "run": child, "state": "limited", "spent": self.spent()}
                    asked = {"prompt": self.word(), "run": child, "context": None}
                    add(f"{key}/r", "run", "rlm_query", asked, said, key)
            if self.chance.random() < 0.5:
                judged = {"passed": self.chance.random() < 0.5, "text": self.word()}
                add(f"v{turn}", "check", "command", {"command": self.word(), "answer": self.word()}, judged)
        return tuple(found)

    def run(self, id="tr-0", depth=0):
        count = self.chance.randint(0, 2) if depth < 2 else 0
        parts = tuple(self.run(f"{id}.{number}", depth + 1) for number in range(count))
        settings = {"prompt": self.word(), "model": self.word(), "system": self.maybe(self.word()), "limits": {}}
        if self.chance.random() < 0.5:
            settings["tools"] = [{"type": "function", "function": {"name": "run_code", "parameters": {}}}]
        result = {
            "response": self.word(),
            "limit": self.maybe(self.word()),
            "error": self.maybe(self.word()),
            "spent": self.spent(),
        }
        state = self.chance.choice(STATES)
        origin = self.chance.choice([(None, None), ("tr-before", 2)])
        created = self.chance.uniform(1e9, 2e9)
        row = Run(
            id, "agent", None, None, *origin, created, created + 5, state, settings, None, self.maybe(result), 1, None,
            0.0, False,
        )  # fmt: skip
        return Recorded(row, state, self.steps(id, [part.run.id for part in parts]), parts)
