"""What a guest is told when it starts."""

from __future__ import annotations

import json
from typing import Dict, List, NamedTuple


class Config(NamedTuple):
    """The sandbox as the guest sees it.

    Args:
        workdir: where relative paths, commands and cells start; a path inside `root`.
        env: the whole environment of commands and contexts.
        root: every path of the API is looked up inside this directory.
        root_inside: how code in the sandbox calls that directory, if not so.
        home: `HOME`, unless `env` has one.
        python_path: `sys.path` of contexts after `""`; empty means that of the guest.
        python: what `sys.executable` says in a context.
        shell: what `exec` starts when it is given no command.
        state: where the variables of contexts are kept; a directory in `home` unless given.
        kills: a file of the sandbox's own control group that counts as `oom_kill` whom the kernel killed for memory.
        cloudpickle: the directory of that package, for a guest that is started by exec.
        memory: bytes that the guest itself keeps the sandbox below; 0 where the kernel kills who takes too much.
        kernel: the Jupyter kernel that runs Python, in the place of the guest's own contexts.
        language: of a context that is made without one.
        image: whether its programs are those of an image, and not the host's.
        closed: whether a guest that is started by exec lets nobody of its user look into it, nor change it.
    """

    workdir: str = "/workspace"
    env: Dict[str, str] = {}  # noqa: RUF012  # never changed
    root: str = "/"
    root_inside: str = ""
    home: str = "/workspace"
    python_path: List[str] = []  # noqa: RUF012  # same
    python: str = "/usr/bin/python3"
    shell: str = "/bin/sh"
    state: str = ""
    cloudpickle: str = ""
    memory: int = 0
    kernel: str = ""
    language: str = "python"
    kills: str = ""
    closed: bool = False
    image: bool = False

    @classmethod
    def parse(cls, text: str) -> Config:
        """From the JSON object of the command line.

        Raises:
            ValueError, TypeError: it is not one, or has unknown members.
        """
        return cls(**json.loads(text))

    def state_directory(self) -> str:
        return self.state or self.home + "/.atoll/state"

    def environment(self) -> Dict[str, str]:
        return {"HOME": self.home, **self.env}
