"""A program that makes, snapshots, forks, rolls back, deletes and destroys at random, beside others that do the same.

python -m tests.snapshots.churn SEED STEPS
"""

from __future__ import annotations

import random
import sys

from atoll import AtollError, CommandFailed, Sandbox, Snapshots

WRITE = """
import hashlib, os, random, sys
chance = random.Random(sys.argv[1])
for _ in range(6):
    name = f"d{chance.randrange(3)}/f{chance.randrange(6)}"
    os.makedirs(os.path.dirname(name), exist_ok=True)
    if chance.random() < 0.2 and os.path.exists(name):
        os.remove(name)
    else:
        open(name, "wb").write(chance.randbytes(chance.randrange(20_000)))
lines = []
for base, _, files in os.walk("."):
    lines += [f"{hashlib.sha256(open(os.path.join(base, f), 'rb').read()).hexdigest()}  {base}/{f}" for f in files
              if f != "sums"]
open("sums", "w").write("\\n".join(sorted(lines)) + "\\n")
"""
CHECK = """
import hashlib, os
told = dict(reversed(line.split("  ")) for line in open("sums").read().splitlines())
found = {f"{base}/{f}": hashlib.sha256(open(os.path.join(base, f), "rb").read()).hexdigest()
         for base, _, files in os.walk(".") for f in files if f != "sums"}
assert found == told, (found, told)
"""


def check(box):
    """Raises CommandFailed unless its files are those of one moment, and all of them."""
    box.run(["python3", "-c", CHECK], check=True)


class Churn:
    def __init__(self, seed):
        self._seed = seed
        self._chance = random.Random(seed)
        self._own = []

    def step(self, number):
        choices = [self._create, self._begin, self._write, self._snapshot, self._snapshot, self._fork, self._rollback,
                   self._delete, self._destroy, self._stop]  # fmt: skip
        try:
            self._chance.choice(choices)(f"{self._seed}-{number}")
        except CommandFailed:
            raise
        except AtollError:
            pass  # others delete what we are about to use, and somebody kills our keepers

    def _keep(self, *boxes):
        self._own += boxes
        while len(self._own) > 4:
            self._own.pop(0).destroy()

    def _any(self):
        if not self._own:
            self._create("first")
        return self._chance.choice(self._own)

    def _create(self, token):
        box = Sandbox.create(lifetime=600)
        self._keep(box)
        self._fill(box, token)

    def _fill(self, box, token):
        """What is written by half is none of anybody's business."""
        try:
            box.run(["python3", "-c", WRITE, token], check=True)
        except AtollError:
            self._own = [each for each in self._own if each is not box]
            box.destroy()
            raise

    def _begin(self, token):
        known = [each.name for each in Snapshots().list()]
        if known:
            box = Sandbox.create(snapshot=self._chance.choice(known), lifetime=600)
            self._keep(box)
            check(box)
            self._fill(box, token)

    def _write(self, token):
        self._fill(self._any(), token)

    def _snapshot(self, token):
        # Names that others choose, too.
        self._any().snapshot(f"n{self._chance.randrange(12)}")

    def _fork(self, token):
        self._keep(*self._any().fork(2))

    def _rollback(self, token):
        box = self._any()
        known = [each.name for each in Snapshots().list(sandbox=box.id)]
        if known:
            box.rollback(self._chance.choice(known))
            check(box)

    def _delete(self, token):
        Snapshots().delete(f"n{self._chance.randrange(12)}")

    def _destroy(self, token):
        if self._own:
            self._own.pop(self._chance.randrange(len(self._own))).destroy()

    def _stop(self, token):
        box = self._any()
        box.stop()
        box.resume()
        check(box)


if __name__ == "__main__":
    churn = Churn(sys.argv[1])
    for number in range(int(sys.argv[2])):
        churn.step(number)
