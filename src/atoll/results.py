"""What a command or a cell has given: values that are shown as often as they are used.

They are names of `atoll.types`, where the rest of the public values is.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from .hints import CHUNK, COMPLETED, EXECUTION, elsewhere

StreamName = Literal["stdout", "stderr"]
Json = Any

_LONG = 200


def _cut(text: object) -> str:
    """The repr of a text, or of its beginning."""
    if not isinstance(text, str) or len(text) <= _LONG:
        return repr(text)
    return f"{text[:_LONG]!r}… ({len(text)} characters)"


def _told(value: Any, short: Mapping[str, str]) -> str:
    """The repr of a tuple with names, in which some fields are told in short."""
    fields = (f"{name}={short[name] if name in short else repr(each)}" for name, each in value._asdict().items())
    return f"{type(value).__name__}({', '.join(fields)})"


@elsewhere(COMPLETED)
class Completed(NamedTuple):
    """How a command ended. `exit_code` is 128 + n when signal n ended it, 124 after a timeout.

    `success` is what the command says of itself, within its time; whether output was dropped, `truncated` tells apart.
    `out_of_memory` says that the kernel killed it, or what a shell waited for, since the sandbox's memory was full.
    What is not UTF-8 is U+FFFD in the texts, and `raw` is both streams then. `hint` is what atoll knows of the reason
    of a failure beyond what the command said, and what helps: no network, no memory or no time left.
    """

    exit_code: int
    stdout: str
    stderr: str
    duration: float
    timed_out: bool = False
    truncated: bool = False
    out_of_memory: bool = False
    raw: tuple[bytes, bytes] | None = None
    hint: str | None = None

    @property
    def success(self) -> bool:
        return self.exit_code == 0 and not self.timed_out

    @property
    def stdout_bytes(self) -> bytes:
        return self.stdout.encode() if self.raw is None else self.raw[0]

    @property
    def stderr_bytes(self) -> bytes:
        return self.stderr.encode() if self.raw is None else self.raw[1]

    def __repr__(self) -> str:
        """With the beginning of what is long."""
        return _told(self, {"stdout": _cut(self.stdout), "stderr": _cut(self.stderr)})


@elsewhere(CHUNK)
class Chunk(NamedTuple):
    """A piece of live output: text, never half a UTF-8 character, which it prints as, and `data`, its bytes."""

    stream: StreamName
    text: str

    @property
    def data(self) -> bytes:
        return self.text.encode()

    def __str__(self) -> str:
        return self.text


class CodeError(NamedTuple):
    name: str
    value: str
    traceback: str


class Result(NamedTuple):
    """One displayed value of a cell, as a MIME bundle: text, base64, or JSON, whatever the MIME type needs.

    The properties are None for a form that the value does not have. What is in them comes from the sandbox: HTML
    and JavaScript may do anything in the page that you put them into.
    """

    data: Mapping[str, Json]
    is_main: bool = True

    @property
    def formats(self) -> tuple[str, ...]:
        """The MIME types."""
        return tuple(self.data)

    @property
    def text(self) -> str | None:
        return self.data.get("text/plain")

    @property
    def html(self) -> str | None:
        return self.data.get("text/html")

    @property
    def markdown(self) -> str | None:
        return self.data.get("text/markdown")

    @property
    def latex(self) -> str | None:
        return self.data.get("text/latex")

    @property
    def svg(self) -> str | None:
        return self.data.get("image/svg+xml")

    @property
    def javascript(self) -> str | None:
        return self.data.get("application/javascript")

    @property
    def png(self) -> bytes | None:
        return self._decoded("image/png")

    @property
    def jpeg(self) -> bytes | None:
        return self._decoded("image/jpeg")

    @property
    def pdf(self) -> bytes | None:
        return self._decoded("application/pdf")

    @property
    def json(self) -> Json:
        return self.data.get("application/json")

    @property
    def chart(self) -> dict[str, Json] | None:
        """The numbers in a matplotlib figure, with the members that E2B's charts have: `type`, `title`, `elements`…"""
        return self.data.get("application/vnd.atoll.chart+json")

    @property
    def plotly(self) -> dict[str, Json] | None:
        """A plotly figure, as `plotly.graph_objects.Figure` takes it."""
        return self.data.get("application/vnd.plotly.v1+json")

    @property
    def vega(self) -> dict[str, Json] | None:
        """The Vega or Vega-Lite specification of an altair chart."""
        return next((data for mime, data in self.data.items() if mime.startswith("application/vnd.vega")), None)

    def _decoded(self, mime: str) -> bytes | None:
        """Raises ValueError for data that no sandbox has sent: what one sends is checked when it arrives."""
        data = self.data.get(mime)
        if data is None:
            return None
        try:
            return binascii.a2b_base64("".join(data.split()), strict_mode=True)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"The {mime} of this result is not base64 text: {error}.") from None

    def __repr__(self) -> str:
        """With its text, and of other forms the names alone."""
        forms = [f"{mime!r}: {_cut(data) if mime == 'text/plain' else '…'}" for mime, data in self.data.items()]
        return _told(self, {"data": f"{{{', '.join(forms)}}}"})

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Json]:
        """For your own notebook: what can do no harm there. HTML comes in a frame that runs no scripts."""
        shown = {mime: data for mime, data in self.data.items() if mime in _HARMLESS}
        if self.html is not None:
            shown["text/html"] = self._repr_html_()
        return shown

    def _repr_html_(self) -> str | None:
        if self.html is None:
            return None
        page = (_FRAME_POLICY + self.html).replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe sandbox srcdoc="{page}" style="width: 100%; height: 20em; border: 0"></iframe>'


