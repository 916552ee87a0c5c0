"""Limits: each ends a run with the best answer so far, and says which it was."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from tests.playedmodel import calls, says
from tests.thorough import examples

from atoll import InvalidInput
from atoll.agent.limits import LEAST_REPLY, Ledger, LimitReached, Limits, Price, Spent

ENDLESS = [calls(("run_code", {"code": "1"}), text=f"so far {n}") for n in range(60)]


@pytest.mark.parametrize(
    ("limits", "name", "response"),
    [
        ({"max_iterations": 3}, "max_iterations", "so far 2"),
        ({"max_tool_calls": 2}, "max_tool_calls", "so far 2"),
        ({"token_budget": 3000}, "token_budget", None),
    ],
)
def test_a_limit_ends_a_run_with_what_there_is(played, limits, name, response):
    _, agent = played(ENDLESS, **limits)
    result = agent.completion("go")
    assert (result.state, result.limit) == ("limited", name)
    assert not result.success
    assert response in (None, result.response)
    assert result.response.startswith("so far")
    assert result.usage.total <= limits.get("token_budget", 1e9)
    assert agent.status(result.trajectory_id).limit == name


def test_the_fourth_level_works_and_the_deepest_answers_with_a_plain_call(played):
    deeper = calls(("run_code", {"code": "print(rlm_query('go deeper', 'ctx'))"}))

    def script(request):
        if not request.get("tools"):
            return says("bottom")
        answers = [message for message in request["messages"] if message["role"] == "tool"]
        return says(f"[{answers[-1]['content'].strip()}]") if answers else deeper

    _, agent = played(script, max_subcalls=50)
    result = agent.completion("go")
    assert result.response == "[[[[bottom]]]]", "four levels, and the fourth asks a plain model"
    trajectory = agent.trajectory(result.trajectory_id)
    depth = 0
    while trajectory.parts:
        depth, trajectory = depth + 1, trajectory.parts[0]
    assert depth == 3
    assert result.usage.total > 0


def test_tokens_of_helpers_count_for_those_who_asked_them(played):
    def script(request):
        first = request["messages"][-1]["content"]
        if not request.get("tools"):
            return says("sub", usage=(1000, 100))
        if any(message["role"] == "tool" for message in request["messages"]):
            return says("end", usage=(10, 1))
        if first == "helper":
            return says("helped", usage=(500, 50))
        return calls(("run_code", {"code": "llm_query('a')\nrlm_query('helper')"}), usage=(10, 1))

    _, agent = played(script)
    result = agent.completion("go")
    assert result.usage.total == 1100 + 550 + 11 + 11
    status = agent.status(result.trajectory_id)
    assert status.usage == result.usage


def test_sub_calls_are_limited_and_the_code_is_told(played):
    server, agent = played(
        {
            "rules": [
                {"when": {"has_tools": False}, "replies": [says("s")]},
                {
                    "replies": [
                        calls(("run_code", {"code": "a = llm_query_batched(['x'] * 3)\nllm_query_batched(['y'] * 2)"})),
                        calls(("run_code", {"code": "len(a)"})),
                        says("3"),
                    ]
                },
            ]
        },
        max_subcalls=4,
    )
    assert agent.completion("go").success
    assert "2 more calls were asked for, and of 4 that code may make in this run 1 are left" in str(
        server.requests[-2].body["messages"][-1]["content"]
    )
    assert server.requests[-1].body["messages"][-1]["content"] == "3"


def test_calls_side_by_side_wait_for_room_in_a_small_budget(played):
    """Each may take as much as a reply can; that all of them together could pass the budget is no reason to fail."""
    _, agent = played(
        {
            "rules": [
                {"when": {"has_tools": False}, "replies": [says("s", usage=(5, 5))]},
                {
                    "replies": [
                        calls(("run_code", {"code": "FINAL(str(llm_query_batched(['x'] * 12)))"}), usage=(100, 10))
                    ]
                },
            ]
        },
        token_budget=8000,
    )
    result = agent.completion("go")
    assert result.response == str(["s"] * 12)
    assert result.usage.total == 110 + 12 * 10


def test_the_time_of_a_cell_is_its_own_and_not_that_of_the_models_it_asks(played):
    server, agent = played(
        {
            "rules": [
                {"when": {"has_tools": False}, "replies": [says("slow", delay=2.5)]},
                {
                    "replies": [
                        calls(("run_code", {"code": "llm_query('a')"})),
                        calls(("run_code", {"code": "x = 7\nwhile True: pass"})),
                        calls(("run_code", {"code": "x"})),
                        says("ok"),
                    ]
                },
            ]
        },
        step_timeout=2,
    )
    assert agent.completion("go").success
    heard = [request.body["messages"][-1]["content"] for request in server.requests if request.body.get("tools")]
    assert heard[1] == "'slow'"
    assert "ran out of time after 2 s" in heard[2]
    assert heard[3] == "7", "an interrupted cell keeps its variables"


def test_an_explicit_limit_on_unknown_costs_is_refused(played):
    _, agent = played([says("")], max_cost=1.0)
    with pytest.raises(InvalidInput, match="price of played is not known"):
        agent.completion("go")


def test_costs_are_limited_where_prices_are_known(played):
    # gpt-4o costs dollars a million tokens, which every table of prices knows.
    from atoll.agent import Agent

    server, _ = played([calls(("run_code", {"code": "1"}), text="so far", usage=(100_000, 10))] * 9)
    agent = Agent("gpt-4o", base_url=server.url, api_key="k", token_budget=1_000_000, max_cost=0.3)
    result = agent.completion("go")
    assert result.limit == "max_cost"
    assert 0.2 < result.cost < 0.6
    assert result.response == "so far"


@examples(400, 60)
@given(
    budget=st.integers(0, 20_000),
    wanted=st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 5000), st.booleans()), max_size=30),
)
def test_calls_side_by_side_keep_a_budget_together(budget, wanted):
    """Whatever is under way at once: as long as replies keep to what they were allowed, the budget holds."""
    above = Ledger(Limits(token_budget=budget))
    ledger = Ledger(Limits(token_budget=budget * 2), above)
    under_way = []
    for prompt, reply, settle_one in wanted:
        try:
            under_way.append((ledger.allow(prompt, Price()), reply))
        except LimitReached:
            assert above.tokens + sum(a.prompt + a.reply for a, _ in under_way) + prompt + LEAST_REPLY > budget
        if settle_one and under_way:
            allowance, said = under_way.pop(0)
            ledger.settle(allowance)
            ledger.charge(Spent(allowance.prompt, min(said, allowance.reply)))
    for allowance, said in under_way:
        ledger.settle(allowance)
        ledger.charge(Spent(allowance.prompt, min(said, allowance.reply)))
    assert above.tokens == ledger.tokens <= max(budget, 0)
    assert above.aside_tokens == ledger.aside_tokens == 0


def test_an_unknown_price_makes_the_whole_unknown():
    ledger = Ledger(Limits())
    ledger.charge(Spent(1, 1, 0, 0.5))
    assert ledger.cost == 0.5
    ledger.charge(Spent(1, 1, 0, None))
    assert ledger.cost is None
    assert ledger.known_cost == 0.5
