from __future__ import annotations

import json
import pathlib
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st
from tests.policy.generated import rules
from tests.unit.test_labels import labels

from atoll.errors import InvalidInput, InvalidPath, Unsupported
from atoll.policy.env import MAX_ENTRY
from atoll.policy.presets import get_preset
from atoll.policy.spec import make_spec, spec_from_json, spec_to_json, with_image_as_path
from atoll.types import PathRule, Permissions, Resources, Spec

seconds = st.floats(0.001, 2_000_000, allow_nan=False)
surrogates = st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF, categories=["Cs"])
no_nul = st.one_of(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), surrogates)
env = st.dictionaries(
    st.text(no_nul, min_size=1, max_size=10).filter(lambda name: "=" not in name),
    st.text(no_nul, max_size=20),
    max_size=4,
)
resources = st.builds(
    Resources,
    memory=st.integers(16 << 20, 1 << 40),
    cpu=st.none() | st.floats(0.01, 64),
    pids=st.integers(8, 1 << 22),
    disk=st.none() | st.integers(1 << 20, 1 << 50),
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "image": st.sampled_from(["/images/a.tar", "relative"]),
        "source": st.just(pathlib.Path("/srv/x")),
        "network": st.sampled_from(["none", "all", "host"]),
        "resources": resources,
        "env": env,
        "labels": labels,
        "timeout": st.none() | seconds,
        "lifetime": seconds,
        "workdir": st.sampled_from(["/workspace", "/home/me/"]),
        "strict": st.booleans(),
        "permissions": st.one_of(
            st.none(), st.sampled_from(["agent-safe", "view-only"]), st.lists(rules, min_size=1, max_size=4)
        ),
        "ignore": st.lists(st.text(no_nul.filter(lambda character: character != "\n"), max_size=8), max_size=3),
    },
)


def test_the_defaults_are_the_defaults_of_spec():
    assert make_spec() == Spec()
    assert make_spec().resources == Resources(memory=512 << 20, cpu=None, pids=256, disk=None)


@given(specs)
def test_a_spec_survives_json(keywords):
    if keywords.get("permissions") or keywords.get("ignore"):
        keywords["source"] = "/srv/x"
    spec = make_spec(**keywords)
    assert spec_from_json(json.loads(json.dumps(spec_to_json(spec)))) == spec


def test_the_caller_s_mappings_are_copied():
    variables, tags = {"A": "1"}, {"k": "v"}
    spec = make_spec(env=variables, labels=tags)
    variables["B"] = tags["b"] = "2"
    assert spec.env == {"A": "1"}
    assert spec.labels == {"k": "v"}


def test_resources_come_as_a_mapping_with_sizes_in_words():
    got = make_spec(resources={"memory": "64M", "cpu": 1, "pids": 32, "disk": "1G"}).resources
    assert got == Resources(64 << 20, 1.0, 32, 1 << 30)
    assert make_spec(resources={"cpu": 0.5}).resources == Resources(cpu=0.5)
    assert make_spec(resources=Resources(memory="64M")).resources.memory == 64 << 20


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ram": "1G"}, "resources has no 'ram'; the names are memory, cpu, pids, disk"),
        ({1: 2}, "resources has no 1"),
        ({"memory": None}, "memory is None"),
        ({"memory": "1K"}, "memory is '1K'; a sandbox needs at least 16M"),
        ({"disk": 1}, "disk is 1; a sandbox needs at least 1M"),
        ({"cpu": 0}, "cpu is 0"),
        ({"cpu": -1}, "cpu is -1"),
        ({"cpu": float("nan")}, "cpu is nan"),
        ({"cpu": "one"}, "cpu is 'one'"),
        ({"cpu": "1m"}, "cpu is '1m'"),
        pytest.param({"cpu": 10**400}, "cpu is 1000", id="huge"),
        ({"pids": 0}, "pids is 0"),
        ({"pids": 2.5}, "pids is 2.5"),
        ({"pids": True}, "pids is True"),
        ([("memory", 1)], "resources is a list"),
        ("1G", "resources is a str"),
    ],
)
def test_bad_resources_are_refused_by_name(wrong, words):
    with pytest.raises(InvalidInput) as caught:
        make_spec(resources=wrong)
    assert words in str(caught.value)


@pytest.mark.parametrize("keyword", ["timeout", "lifetime"])
@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "0", "soon", timedelta(0), True, 10**400, 1e12])
def test_times_are_finite_and_positive(keyword, wrong):
    with pytest.raises(InvalidInput, match=f"{keyword} is .*; give seconds"):
        make_spec(**{keyword: wrong})


@pytest.mark.parametrize("keyword", ["timeout", "lifetime"])
@pytest.mark.parametrize("five_minutes", [300, "300", "5m", "300s", timedelta(minutes=5)])
def test_times_come_as_people_write_them(keyword, five_minutes):
    assert getattr(make_spec(**{keyword: five_minutes}), keyword) == 300.0


def test_the_longest_time_is_told_in_words():
    with pytest.raises(InvalidInput, match="at most 2073600, which are 24 days: the kernel waits no longer"):
        make_spec(timeout=1e9)


def test_resources_come_as_kubernetes_writes_them():
    got = make_spec(resources={"memory": "512Mi", "cpu": "500m", "disk": "1Gi"}).resources
    assert (got.memory, got.cpu, got.disk) == (512 << 20, 0.5, 1 << 30)


def test_a_source_without_rules_gets_the_safe_ones():
    assert make_spec(source="/srv").permissions == make_spec(codebase="shop").permissions == get_preset("agent-safe")
    assert make_spec(source="/srv", preset="full-access").permissions is None
    assert make_spec(snapshot="s").permissions is make_spec().permissions is None
    with pytest.raises(InvalidInput, match="preset= is about the files of a source"):
        make_spec(preset="agent-safe")


