"""Where the engine keeps things: below the state directory on the host, and inside a sandbox.

```
<home>/jail/run/<id>            the keeper's socket
<home>/jail/run/zygote-<tag>    the zygote's socket, and its lock and log
<home>/jail/run/view-<digest>   the socket of a curator, who keeps a view of a source ready
<home>/jail/run/root-<tag>      where the zygote, in its own mount namespace, keeps the template root
<home>/jail/boxes/<id>/         everything of one sandbox; it exists as long as anything of it does
    work/ tmp/ home/            its writable places
    upper/ scratch/             the layer over `source=`, and overlayfs' own directory
    disk                        the file behind a kernel-enforced disk limit
    stopped                     written by `stop` and `checkpoint`: the time until which the files are kept
    stack                       the layers below these; see `layers`
    network                     something on the host's network is named after it; see `network`
<home>/jail/images/<digest>/    unpacked `image=` archives
<home>/jail/layers/  snapshots/ what snapshots and forks share; see `layers`
```
"""

from __future__ import annotations

import os

USER, GROUP = 1000, 1000
USER_NAME, HOME_INSIDE, HOST_NAME = "user", "/home/user", "atoll"
OLD_ROOT = "/.host"
WORKSPACE = "/workspace"
VIEWS = "view-"
# Where the packages of a sandbox are, and what of the host a workshop is shown.
PACKAGES, SHOWN = "/packages", "/shown"
WRITABLE = ("work", "tmp", "home", "upper", "scratch")


def targets(workdir: str) -> dict[str, str]:
    """Where the writable places are seen, by name; /tmp is the last. A workspace that is the home takes its place."""
    home = {} if workdir == HOME_INSIDE else {"home": HOME_INSIDE}
    return {**home, "work": workdir, "tmp": "/tmp"}


def network_mark(box: str) -> str:
    """The file that tells that something on the host's network is named after a sandbox, for whoever cleans up."""
    return f"{box}/network"


class Layout:
    """The paths of one state directory. `wall` is whose sandboxes they are: those of two never meet."""

    def __init__(self, home: str, wall: str = "jail") -> None:
        self.home = home
        self.wall = wall
        self.top = f"{home}/{wall}"
        self.run = f"{self.top}/run"
        self.boxes = f"{self.top}/boxes"
        self.images = f"{self.top}/images"
        self.layers = f"{self.top}/layers"
        self.snapshots = f"{self.top}/snapshots"

    def make(self) -> None:
        for path in (self.top, self.run, self.boxes, self.images, self.layers, self.snapshots):
            os.makedirs(path, mode=0o700, exist_ok=True)

    def box(self, sandbox: str) -> str:
        return f"{self.boxes}/{sandbox}"

    def socket(self, sandbox: str) -> str:
        return f"{self.run}/{sandbox}"
