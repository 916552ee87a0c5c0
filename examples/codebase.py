"""An agent at work on a project: rules, a review, time travel, twins. `make run` shows it after the tour."""

from __future__ import annotations

import os
import tempfile
import time

from atoll import Sandbox, Snapshots


def make_project(root: str) -> None:
    for name, text in {
        "src/prices.py": "def total(prices):\n    return sum(prices)\n",
        ".env": "TOKEN=do-not-read\n",
        "output/.keep": "",
    }.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def main() -> None:
    with tempfile.TemporaryDirectory() as project:
        make_project(project)
        rules = [("**", "read"), ("/src/**", "write"), ("/output/**", "write"), (".env*", "none")]
        with Sandbox.from_local(project, rules) as sandbox:
            print("1. What the rules show of a project")
            print("  ", sandbox.run("find . -type f | sort").stdout.split())
            print("   .env is", sandbox.explain(".env").level, "to it:", sandbox.run("cat .env").stderr.strip())

            print("\n2. What the agent changed stays in its sandbox until you say so")
            sandbox.run("sed -i 's/sum(prices)/round(sum(prices), 2)/' src/prices.py; echo 3.5 > output/result")
            for change in sandbox.diff():
                print(f"   {change.kind:8} {change.path}  +{change.added_lines} -{change.removed_lines}")
            print("   applied:", sandbox.apply(["src"]).applied)

            print("\n3. Back in time, with files and variables")
            sandbox.run_code("prices = [1.5, 2.0]")
            start = time.perf_counter()
            name = sandbox.snapshot().name
            print(f"   a snapshot took {(time.perf_counter() - start) * 1000:.1f} ms")
            sandbox.run_code("prices.clear()")
            sandbox.run("rm -r src")
            sandbox.rollback(name)
            print("  ", sandbox.run_code("prices").text, sandbox.run("ls src").stdout.split())

            print("\n4. Three twins go their own ways from here")
            twins = sandbox.fork(3)
            print("   each with the files and variables of its parent")
            for number, twin in enumerate(twins):
                print("  ", twin.run_code(f"prices.append({number}); prices").text)
                twin.destroy()
            print("   and the parent still has", sandbox.run_code("prices").text)
        Snapshots().delete(name)


if __name__ == "__main__":
    main()