def test_a_stored_sandbox_without_rules_still_has_none():
    stored = json.loads(json.dumps(spec_to_json(make_spec(source="/srv", preset="full-access"))))
    assert spec_from_json(stored).permissions is None


def test_a_command_may_have_no_timeout_and_a_sandbox_always_has_a_lifetime():
    assert make_spec(timeout=None).timeout is None
    with pytest.raises(InvalidInput, match="lifetime is None"):
        make_spec(lifetime=None)


@pytest.mark.parametrize("network", ["", "None", "some", "example.com", 1, None])
def test_an_unknown_network_is_refused(network):
    with pytest.raises(InvalidInput, match="give 'none', 'all' or 'host'"):
        make_spec(network=network)


@pytest.mark.parametrize("hosts", [["example.com"], ("a", "b"), {"a"}, []])
def test_a_list_of_hosts_is_not_there_yet(hosts):
    with pytest.raises(Unsupported, match="not there yet"):
        make_spec(network=hosts)


@pytest.mark.parametrize("name", ["", "A=B", "A\0", 1, None])
def test_a_bad_env_name_is_refused(name):
    with pytest.raises(InvalidInput, match="env has the name"):
        make_spec(env={name: "x"})


@pytest.mark.parametrize("value", ["a\0b", 1, None, b"x", "\ud800", pytest.param("x" * MAX_ENTRY, id="long")])
def test_a_bad_env_value_is_refused_and_not_shown(value):
    with pytest.raises(InvalidInput) as caught:
        make_spec(env={"TOKEN": value})
    assert "TOKEN" in str(caught.value)
    assert "xxx" not in str(caught.value)


def test_the_whole_env_is_bounded():
    chunk = "x" * 100_000
    assert len(make_spec(env={f"V{i}": chunk for i in range(5)}).env) == 5
    with pytest.raises(InvalidInput, match="Write a file instead"):
        make_spec(env={f"V{i}": chunk for i in range(6)})


@pytest.mark.parametrize("keyword", ["image", "source", "workdir"])
@pytest.mark.parametrize("path", ["", "a\0b", "/" + "a" * 256, pytest.param("/a" * 2100, id="long")])
def test_bad_paths_are_refused_by_name(keyword, path):
    with pytest.raises(InvalidPath, match=f"^{keyword} "):
        make_spec(**{keyword: path})


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("gpu", "T4"),
        ("gpu", False),
        ("fallback", ["docker"]),
    ],
)
def test_what_is_not_there_yet_is_refused_and_not_ignored(keyword, value):
    with pytest.raises(Unsupported, match=f"{keyword}= is not there yet"):
        make_spec(**{keyword: value})


@pytest.mark.parametrize("empty", [None, (), [], {}])
def test_leaving_them_empty_is_fine(empty):
    given = dict.fromkeys(["packages", "gpu", "fallback"], empty)
    assert make_spec(**given) == Spec()


@pytest.mark.parametrize("value", [{"read": ["/"]}, {}, (), [], 1, "agent", [("a", "see")], PathRule("a", "read")])
def test_permissions_that_say_nothing_clear_are_refused_and_not_ignored(value):
    with pytest.raises(InvalidInput):
        make_spec(permissions=value, source="/srv/x")


def test_permissions_come_as_a_preset_or_as_rules():
    assert make_spec(permissions="agent-safe", source="/srv/x").permissions == get_preset("agent-safe")
    rules_of_ones_own = make_spec(permissions=[("a", "read")], source="/srv/x").permissions
    assert rules_of_ones_own == Permissions((PathRule("a", "read"),))
    assert make_spec(permissions=None) == Spec()


@pytest.mark.parametrize("about", [{"permissions": "agent-safe"}, {"ignore": ["a/"]}])
def test_rules_without_a_source_are_refused_since_they_would_hold_for_nothing(about):
    with pytest.raises(InvalidInput, match="is about the files of a source"):
        make_spec(**about)
    make_spec(**about, source="/srv/x")
    with pytest.raises(InvalidInput, match="both given"):
        make_spec(**about, source="/srv/x", codebase="mine")


def test_ignore_is_a_list_of_patterns():
    assert make_spec(ignore=["a/", "!b"], source="/srv/x").ignore == ("a/", "!b")
    assert make_spec(ignore=[]).ignore == make_spec(ignore=()).ignore == ()
    for wrong in ("a/", None, 1, [1], ["a\nb"]):
        with pytest.raises(InvalidInput, match="ignore"):
            make_spec(ignore=wrong, source="/srv/x")


@pytest.mark.parametrize("strict", [1, "yes", None])
def test_strict_is_a_boolean(strict):
    with pytest.raises(InvalidInput, match="strict is"):
        make_spec(strict=strict)


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        "x",
        {"future": 1},
        {"timeout": -1},
        {"snapshot": ""},
        {"permissions": "agent-safe"},
        {"permissions": {}},
    ],
)
def test_a_stored_spec_that_no_atoll_of_this_version_wrote_is_refused(stored):
    with pytest.raises(InvalidInput):
        spec_from_json(stored)


def test_an_image_is_a_path_or_a_name_that_only_a_driver_can_tell_from_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make_spec(image="python:3.12").image == "python:3.12"
    assert make_spec(image="./rootfs").image == f"{tmp_path}/rootfs"
    assert make_spec(image=pathlib.Path("rootfs")).image == f"{tmp_path}/rootfs"
    assert with_image_as_path(make_spec(image="rootfs")).image == f"{tmp_path}/rootfs"
    assert with_image_as_path(make_spec()) == Spec()
