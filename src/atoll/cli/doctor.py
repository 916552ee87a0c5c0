"""`atoll doctor`: each layer of the wall on this machine, and how to mend what is missing."""

from __future__ import annotations

import os
import tempfile

from .. import registry
from ..driver import Driver
from ..errors import AtollError
from ..io import BlockingIO, drive
from ..types import Layer
from . import trial
from .options import add_driver_option
from .output import colourful, paint, say, say_json
from .parsing import Parser

_DESCRIPTION = """\
Look at each layer that a wall is made of, by trying it. Of the jail and bwrap a
sandbox is made and ended, in a state directory of its own; nothing is changed.
"""

_EPILOG = """\
on       the layer is there
weaker   it is missing; atoll works without it, and says where it matters
off      it is missing, and no sandbox can be made without it

exit code:
  0, or 1 when a layer is off
"""

_COLOURS = {"on": "green", "weaker": "yellow", "off": "red"}


def main(words: list[str]) -> int:
    parser = Parser("doctor", "[OPTIONS]", _DESCRIPTION, _EPILOG)
    add_driver_option(parser, "the wall to look at (default: jail, or $ATOLL_DRIVER)")
    parser.add_argument("--json", action="store_true", help="as a JSON object")
    parser.add_argument(
        "--stop-helpers", action="store_true", help="end what only waits to make sandboxes; living ones go on"
    )
    args = parser.parse_args(words)
    if args.stop_helpers:
        return _stop_helpers()
    name = args.driver or registry.default_name()
    layers = [_state_directory(), *look(name, registry.load(name, BlockingIO()))]
    sound = all(layer.ready or not layer.required for layer in layers)
    if args.json:
        _say_json(name, layers, sound=sound)
    else:
        _say_all(name, layers, sound=sound)
    return 0 if sound else 1


def _stop_helpers() -> int:
    from ..engine.launch import stop_helpers
    from ..home import state_dir

    asked = stop_helpers(state_dir())
    say(f"Helpers that were asked to end: {asked}.")
    return 0


def look(name: str, driver: Driver) -> list[Layer]:
    """The layers of a wall; where none is missing and it does not take long, a sandbox is made to see."""
    layers = drive(driver.health())
    if name not in trial.QUICK or any(layer.required and not layer.ready for layer in layers):
        return layers
    network = any(layer.name == "network=all" and layer.ready for layer in layers)
    tried = list(trial.try_out(name, network=network))
    names = {layer.name for layer in tried}
    return [*(layer for layer in layers if layer.name not in names), *tried]


def _state_directory() -> Layer:
    from ..engine import headroom
    from ..engine.settings import BirthFailed
    from ..home import state_dir

    name = "state directory"
    try:
        path = state_dir()
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        headroom.check(path)
    except AtollError as error:
        return Layer(name, ready=False, detail=error.message, fix=error.hint)
    except BirthFailed as error:
        return Layer(name, ready=False, detail=str(error), fix="Make room, or set ATOLL_HOME to another directory.")
    except OSError as error:
        return Layer(name, ready=False, detail=f"nothing can be written: {error.strerror}", fix="Make room.")
    return Layer(name, ready=True, detail=f"{path}, {headroom.spare(path) >> 20} MB to use")


def word(layer: Layer) -> str:
    """How a layer stands: "on", "weaker" or "off"."""
    if layer.ready:
        return "on"
    return "off" if layer.required else "weaker"


def _say_all(name: str, layers: list[Layer], *, sound: bool) -> None:
    colours = colourful()
    width = max(len(layer.name) for layer in layers)
    for layer in layers:
        state = word(layer)
        painted = paint(state.ljust(6), _COLOURS[state], wanted=colours)
        say(f"{painted}  {layer.name.ljust(width)}  {layer.detail}")
        if not layer.ready and layer.fix:
            say(f"{' ' * (width + 10)}→ {layer.fix}")
    verdict = "can be built here." if sound else "cannot be built here; mend what is off."
    verdict = f"The {name} wall {verdict}"
    say(f"\n{paint(verdict, 'bold', wanted=colours)}")


def _say_json(name: str, layers: list[Layer], *, sound: bool) -> None:
    shown = [{**layer._asdict(), "state": word(layer)} for layer in layers]
    say_json({"driver": name, "ready": sound, "layers": shown})
