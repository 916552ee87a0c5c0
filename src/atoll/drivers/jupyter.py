"""Code in Jupyter kernels of this machine, which are started for it. No wall: see `inprocess`.

Python is the kernel `python3`, or the one that `$ATOLL_JUPYTER_KERNEL` names if that is one of Python's. Another one is
what code without a language runs in. Every other kernel is there as the language `jupyter:NAME`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ..engine.steward.unwalled import UnwalledDriver
from ..errors import DriverMissing, Unsupported, WallUnavailable
from ..types import Layer, Spec

KERNEL = "ATOLL_JUPYTER_KERNEL"
_DEFAULT = "python3"
# A kernel that is started ahead takes about so much, beside what is run.
_ROOM = 256 << 20
_AHEAD = (
    "jupyter_client.manager",
    "jupyter_client.blocking.client",
    "ipykernel.kernelapp",
    "ipykernel.zmqshell",
    "IPython.core.completerlib",
    "IPython.extensions.storemagic",
    "tornado.platform.asyncio",
)
_NEEDED = ("jupyter_client", "ipykernel")


class JupyterDriver(UnwalledDriver):
    name = "jupyter"
    summary = "no wall: code in Jupyter kernels that are started on this machine; no security boundary"

    def warmth(self) -> tuple[str, str]:
        return "atoll.engine.steward.preloading:preload", " ".join(_AHEAD)

    def configure(self, spec: Spec, config: dict[str, Any]) -> dict[str, Any]:
        if missing := _missing():
            raise DriverMissing(
                f"The jupyter driver needs {' and '.join(missing)}, which is not installed.",
                hint="Run: pip install 'atoll[jupyter]'",
            )
        kernel = _described(os.environ.get(KERNEL) or _DEFAULT)
        return {**config, **kernel, "env": {"JUPYTER_PATH": _jupyter_path(), **config["env"]}}

    def prepare(self, spec: Spec, box: str, resume: Any) -> dict[str, Any]:
        job = super().prepare(spec, box, resume)
        # A kernel has a dozen threads, each with room of its own that it does not use.
        limits = {**job["limits"], "sparse": True}
        return {**job, "limits": limits, "prefork": spec.resources.memory >= _ROOM}

    async def health(self) -> list[Layer]:
        missing = _missing()
        kernels = {} if missing else _kernels()
        wanted = os.environ.get(KERNEL) or _DEFAULT
        return [
            Layer(
                "jupyter",
                ready=not missing,
                detail=f"missing: {', '.join(missing)}" if missing else "jupyter_client and ipykernel are installed",
                fix="pip install 'atoll[jupyter]'" if missing else None,
            ),
            Layer(
                "kernel",
                ready=wanted in kernels,
                detail=f"{wanted}; there are: {', '.join(sorted(kernels)) or 'none'}",
                fix=None if wanted in kernels else f"{sys.executable} -m ipykernel install --user --name {wanted}",
            ),
            *(await super().health()),
        ]


def _missing() -> list[str]:
    from importlib.util import find_spec

    return [name for name in _NEEDED if find_spec(name) is None]


def _kernels() -> dict[str, str]:
    """The directories of all kernels that this user has, by name."""
    from jupyter_client.kernelspec import KernelSpecManager

    found: dict[str, str] = KernelSpecManager().find_kernel_specs()
    return found


def _described(kernel: str) -> dict[str, str]:
    """What the guest is told of a kernel.

    Raises:
        Unsupported: there is no such kernel.
        WallUnavailable: its description cannot be read.
    """
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        language = str(KernelSpecManager().get_kernel_spec(kernel).language)
    except NoSuchKernel:
        raise Unsupported(
            f"There is no Jupyter kernel {kernel!r}; there are: {', '.join(sorted(_kernels())) or 'none'}.",
            hint=f"Set {KERNEL} to one of them, or install it: {sys.executable} -m ipykernel install --user "
            f"--name {kernel} makes one of this Python.",
        ) from None
    except (OSError, ValueError) as error:
        raise WallUnavailable(f"The description of the Jupyter kernel {kernel!r} cannot be read: {error}.") from error
    if language.lower() == "python":
        return {"kernel": kernel}
    return {"kernel": _DEFAULT, "language": f"jupyter:{kernel}"}


def _jupyter_path() -> str:
    """Where this user's kernels are described, for processes that have another home."""
    from jupyter_core.paths import jupyter_path

    return os.pathsep.join(jupyter_path())
