"""Runs as files: trajectories for other programs, and the pictures that steps made."""

from __future__ import annotations

import binascii
import json
import os

from ..agent.records import Recorded, everyone, images_of
from ..agent.rows import Step
from .output import OutputFailed, complain, say
from .parsing import UsageError

FORMATS = ("atif", "jsonl", "otel")
_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg"}


def export(tree: Recorded, format: str, path: str | None, *, content: bool) -> None:
    """Write a run to a file, which is there whole or not at all, or to standard output.

    Raises:
        UsageError: there is no such format.
        OutputFailed: the file cannot be written.
    """
    if format not in FORMATS:
        raise UsageError(f"There is no format {format!r}; say one of {', '.join(FORMATS)}.")
    if format == "jsonl":
        from ..agent.jsonl import jsonl

        lines = list(jsonl(tree))
    elif format == "otel":
        import atoll

        from ..agent.spans import otlp

        lines = [json.dumps(otlp(tree, atoll.__version__, content=content), ensure_ascii=False)]
    else:
        lines = [json.dumps(_atif(tree, path), ensure_ascii=False, indent=2)]
    if path is None:
        for line in lines:
            say(line)
    else:
        _replace(path, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
        say(path)


def _atif(tree: Recorded, path: str | None) -> dict[str, object]:
    from ..agent.atif import atif

    if path is None or not any(images_of(step) for each in everyone(tree) for step in each.steps):
        return atif(tree)
    directory = f"{path}.pictures"
    written = _write_all(tree, directory)

    def picture(step: Step, index: int) -> str | None:
        found = written.get((step.run, step.key, index))
        # Relative to the file: both can be moved together.
        return None if found is None else os.path.join(os.path.basename(directory), os.path.basename(found))

    return atif(tree, picture)


def write_pictures(tree: Recorded, directory: str) -> list[str]:
    """Every picture that steps of a run and its parts made, as a file of its own; their paths.

    Raises:
        OutputFailed: one cannot be written.
    """
    return list(_write_all(tree, directory).values())


def _write_all(tree: Recorded, directory: str) -> dict[tuple[str, str, int], str]:
    found = {}
    for each in everyone(tree):
        for step in each.steps:
            for index, (mime, data) in enumerate(images_of(step)):
                suffix = _SUFFIXES.get(mime)
                try:
                    content = binascii.a2b_base64(data, strict_mode=True)
                except ValueError:
                    suffix = None
                    content = b""
                if suffix is None:
                    complain(f"A picture of the step {step.number} of {step.run} is no picture that can be written.")
                    continue
                path = os.path.join(directory, f"{step.run}-{step.number}-{index + 1}.{suffix}")
                _make(directory)
                _replace(path, content)
                found[step.run, step.key, index] = path
    return found


def _make(directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise OutputFailed(f"{directory} cannot be made: {error.strerror}.") from error


def _replace(path: str, data: bytes) -> None:
    draft = f"{path}.{os.urandom(4).hex()}"
    try:
        with open(draft, "xb") as file:
            file.write(data)
        os.replace(draft, path)
    except OSError as error:
        try:
            os.unlink(draft)
        except FileNotFoundError:
            pass
        raise OutputFailed(f"{path} cannot be written: {error.strerror}.") from error
