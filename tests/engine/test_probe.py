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
