"""A Python process that plays a context: runs cells in `__main__`, freezes or thaws, says what it found.

Started with the paths of the package and of cloudpickle ("" for none) and a job in JSON on its standard input:
`{"path", "thaw": bool, "cells": [...], "freeze": bool, "seconds"?, "ask": [expressions]}`.
"""

import json
import os
import sys
import types

source, lent = sys.argv[1:3]
package = types.ModuleType("atoll")
package.__path__ = [os.path.join(source, "atoll")]
sys.modules["atoll"] = package
from atoll.guest import borrowed, freezing  # noqa: E402
from atoll.guest.refusal import Refused  # noqa: E402

if lent:
    borrowed.lend(lent)
for name in [name for name in sys.modules if name.split(".")[0] == "atoll"]:
    del sys.modules[name]
job = json.load(sys.stdin)
main = types.ModuleType("__main__")
main.__dict__["__builtins__"] = sys.modules["builtins"]
sys.modules["__main__"] = main
start = freezing.Start.now()
said = {}
namespace = main.__dict__
try:
    if job.get("thaw"):
        report = freezing.thaw(namespace, job["path"])
        said["thawed"] = {"saved": report.saved, "lost": report.lost, "flags": report.flags}
    for cell in job.get("cells", ()):
        exec(compile(cell, "<cell>", "exec"), namespace)
    if job.get("freeze"):
        report = freezing.freeze(namespace, job["path"], start, flags=7, seconds=job.get("seconds"))
        said["frozen"] = report.wire()
    said["answers"] = [repr(eval(expression, namespace)) for expression in job.get("ask", ())]
    said["modules"] = sorted(name for name in sys.modules if "cloudpickle" in name or name.startswith("atoll"))
except Refused as refusal:
    said["refused"] = [refusal.code, refusal.message]
sys.stdout.write(json.dumps(said))
