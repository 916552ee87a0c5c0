"""Checks of answers, and going on until one passes."""

from __future__ import annotations

import pytest
from tests.playedmodel import calls, says

from atoll import InvalidInput
from atoll.agent import checks

ANSWERS = [says("wrong"), says("right")]


def not_wrong(answer):
    assert answer != "wrong", "that is the wrong one"


async def awaited(answer):
    return answer == "right"


@pytest.mark.parametrize(
    ("validate", "reason"),
    [
        ("grep -q right || { echo it is not right >&2; false; }", "it is not right"),
        ({"command": 'test "$(cat)" = right'}, "[exit code 1]"),
        ({"code": "assert answer == 'right', 'not so'"}, "not so"),
        ({"code": "x = answer\nx == 'right'"}, "the last value of the check is False"),
        ({"code": "[answer] if answer == 'right' else []"}, "the last value of the check is []"),
        (not_wrong, "AssertionError: that is the wrong one"),
        (lambda answer: answer == "right", "The check said no."),
        (lambda answer: None if answer == "right" else "say right", "say right"),
        (awaited, "The check said no."),
    ],
)
def test_an_answer_counts_when_it_passes(played, validate, reason):
    server, agent = played(ANSWERS)
    result = agent.completion("go", validate=validate)
    assert (result.response, result.validated, result.state) == ("right", True, "completed")
    assert reason in server.requests[1].body["messages"][-1]["content"]
    attempts = [step.outcome["passed"] for step in agent.trajectory(result.trajectory_id).steps if step.kind == "check"]
    assert attempts == [False, True]


class LikeNumpy:
    """np.False_ is no bool, and is false all the same."""

    def __bool__(self):
        return False


def test_what_is_false_fails_whatever_it_is(played):
    _, agent = played([says("a")] * 3, max_iterations=2)
    result = agent.completion("go", validate=lambda _: LikeNumpy())
    assert (result.limit, result.validated, result.response) == ("max_iterations", False, "a")


def test_a_check_sees_the_sandbox_and_does_not_change_it(played):
    server, agent = played(
        [
            calls(("run_code", {"code": "x = 1; open('f', 'w').write('kept')"})),
            says("first"),
            calls(("run_code", {"code": "(x, open('f').read())"})),
            says("second"),
        ]
    )
    spoil = {
        "code": "assert x == 1 and open('f').read() == 'kept'\nx = 2\n"
        "open('f', 'w').write('spoilt')\nassert answer == 'second'"
    }
    assert agent.completion("go", validate=spoil).response == "second"
    assert server.requests[3].body["messages"][-1]["content"] == "(1, 'kept')"


@pytest.mark.parametrize(
    "check", [5, {}, {"command": 1}, {"code": "x", "command": "y"}, {"code": "def"}, {"shell": "x"}]
)
def test_what_is_no_check_is_refused(check):
    with pytest.raises(InvalidInput):
        checks.described(check)


def test_a_function_that_judges_must_be_given_again(played):
    from tests.playedmodel import fails

    _, agent = played([calls(("run_code", {"code": "1"})), [fails(401, "no"), says("ok")]])
    with pytest.raises(Exception, match="401"):
        agent.completion("go", validate=lambda answer: answer == "ok")
    id = agent.latest_trajectory().id
    with pytest.raises(InvalidInput, match="validate="):
        agent.resume(id)
    assert agent.resume(id, validate=lambda answer: answer == "ok").validated
