"""An agent at work, without a key: its model plays a script, all the rest is real. `make demo-agent` shows it.

The model explores a file of orders, asks a second model about each comment, draws a figure, and gives an answer. Its
first answer is wrong, which the check finds out.
"""

from __future__ import annotations

import base64
import pathlib
import sys

from atoll.agent import Agent, journal
from atoll.cli.agentprogress import Progress
from atoll.cli.logs import main as logs
from atoll.testing.playedmodel import PlayedModel, calls, says

ORDERS = "month,amount,comment\n" + "".join(
    f"{month},{amount},{comment}\n"
    for month, amount, comment in [
        ("Jan", 120, "great"), ("Jan", 80, "late again"), ("Feb", 200, "perfect"), ("Feb", 40, "broken on arrival"),
        ("Mar", 310, "love it"), ("Mar", 90, "fine"), ("Apr", 260, "never again"), ("Apr", 150, "great"),
    ]
)  # fmt: skip

LOOK = """
import io
import pandas as pd
orders = pd.read_csv(io.StringIO(context))
print(orders.describe())
by_month = orders.groupby("month", sort=False)["amount"].sum()
by_month
"""
ASK = """
asked = [f"Is this comment of a customer happy or unhappy? {comment}" for comment in orders["comment"]]
orders["mood"] = llm_query_batched(asked)
print(orders.groupby("mood")["amount"].agg(["count", "sum"]))
"""
DRAW = """
import matplotlib.pyplot as plt
figure, axes = plt.subplots(figsize=(6, 3.5))
axes.bar(by_month.index, by_month.values, color="#2a7f9e")
axes.set(title="Orders by month", ylabel="amount")
plt.show()
"""
WRONG = "The best month was April, with 400."
RIGHT = "The best month was April, with 410; 3 of 8 customers were unhappy."
CHECK = """
best = by_month.idxmax(), int(by_month.max())
assert best[0][:3] in answer and str(best[1]) in answer, f"the data say {best}"
"""


def mood(request: dict) -> dict:
    """The second model: one word for a comment."""
    asked = request["messages"][-1]["content"]
    unhappy = any(word in asked for word in ("late", "broken", "never"))
    return says("unhappy" if unhappy else "happy", usage=(22, 2))


def script(request: dict) -> dict:
    """What the model says, by how often it has spoken already."""
    if not request.get("tools"):
        return mood(request)
    turn = sum(message["role"] == "assistant" for message in request["messages"])
    return [
        calls(("run_code", {"code": LOOK}), text="First I look at the data."),
        calls(("run_code", {"code": ASK}), text="Now I ask about each comment."),
        calls(("run_code", {"code": DRAW}), text="And draw the months."),
        says(WRONG),
        says(RIGHT),
    ][turn]


def main() -> None:
    print("A model (played by a script) works on a question, in a real sandbox.\n")
    progress = Progress()
    with PlayedModel(script) as server:
        agent = Agent(
            "played", base_url=server.url, sandbox={"packages": ["pandas>=2", "matplotlib"]}, validate={"code": CHECK},
            token_budget=50_000, on_event=progress,
        )  # fmt: skip
        result = agent.completion("Which month was the best, and are the customers happy?", context=ORDERS)
    progress.close()
    print(f"\nAnswer: {result.response}")
    cost = "unknown" if result.cost is None else f"${result.cost:.4f}"
    print(f"State: {result.state}, checked: {result.validated}, {result.usage.total} tokens, cost: {cost}")

    print(f"\nWhat it did, as `atoll logs {result.trajectory_id}` shows it:\n")
    sys.stdout.flush()
    logs([result.trajectory_id])

    for step in journal.shared().steps(result.trajectory_id):
        for mime, data in (step.outcome or {}).get("images", ()):
            picture = pathlib.Path(f"atoll-demo.{mime.rpartition('/')[2]}")
            picture.write_bytes(base64.b64decode(data))
            print(f"\nIts picture is in {picture}.")


if __name__ == "__main__":
    main()
