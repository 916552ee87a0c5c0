"""Runs as spans: live, and from the journal, by the names of the GenAI conventions."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from tests.playedmodel import PlayedModel, calls, fails, says
from tests.thorough import examples
from tests.trajectories.making import runs

from atoll import ModelError
from atoll.agent import Agent, journal
from atoll.agent.forgetting import forget
from atoll.agent.records import recorded
from atoll.agent.spans import otlp, spans_of
from atoll.agent.tracing import Tracing, listener

KNOWN = {
    value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_") and isinstance(value, str)
}
OURS = {"atoll.cost_usd", "error.type"}
# Newer than the constants of some releases of opentelemetry-semantic-conventions.
NEWER = {"gen_ai.usage.cache_read.input_tokens", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"}


@pytest.fixture
def exported():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider, exporter
    provider.shutdown()


def by_name(spans):
    return sorted(span.name for span in spans)


def test_live_spans_are_those_of_the_journal(fresh, exported):
    provider, exporter = exported
    script = {
        "rules": [
            {"when": {"has_tools": False}, "replies": [says("one", usage=(7, 3))]},
            {"when": {"first": "below"}, "replies": [says("deep", usage=(5, 5))]},
            {
                "replies": [
                    calls(("run_code", {"code": "print(llm_query('q'), rlm_query('below'))"}), usage=(100, 10)),
                    calls(("fly", {}), usage=(100, 10)),
                    says("done", usage=(100, 10)),
                ]
            },
        ]
    }
    with PlayedModel(script) as server:
        tracing = Tracing("openai/played", provider, content=False)
        agent = Agent("openai/played", base_url=server.url, sandbox={"driver": "jail"}, on_event=tracing)
        result = agent.completion("top secret")
    assert result.state == "completed", result
    live = exporter.get_finished_spans()
    tree = recorded(fresh, result.trajectory_id)
    later = list(spans_of(tree))
    assert by_name(live) == by_name(later)
    assert by_name(live).count("chat played") == 5
    assert by_name(live).count("invoke_agent atoll") == 2
    assert {"execute_tool run_code", "execute_tool fly"} <= set(by_name(live))

    ids = {span.context.span_id: span for span in live}
    above = {span.name: ids[span.parent.span_id].name for span in live if span.parent is not None}
    assert above["execute_tool run_code"] == "invoke_agent atoll"
    deep = [span for span in live if span.name == "invoke_agent atoll" and span.parent is not None]
    assert [ids[span.parent.span_id].name for span in deep] == ["execute_tool run_code"]
    assert len({span.context.trace_id for span in live}) == 1

    for span in live:
        twin = [each for each in later if each.name == span.name]
        assert dict(span.attributes).keys() in [each.attributes.keys() for each in twin]
    root = next(span for span in live if span.parent is None)
    assert root.attributes["gen_ai.usage.input_tokens"] == 312
    failed = next(span for span in live if span.name == "execute_tool fly")
    assert not failed.status.is_ok
    assert failed.attributes["error.type"] == "tool_failed"
    assert "top secret" not in json.dumps([json.loads(span.to_json()) for span in live])
    forget(fresh, result.trajectory_id)


def test_a_run_that_is_broken_off_leaves_no_span_open(fresh, exported):
    provider, exporter = exported
    with PlayedModel([fails(400)]) as server:
        tracing = Tracing("played", provider, content=True)
        agent = Agent("played", base_url=server.url, on_event=tracing)
        with pytest.raises(ModelError):
            agent.completion("hello")
    tracing.close("ModelError")
    spans = exporter.get_finished_spans()
    assert by_name(spans) == ["chat played", "invoke_agent atoll"]
    assert all(span.attributes["error.type"] == "ModelError" for span in spans)
    assert any("hello" in span.attributes.get("gen_ai.input.messages", "") for span in spans)


def test_nothing_listens_where_nobody_has_said_where_to_send_spans():
    assert type(trace.get_tracer_provider()).__name__ == "ProxyTracerProvider"
    assert listener("played") is None


LIVE = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from atoll.agent import Agent
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
for task in ("hello", "broken"):
    try:
        Agent("played", base_url=sys.argv[1]).completion(task)
    except Exception as error:
        print(type(error).__name__)
    for span in exporter.get_finished_spans():
        print(span.name, span.attributes.get("error.type"))
    exporter.clear()
"""


def test_every_run_of_a_process_that_has_a_provider_is_traced(fresh):
    script = {"rules": [{"when": {"first": "hello"}, "replies": [says("hi")]}, {"replies": [fails(400)]}]}
    with PlayedModel(script) as server:
        done = subprocess.run(
            [sys.executable, "-c", LIVE, server.url], capture_output=True, text=True, timeout=60, check=True
        )
    assert done.stdout.splitlines() == [
        "chat played None", "invoke_agent atoll None",
        "ModelError", "chat played ModelError", "invoke_agent atoll ModelError",
    ]  # fmt: skip


@examples(1000, 100)
@given(tree=runs())
def test_any_run_is_spans_of_known_names(tree):
    for content in (False, True):
        seen = set()
        for span in spans_of(tree, content=content):
            assert span.attributes.keys() <= KNOWN | OURS | NEWER
            assert span.parent is None or span.parent in seen
            seen.add(span.id)


def test_the_names_are_checked_against_the_conventions():
    assert {"gen_ai.operation.name", "gen_ai.usage.input_tokens", "gen_ai.tool.name", "gen_ai.conversation.id"} <= KNOWN


def test_otlp_as_a_collector_takes_it(at_home):
    body = otlp(at_home.tree, "1", content=True)
    (scoped,) = body["resourceSpans"][0]["scopeSpans"]
    assert len(scoped["spans"]) == len(list(spans_of(at_home.tree)))
    for span in scoped["spans"]:
        assert (len(span["traceId"]), len(span["spanId"])) == (32, 16)
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    first = scoped["spans"][0]
    assert "parentSpanId" not in first
    values = {each["key"]: each["value"] for each in first["attributes"]}
    assert values["gen_ai.conversation.id"] == {"stringValue": at_home.id}
    assert values["gen_ai.usage.input_tokens"] == {"intValue": str(at_home.tree.result["spent"]["prompt_tokens"])}
    assert journal.shared().run(at_home.id).state == "completed"