# A page of a notebook may do whatever its user may, so nothing that could run there comes from a sandbox.
_HARMLESS = frozenset(("text/plain", "image/png", "image/jpeg", "application/json"))
_FRAME_POLICY = (
    '<meta http-equiv="Content-Security-Policy"'
    " content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
)


@elsewhere(EXECUTION)
class Execution(NamedTuple):
    """How a cell ended. `state_lost` says whether variables of earlier cells are gone.

    `exit_code` is there for languages whose cells are programs or shell commands.
    """

    results: tuple[Result, ...]
    stdout: str
    stderr: str
    error: CodeError | None
    count: int  # type: ignore[assignment]  # the cell's number hides tuple.count, which nobody calls here
    duration: float
    timed_out: bool = False
    truncated: bool = False
    state_lost: bool = False
    exit_code: int | None = None

    @property
    def text(self) -> str | None:
        return next((r.text for r in self.results if r.is_main), None)

    @property
    def success(self) -> bool:
        """Whether it ran to its end without an error, in time, and all that it said and showed is here."""
        return self.error is None and not self.timed_out and not self.truncated

    def __repr__(self) -> str:
        """With the beginning of what is long."""
        error = None
        if self.error is not None:
            # A class may be called what a terminal takes for a command.
            name = self.error.name if self.error.name.isidentifier() else ""
            error = f"CodeError({name[:_LONG] or _cut(self.error.name)}: {_cut(self.error.value)})"
        return _told(self, {"stdout": _cut(self.stdout), "stderr": _cut(self.stderr), "error": str(error)})

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Json]:
        """For your own notebook: its value, or what it showed last where that is text alone, as the list is that
        `plt.plot` gives beside its figure; and as text all that it said, too."""
        said = [self.stdout, self.stderr, *(each.text or "" for each in self.results if each.is_main)]
        if self.error is not None:
            said.append(self.error.traceback)
        bundles = [each._repr_mimebundle_() for each in sorted(self.results, key=lambda each: each.is_main)]
        shown = next((each for each in reversed(bundles) if each.keys() - {"text/plain"}), {})
        return {**shown, "text/plain": "".join(each if each.endswith("\n") else f"{each}\n" for each in said if each)}
