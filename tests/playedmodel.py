"""A model that plays a script; see atoll.testing.playedmodel, where it lives.

`Apart` runs one as a process of its own, which outlives whoever asks it.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

from atoll.testing.playedmodel import *  # noqa: F403 - the same under another name
from atoll.testing.playedmodel import main, read_log


class Apart:
    """A played model in a process of its own: `with Apart(script, tmp_path) as server: server.url, server.requests`."""

    def __init__(self, script, directory, *, latency=0.0):
        self.log = pathlib.Path(directory) / "asked.jsonl"
        self._script = pathlib.Path(directory) / "script.json"
        self._script.write_text(json.dumps(script))
        self._latency = latency

    def __enter__(self):
        command = [sys.executable, "-m", "atoll.testing.playedmodel", "--latency", str(self._latency)]
        command += ["--script", str(self._script), "--log", str(self.log)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        assert self.url, "the played model did not start"
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    @property
    def requests(self):
        return read_log(self.log)


if __name__ == "__main__":
    main()
