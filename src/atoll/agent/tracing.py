"""Runs as live spans, for whoever has told OpenTelemetry where to send them. Needs the extra `otel`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from . import spans
from .events import Event
from .limits import Spent

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider


def listener(model: str) -> Tracing | None:
    """A listener that makes spans, if this process has a provider that keeps them; else None, and nothing is loaded."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or type(trace.get_tracer_provider()).__name__ in ("ProxyTracerProvider", "NoOpTracerProvider"):
        return None
    return Tracing(model)


class Tracing:
    """Hears of the events of a run, and of those that are parts of it. One for each run.

    Args:
        model: as the agent was given it.
        provider: the process's own unless given.
        content: whether spans hold what was said; what the environment says unless given.
    """

    def __init__(self, model: str, provider: TracerProvider | None = None, *, content: bool | None = None) -> None:
        from opentelemetry import trace

        import atoll

        self._model = model
        self._tracer = trace.get_tracer(spans.SCOPE, atoll.__version__, provider)
        self._content = _wanted() if content is None else content
        self._runs: dict[str, Span] = {}
        self._steps: dict[tuple[str, str], Span] = {}

    def __call__(self, event: Event) -> None:
        if event.kind == "done":
            self._done(event)
            return
        if event.depth == 0 and event.run not in self._runs:
            self._runs[event.run] = self._start(spans.run_name(), "internal", None, self._about_run(event.run))
        if event.kind == "began":
            self._began(event)
        elif event.kind == "ended":
            self._ended(event)
        elif event.kind == "retry" and event.run in self._runs:
            self._runs[event.run].add_event("retry", {"reason": event.text})

    def close(self, error: str = "interrupted") -> None:
        """End what is still open: the run was broken off, and may be resumed."""
        for span in [*reversed(self._steps.values()), *reversed(self._runs.values())]:
            _fail(span, error)
            span.end()
        self._steps.clear()
        self._runs.clear()

    def _began(self, event: Event) -> None:
        above = self._steps.get((event.run, event.parent or "")) or self._runs.get(event.run)
        if event.step == "run":
            child = str(event.request.get("run"))
            span = self._start(spans.run_name(), "internal", above, self._about_run(child))
            self._runs[child] = span
        else:
            about = spans.began_attributes(event.step, event.name, event.request, self._model, content=self._content)
            name = spans.step_name(event.step, event.name, self._model)
            about["gen_ai.conversation.id"] = event.run
            span = self._start(name, spans.step_kind(event.step), above, about)
        self._steps[event.run, event.key] = span

    def _ended(self, event: Event) -> None:
        span = self._steps.pop((event.run, event.key), None)
        if span is None:
            return
        if event.step == "run":
            self._runs.pop(str(event.request.get("run")), None)
            span.set_attributes(spans.spent_attributes(Spent.from_json(event.outcome["spent"])))
            state = str(event.outcome.get("state"))
            if state != "completed":
                _fail(span, state)
        span.set_attributes(spans.ended_attributes(event.step, event.outcome, content=self._content))
        error = spans.error_of(event.step, event.outcome)
        if error is not None:
            _fail(span, error)
        span.end()

    def _done(self, event: Event) -> None:
        span = self._runs.pop(event.run, None)
        if span is None:
            return
        span.set_attributes(spans.spent_attributes(event.spent))
        if event.text != "completed":
            _fail(span, event.text)
        span.end()

    def _about_run(self, run: str) -> dict[str, Any]:
        return spans.run_attributes(run, self._model)

    def _start(self, name: str, kind: str, above: Span | None, about: dict[str, Any]) -> Span:
        from opentelemetry.trace import SpanKind, set_span_in_context

        chosen = SpanKind.CLIENT if kind == "client" else SpanKind.INTERNAL
        context = None if above is None else set_span_in_context(above)
        return self._tracer.start_span(name, context=context, kind=chosen, attributes=about)


def _fail(span: Span, error: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR, error))


def _wanted() -> bool:
    return os.environ.get(spans.CONTENT, "").lower() in ("1", "true")
