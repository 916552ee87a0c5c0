"""The loop's timers."""

from atoll.guest.loop import Loop


def test_timers_come_in_their_order_and_cancelled_ones_do_not():
    loop, told = Loop(), []
    loop.after(0.02, lambda: told.append("second"))
    loop.after(0.01, lambda: told.append("first"))
    loop.after(0.015, lambda: told.append("never")).cancel()
    loop.after(0.03, loop.stop)
    loop.run()
    assert told == ["first", "second"]


def test_timers_that_are_cancelled_long_before_their_time_take_no_memory():
    loop, told = Loop(), []
    loop.after(0.01, lambda: told.append("kept"))
    for _ in range(10_000):
        timer = loop.after(3600, told.append)
        timer.cancel()
        timer.cancel()
    assert len(loop._timers) < 200
    loop.after(0.02, loop.stop)
    loop.run()
    assert told == ["kept"]


def test_a_timer_that_has_come_can_still_be_cancelled():
    loop = Loop()
    timer = loop.after(0, loop.stop)
    loop.run()
    timer.cancel()
    assert timer.callback is None


def test_one_broken_callback_does_not_end_the_others(capsys):
    loop = Loop()
    loop.soon(lambda: 1 / 0)
    loop.after(0.01, loop.stop)
    loop.run()
    assert "ZeroDivisionError" in capsys.readouterr().err
