"""What came of an attack: counts, the slowest, and what must not have been."""

import collections
import threading
import time
from typing import NamedTuple


class Violation(NamedTuple):
    """Something that must not be, with what is needed to have it again."""

    kind: str
    round: int
    user: str
    box: str
    what: str
    after: float
    """Seconds since the attack began."""


class Report:
    """May be told things by many threads at once."""

    def __init__(self, seed, how="--users root", tell=lambda _line: None):
        """`how` it is to be played again, as the command takes it. `tell` is called with each violation at once."""
        self._tell = tell
        self.seed = seed
        self._how = how
        self.began = time.monotonic()
        self.rounds = 0
        self.attackers = collections.Counter()
        self.violations = []
        self._outcomes = collections.defaultdict(collections.Counter)
        self._slowest = collections.defaultdict(float)
        self._errors = collections.Counter()
        self._lock = threading.Lock()

    @property
    def elapsed(self):
        return time.monotonic() - self.began

    def note(self, operation, outcome, seconds, error=""):
        """`outcome` is "ok", "refused" or "failed"."""
        with self._lock:
            self._outcomes[operation][outcome] += 1
            self._slowest[operation] = max(self._slowest[operation], seconds)
            if error:
                self._errors[operation, error] += 1

    def note_attacker(self, kind, error=""):
        """`error` is why it did not begin."""
        with self._lock:
            self.attackers[kind] += 1
            if error:
                self._errors[kind, error] += 1

    def violate(self, kind, round, user, box, what):
        """The same thing is told once a round."""
        with self._lock:
            if not any(each[:4] == (kind, round, user, box) and each.what == what for each in self.violations):
                self.violations.append(Violation(kind, round, user, box, what, self.elapsed))
                self._tell(f"{self.elapsed / 60:5.1f} min: round {round}, {kind}, {user}'s {box or 'machine'}: {what}")

    def failures(self):
        """How often what went wrong, by attacker or operation and by error."""
        with self._lock:
            return dict(self._errors)

    def line(self):
        """How it stands, on one line."""
        with self._lock:
            done = sum(map(sum, (each.values() for each in self._outcomes.values())))
            return (
                f"{self.elapsed / 60:5.1f} min: {self.rounds} rounds, {sum(self.attackers.values())} attackers, "
                f"{done} operations, {len(self.violations)} violations"
            )

    def text(self):
        lines = [f"seed {self.seed}, {self.elapsed / 60:.1f} minutes, {self.rounds} rounds", "", "attackers"]
        for kind, count in sorted(self.attackers.items()):
            lines.append(f"  {kind:24}{count:7}  {self._errors_of(kind)}".rstrip())
        lines += ["", f"{'operations':26}{'ok':>7}{'refused':>9}{'failed':>8}{'slowest':>10}  refused or failed with"]
        for name, outcomes in sorted(self._outcomes.items()):
            counts = f"{outcomes['ok']:7}{outcomes['refused']:9}{outcomes['failed']:8}"
            lines.append(f"  {name:24}{counts}{self._slowest[name]:8.2f} s  {self._errors_of(name)}".rstrip())
        lines += ["", f"violations: {len(self.violations) or 'none'}"]
        for each in self.violations:
            lines.append(f"  {each.kind}, after {each.after:.0f} s, {each.user}'s {each.box or 'machine'}: {each.what}")
            lines.append(f"    again: python -m tests.attack --seed {self.seed} --round {each.round} {self._how}")
        return "\n".join(lines) + "\n"

    def _errors_of(self, name):
        return ", ".join(f"{error} {count}" for (of, error), count in sorted(self._errors.items()) if of == name)
