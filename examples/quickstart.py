"""A tour of atoll in two seconds. `make run` shows it."""

from __future__ import annotations

import time

from atoll import Sandbox, run


def main() -> None:
    print("1. A command in a sandbox of its own, which is gone afterwards")
    print("  ", run("echo hello from $(hostname), as $(whoami)").stdout.strip())

    start = time.perf_counter()
    with Sandbox.create(resources={"memory": "256M", "pids": 64}, labels={"example": "quickstart"}) as sandbox:
        took = (time.perf_counter() - start) * 1000
        print(f"\n2. A sandbox that stays for a while: {sandbox.id}, made in {took:.1f} ms")
        print("   its walls:", ", ".join(sandbox.info.walls))

        print("\n3. Output as it comes")
        for chunk in sandbox.stream("for n in 1 2 3; do echo line $n; sleep 0.1; done"):
            print("  ", chunk.text.strip())

        print("\n4. Python that remembers")
        sandbox.run_code("import statistics; heights = [1.62, 1.75, 1.81]")
        print("   mean:", sandbox.run_code("round(statistics.mean(heights), 2)").text)
        print("   an error is data:", sandbox.run_code("heights[7]").error.value)

        print("\n5. Files")
        sandbox.files.write("notes/hello.txt", "written from outside\n")
        sandbox.run("echo and from inside >> notes/hello.txt")
        print("  ", sandbox.files.read("notes/hello.txt").strip().replace("\n", ", "))

        print("\n6. Code that misbehaves")
        late = sandbox.run("sleep 60", timeout=0.2)
        print(f"   too slow: killed after {late.duration:.1f} s, timed_out={late.timed_out}")
        greedy = sandbox.run(["python3", "-c", "x = 'x' * (1 << 30)"])
        print(f"   too greedy: a gigabyte in a sandbox of 256 MB ends with {greedy.exit_code}")
        spy = sandbox.run("cat /etc/shadow")
        print("   too curious:", spy.stderr.strip().splitlines()[-1])
        caller = sandbox.run(["python3", "-c", "import socket; socket.create_connection(('1.1.1.1', 80), 2)"])
        print("   too talkative:", caller.stderr.strip().splitlines()[-1])

        print(f"\n7. And it still answers: {sandbox.run('echo yes').stdout.strip()}")
    print("   now it is destroyed, and nothing of it is left:", Sandbox.find({"example": "quickstart"}))


if __name__ == "__main__":
    main()
