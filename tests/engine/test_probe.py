"""What doctor says of a host, including hosts that are not this one."""

from __future__ import annotations

import pytest

from atoll.engine import probe


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, "AppArmor"),
        ({"/proc/sys/kernel/unprivileged_userns_clone": "0"}, "unprivileged_userns_clone=1"),
        ({"/proc/sys/user/max_user_namespaces": "0"}, "max_user_namespaces"),
        ({}, "container"),
    ],
)
def test_the_reason_for_refused_namespaces_names_the_fix(value, word):
    assert word in probe.namespace_fix(lambda path: value.get(path, ""))


def test_every_layer_is_tried_and_none_changes_this_process():
    layers = {layer.name: layer for layer in probe.layers()}
    assert {"Linux", "namespaces", "mounts", "control groups", "Landlock", "seccomp"} <= set(layers)
    assert all(layer.fix for layer in layers.values() if not layer.ready)
    with open("/proc/self/status") as file:
        assert "Seccomp:\t0" in file.read()


@pytest.mark.parametrize(
    ("said", "sound"),
    [
        ("pasta 0.0~git20250503.587980c-2\nCopyright Red Hat\n", True),
        ("pasta 2024_03_18.615d370\n", True),
        ("pasta 2024_02_20.1e6f92b\n", False),
        ("pasta 0.0~git20230309.7c7625d-1\n", False),
        ("pasta unknown version\n", False),
        ("", False),
    ],
)
def test_a_passt_that_passes_on_packets_for_loopback_is_told(said, sound):
    layer = probe.passt_layer(said)
    assert layer.ready is sound
    assert not layer.required
    assert sound or ("loopback" in layer.detail and "newer passt" in layer.fix)


def test_the_rules_of_a_network_are_tried():
    found = probe.network({"nft": "nftables"})
    assert found.ready, found.detail
    missing = probe.network({"nft": "nftables", "no-such-tool": "such-a-package"})
    assert not missing.ready
    assert missing.fix == "apt-get install such-a-package"
