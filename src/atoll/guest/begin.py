"""Starts a guest from one file, where opening a file is slow: its modules, and those of the library that it needs.

`python -I -S …/atoll/guest/begin.py …` does what `__main__.py` does, with the same arguments. The file `modules`, which
lies beside the directory `atoll`, was written by the same Python for the paths that it is found at; without it, the
modules are looked for one by one. See `engine.roottree`.
"""

from __future__ import annotations

import _frozen_importlib as bootstrap
import _frozen_importlib_external as external
import marshal
import sys

MYPY = False
if MYPY:  # `typing` is one of the modules that are to come from the file
    from typing import Any, Optional

MODULES = "modules"


def main() -> None:
    package = __file__.rsplit("/", 3)[0]
    finder = Finder("%s/%s" % (package, MODULES))
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, package)
    try:
        import atoll.guest.__main__
        import atoll.guest.server  # with all that it needs
    finally:
        # What a cell imports later is what its sandbox has.
        sys.path.remove(package)
        sys.meta_path.remove(finder)
    atoll.guest.__main__.main(sys.argv[1:])


class Loader(external.SourceFileLoader):
    """An ordinary one, that has read its file already."""

    code = b""

    def get_code(self, fullname: str) -> Any:
        return marshal.loads(self.code)  # noqa: S302  # our own, made with the tree


class Finder:
    """Finds what is in the file: names, each with its path, whether it is a package, and its code or b""."""

    def __init__(self, path: str) -> None:
        try:
            with open(path, "rb") as file:
                self._modules = marshal.load(file)  # noqa: S302  # same
        except FileNotFoundError:
            self._modules = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        if name not in self._modules:
            return None
        place, is_package, code = self._modules[name]
        loader: Any
        loader = (Loader if code else external.ExtensionFileLoader)(name, place)
        if code:
            loader.code = code
        spec: Any
        spec = bootstrap.ModuleSpec(name, loader, origin=place, is_package=is_package)
        spec._set_fileattr = True  # noqa: SLF001  # as the library's own finders do
        if is_package:
            spec.submodule_search_locations.append(place.rsplit("/", 1)[0])
        return spec


if __name__ == "__main__":
    main()
