"""Many snapshots in a row: old layers become one, in the background, and nobody sees a difference."""

from __future__ import annotations

import json
import os

import pytest
from tests import thorough
from tests.snapshots import kinds

from atoll import Busy, Sandbox
from atoll.engine.layers import MOST, Layers, Stack
from atoll.engine.layout import Layout
from atoll.engine.merging import ENOUGH, RECENT, Merged, chosen, shortened

CHANGE = """
import os, random, shutil, sys
chance = random.Random(sys.argv[1])
for _ in range(12):
    name = f"d{chance.randrange(4)}/e{chance.randrange(3)}/f{chance.randrange(4)}"
    top = os.path.dirname(os.path.dirname(name))
    dice = chance.random()
    if dice < 0.5:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        open(name, "w").write(str(chance.random()))
    elif dice < 0.65 and os.path.exists(name):
        os.remove(name)
    elif dice < 0.75 and os.path.isdir(top):
        shutil.rmtree(top)
    elif dice < 0.85 and os.path.isdir(top) and not os.path.exists(top + "-moved"):
        try:
            os.rename(top, top + "-moved")
        except OSError:
            pass
    elif dice < 0.95 and os.path.isdir(os.path.dirname(name)):
        os.chmod(os.path.dirname(name), chance.choice([0o700, 0o755]))
    else:
        if os.path.isdir(top): shutil.rmtree(top)
        if not os.path.lexists(top): open(top, "w").write("a file now"); os.remove(top)
    open(f"/tmp/t{chance.randrange(5)}", "w").write(name)
"""


def stack_of(home, box):
    return Layers(Layout(home)).stack(box.id)


def push(box, name=None):
    """A snapshot; one that must wait for old layers to become one is tried again."""
    while True:
        try:
            return box.snapshot(name)
        except Busy as busy:
            if "layers already" not in str(busy):
                raise


@pytest.mark.timeout(300)
@pytest.mark.parametrize("with_source", thorough.turns([False, True]))
def test_old_layers_become_one_and_nothing_changes(make, snapshots, home, tmp_path, eventually, with_source):
    wishes = {}
    if with_source:
        for number in range(4):
            (tmp_path / "source" / f"d{number}" / "e0").mkdir(parents=True)
            (tmp_path / "source" / f"d{number}" / "e0" / "f0").write_text("from the source")
        for each in (tmp_path, *tmp_path.parents[:2]):
            each.chmod(0o755)
        wishes.update(source=tmp_path / "source", preset="full-access")
    box = make(**wishes)
    longest = 0
    for number in range(ENOUGH + 14):
        box.run(["python3", "-c", CHANGE, str(number)], check=True)
        push(box, "kept")
        longest = max(longest, len(stack_of(home, box).layers))
        if number == 5:
            early = kinds.tell(box)
            push(box, "early")
        snapshots.delete("kept")
        if number % 7 == 6:
            told = kinds.tell(box)
            eventually(lambda: not _is_merging(home, box))
            assert kinds.tell(box) == told
    assert longest > ENOUGH, "the control: there were many"
    # How far it got meanwhile depends on how busy this machine is.
    while len(stack_of(home, box).layers) > ENOUGH:
        eventually(lambda: not _is_merging(home, box))
        push(box, "kept")
        snapshots.delete("kept")
    push(box, "last")
    told = kinds.tell(box)
    assert kinds.tell(make(snapshot="last")) == told
    assert kinds.tell(make(snapshot="early")) == early
    box.stop()
    box.resume()
    assert kinds.tell(box) == told
    box.rollback("early")
    assert kinds.tell(box) == early


def _is_merging(home, box):
    path = f"{home}/jail/boxes/{box.id}/merged"
    if not os.path.exists(path):
        return False
    with open(path) as file:
        return not json.load(file)["ready"]


@pytest.mark.timeout(300)
def test_more_snapshots_than_overlayfs_could_stand_on(make, snapshots, home):
    box = make()
    for number in range(MOST + 5):
        box.files.write("count", str(number))
        push(box, f"s{number}")
        assert len(stack_of(home, box).layers) <= MOST
    for number in (0, 30, MOST + 4):
        with Sandbox.create(snapshot=f"s{number}") as one:
            assert one.files.read("count") == str(number)
    assert box.files.read("count") == str(MOST + 4)


def row(first, last):
    return tuple(f"ly-{number}" for number in range(first, last, -1))


def test_which_are_merged():
    stack = Stack(row(30, 0), row(30, 0), row(30, 0))
    assert chosen(stack, set(row(30, 0))) == row(30 - RECENT, 0)
    assert chosen(stack, set(row(15, 10)) | set(row(5, 2))) == row(15, 10)
    assert chosen(stack, set()) == ()
    longer = Stack(row(50, 0), row(50, 0), row(50, 0))
    assert chosen(longer, set()) == row(50 - RECENT, 0)


def test_one_takes_their_place_where_they_are_in_a_row():
    merged = Merged(row(6, 2), "ly-m", ready=True)
    stack = Stack(row(9, 0), row(9, 0), row(9, 0), "disk-x")
    short = ("ly-9", "ly-8", "ly-7", "ly-m", "ly-2", "ly-1")
    assert shortened(stack, merged) == Stack(short, short, short, "disk-x")
    assert shortened(stack, merged._replace(ready=False)) == stack
    assert shortened(stack, None) == stack
    discarded = stack._replace(work=row(9, 4))
    assert shortened(discarded, merged).work == ("ly-9", "ly-8", "ly-7", "ly-m")
    assert shortened(stack._replace(work=()), merged).work == ()
    assert shortened(Stack(row(9, 6), row(9, 6), row(9, 6)), merged).layers == row(9, 6)
