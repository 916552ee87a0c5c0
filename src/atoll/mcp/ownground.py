"""What a server starts on its host must not come from where its sessions write.

A server that may apply has directories that a model changes. Whatever it imports, runs or starts from there would be
the model's program, on the host. So it looks at all of that once, before the first call.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import atoll

from ..home import state_dir
from .settings import Settings


class Ground(NamedTuple):
    """What of this server lies in its sources.

    Attributes:
        guarded: where its own program lies, its state, and files that the environment names; real paths, which no
            session changes, nor what is below them.
        imported: other places that a new Python would import from, so that none is started.
        programs: whether agents may start programs that the configuration names. What those load nobody can know.
    """

    guarded: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()
    programs: bool = True


def leave_sources(settings: Settings) -> Ground:
    """Where this process stands; from now on it imports nothing from the sources, and looks for no program there.

    Raises:
        StoreError: the state directory cannot be used.
    """
    if not settings.apply or not settings.sources:
        return Ground()
    guarded = {place for each in _own_places() for place in _spellings(each) if _meets(place, settings.sources)}
    guarded |= set(_named_files(settings.sources))
    imported = [_imported_from(each, settings.sources, guarded) for each in sys.path]
    sys.path[:] = [each for each, place in zip(sys.path, imported, strict=True) if place is None]
    # Python puts the directory that it was started in before all others, unless it is told not to. Workers are told.
    again = imported if sys.flags.safe_path else imported[1:]
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    outside = [each for each in path if os.path.isabs(each) and not _is_in(os.path.realpath(each), settings.sources)]
    os.environ["PATH"] = os.pathsep.join(outside) or os.defpath
    return Ground(tuple(sorted(guarded)), tuple(place for place in again if place is not None), programs=False)


def _imported_from(entry: str, sources: Iterable[str], guarded: Iterable[str]) -> str | None:
    """Where an entry of Python's path leads, if sessions may change it."""
    place = os.path.realpath(entry)
    return place if _is_in(place, sources) and not _is_in(place, guarded) else None


def _own_places() -> Iterator[str]:
    import sysconfig

    yield os.path.dirname(atoll.__file__)
    yield os.path.dirname(sys.executable)
    yield from (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    yield from (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield state_dir()


def _spellings(place: str) -> tuple[str, str]:
    """A link in a source that leads to a place is as good as the place; it is named by where it really lies."""
    return os.path.realpath(place), os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))


def _named_files(sources: Iterable[str]) -> Iterator[str]:
    """Files in the sources that a variable of the environment names: libraries to load ahead, a runtime to use."""
    for value in list(os.environ.values()):
        for each in value.split(os.pathsep):
            if each and "\0" not in each and os.path.isfile(each):
                yield from (place for place in _spellings(os.path.abspath(each)) if _is_in(place, sources))


def _meets(place: str, sources: Iterable[str]) -> bool:
    """Whether a source holds a place, or lies in one that holds nothing but programs."""
    import sysconfig

    inner = (os.path.dirname(atoll.__file__), sysconfig.get_path("purelib"))
    return _is_in(place, sources) or (place in inner and any(_is_in(source, (place,)) for source in sources))


def _is_in(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)
