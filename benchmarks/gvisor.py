"""`runsc run` by itself: the same bundle with the same guest, to the end of the same first command."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from atoll.drivers import gvisor_bundle
from atoll.drivers.gvisor import GVisorDriver
from atoll.engine.steward import asking, tree
from atoll.engine.steward.lines import switchboard
from atoll.engine.steward.wall import FILES
from atoll.io import BlockingIO
from atoll.policy.spec import make_spec

from .measure import median

_PATIENCE = 60.0


def bare(rounds: int) -> float:
    """Milliseconds, the median."""
    return median([_once() for _ in range(rounds)])


def _once() -> float:
    with tempfile.TemporaryDirectory(prefix="at-") as place:
        box = f"{place}/box"
        Path(f"{box}/{FILES}").mkdir(parents=True)
        job = GVisorDriver(BlockingIO()).prepare(make_spec(), box, None)
        places = [gvisor_bundle.Place(*each) for each in job["places"]]
        for each in places:
            if each.writable:
                Path(each.source).mkdir()
                os.chown(each.source, job["uid"], job["uid"])
        config = gvisor_bundle.config(job["root"], job["command"], places, job["disk"])
        Path(f"{box}/config.json").write_text(json.dumps(config))
        options = gvisor_bundle.arguments(f"{place}/state", job["platform"], rootless=job["rootless"])
        command = [job["runsc"], *options, "run", f"-bundle={box}", "bare"]
        start = time.perf_counter()
        reader, their_writer = os.pipe()
        their_reader, writer = os.pipe()
        running = subprocess.Popen(command, stdin=their_reader, stdout=their_writer)
        os.close(their_reader)
        os.close(their_writer)
        control = switchboard(reader, writer)
        if not asking.ask(control, {"op": "exec", "argv": ["/bin/sh", "-c", "true"]}, _PATIENCE):
            raise RuntimeError("runsc did not run the guest")
        took = (time.perf_counter() - start) * 1e3
        control.close()
        running.kill()
        running.wait()
        tree.kill_all(os.getpid())
        return took
