"""Starts a guest by exec, for walls that have no zygote.

`python -I -S …/atoll/guest/__main__.py --control-fd N --config JSON` needs only the directories
`atoll/guest` and `atoll/wire`.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import List


def main(argv: List[str]) -> None:
    """Raises SystemExit for a command line that it does not understand."""
    options = dict(zip(argv[::2], argv[1::2]))
    if set(options) != {"--control-fd", "--config"} or not options["--control-fd"].isdigit():
        raise SystemExit("usage: __main__.py --control-fd N --config JSON")
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.insert(0, package)
    from atoll.guest import borrowed
    from atoll.guest.config import Config
    from atoll.guest.server import Server

    sys.path.remove(package)
    control = socket.socket(fileno=int(options["--control-fd"]))
    os.set_inheritable(control.fileno(), False)
    config = Config.parse(options["--config"])
    if config.cloudpickle:
        borrowed.lend(config.cloudpickle)
    Server(control, config).run()


if __name__ == "__main__":
    main(sys.argv[1:])
