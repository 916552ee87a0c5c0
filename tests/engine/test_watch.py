"""What a keeper looks at now and then: a little at a time, and the less often the longer it takes."""

from __future__ import annotations

import time

import pytest

from atoll.engine.watch import Watch, advance


class Slow(Watch):
    """Each look has so many steps of so many seconds."""

    def __init__(self, steps, seconds, pause=0.0):
        super().__init__()
        self.wanted, self.seconds, self.pause = steps, seconds, pause
        self.done = 0

    def _steps(self):
        for _ in range(self.wanted):
            time.sleep(self.seconds)
            self.done += 1
            yield
        return self.pause


def test_a_short_look_is_done_at_once_and_then_there_is_a_pause():
    watch = Slow(3, 0, pause=5.0)
    watch.look(time.monotonic())
    assert watch.done == 3
    assert 4.0 < watch.due(time.monotonic()) <= 5.0
    watch.look(time.monotonic())
    assert watch.done == 3  # it is not due


def test_a_long_look_is_left_and_gone_on_with():
    watch = Slow(40, 0.005)
    looks = 0
    while watch.done < 40:
        assert watch.due(time.monotonic()) == 0.0
        watch.look(time.monotonic())
        looks += 1
    assert 2 <= looks <= 40
    watch.look(time.monotonic())
    # Forty steps took a fifth of a second at least: it rests for a multiple of that.
    assert watch.due(time.monotonic()) > 0.5


def test_a_look_that_fails_is_begun_anew():
    watch = Slow(1, 0)
    watch.wanted = None
    with pytest.raises(TypeError):
        watch.look(time.monotonic())
    watch.wanted = 1
    watch.look(time.monotonic())
    assert watch.done == 1


def test_a_step_is_made_however_long_it_takes():
    def steps():
        time.sleep(0.05)
        yield
        return "done"

    going = steps()
    assert advance(going) is None
    assert advance(going) == "done"
