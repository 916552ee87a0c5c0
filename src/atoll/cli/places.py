"""The sandbox that a command works in: made for it and thrown away, kept, or found again by labels or id."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from .. import store
from ..errors import InvalidInput, SandboxNotFound
from ..policy.spec import make_spec, with_image_as_path
from ..sync.sandbox import Sandbox
from ..types import Spec
from .interrupts import Interrupts, Stopped
from .options import check_reuse, wishes
from .output import OutputClosed, complain

_MAKING = 1.0
_CLEANING = 20.0


def find(prefix: str) -> Sandbox:
    """The sandbox whose id begins so.

    Raises:
        SandboxNotFound, SandboxGone, InvalidInput: there is none, or there are several.
    """
    return Sandbox.connect(store.shared().resolve(prefix).id)


def find_labelled(labels: dict[str, str]) -> Sandbox:
    """The one sandbox that carries these labels and has not ended.

    Raises:
        SandboxNotFound, InvalidInput: there is none, or there are several.
    """
    ids = [info.id for info in Sandbox.list(labels) if info.status != "gone"]
    worn = ",".join(f"{key}={value}" for key, value in labels.items())
    if not ids:
        raise SandboxNotFound(f"No sandbox carries {worn}.", hint="`atoll list` shows those that exist.")
    if len(ids) > 1:
        more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
        raise InvalidInput(
            f"Several sandboxes carry {worn}: {', '.join(ids[:5])}{more}.",
            hint="Give one more label, or an id instead.",
        )
    return Sandbox.connect(ids[0])


class Place:
    """A `with` block around a sandbox. Whatever happens in it, a throw-away sandbox ends with it.

    Args:
        args: what `add_sandbox_options` parsed.
        lifetime: seconds, unless the user says otherwise.
    """

    def __init__(self, args: Namespace, interrupts: Interrupts, lifetime: float) -> None:
        check_reuse(args)
        self._args = args
        self._interrupts = interrupts
        self._wishes = {"lifetime": lifetime, **wishes(args)}
        self._sandbox: Sandbox | None = None

    def __enter__(self) -> Sandbox:
        try:
            with self._interrupts.held(_MAKING):
                self._sandbox = self._open()
        except BaseException as error:
            self._leave(error)
            raise
        return self._sandbox

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._leave(error)

    def announce(self) -> None:
        """Tell the id of one that stays."""
        if self._args.keep and self._sandbox is not None:
            complain(f"The sandbox stays: {self._sandbox.id}")

    def _open(self) -> Sandbox:
        if not self._args.reuse:
            return Sandbox.create(self._args.driver, on_progress=complain, **self._wishes)
        sandbox = Sandbox.get_or_create(driver=self._args.driver, on_progress=complain, **self._wishes)
        _check_alike(sandbox, self._args.driver, self._wishes)
        if self._args.lifetime is not None:
            sandbox.set_lifetime(self._wishes["lifetime"])
        return sandbox

    def _leave(self, error: BaseException | None) -> None:
        sandbox = self._sandbox
        if sandbox is None or self._args.reuse:
            return
        failed = error is not None and not isinstance(error, Stopped | KeyboardInterrupt | OutputClosed)
        if self._args.keep and not failed:
            return
        with self._interrupts.held(_CLEANING):
            sandbox.destroy()
        if self._args.keep:
            complain(f"The sandbox {sandbox.id} was destroyed, since the run failed before it was of any use.")


def _check_alike(sandbox: Sandbox, driver: str | None, wanted: dict[str, Any]) -> None:
    """Refuse a found sandbox that is not as asked for: no wish is ignored."""
    if driver is not None and driver != sandbox.driver:
        raise _unlike(sandbox, "driver", sandbox.driver)
    spec = make_spec(**wanted)
    has = sandbox.info.spec
    if has.image is not None and has.image.startswith("/"):
        spec = with_image_as_path(spec)
    for name in ("image", "source", "network", "workdir", "strict", "packages", "snapshot", "ignore", "audit"):
        if name in wanted and getattr(spec, name) != getattr(has, name):
            raise _unlike(sandbox, name, getattr(has, name))
    if "codebase" in wanted and _codebase_id(wanted["codebase"]) != has.codebase:
        raise _unlike(sandbox, "codebase", has.codebase)
    if "permissions" in wanted and spec.permissions != has.permissions:
        raise _unlike(sandbox, "preset", _rules(has), "--preset, --rules, --allow and --hide")
    for name in wanted.get("resources", ()):
        if getattr(spec.resources, name) != getattr(has.resources, name):
            raise _unlike(sandbox, name, _limit(has, name))


def _limit(spec: Spec, name: str) -> object:
    from ..policy.sizes import format_size

    value = getattr(spec.resources, name)
    return format_size(value) if name in ("memory", "disk") and value is not None else value


def _codebase_id(name: str) -> str:
    from ..sync.codebases import Codebases

    return Codebases().get(name).id


def _rules(spec: Spec) -> str:
    if spec.permissions is None:
        return "none"
    return spec.permissions.name or "rules of its own"


def _unlike(sandbox: Sandbox, name: str, value: object, options: str | None = None) -> InvalidInput:
    return InvalidInput(
        f"The sandbox {sandbox.id} has these labels and was made with {name} {value}.",
        hint=f"Leave {options or '--' + name} out, or end it first: atoll destroy {sandbox.id}",
    )
