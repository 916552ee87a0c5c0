from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from atoll.errors import InvalidInput, InvalidPath
from atoll.policy.paths import check_path, host_path, workspace_path


@pytest.mark.parametrize(
    "good", ["a", "/", "../x", "a" * 255, pytest.param("/".join(["a" * 200] * 20), id="long"), "ä/\udcff", " "]
)
def test_what_a_kernel_takes_is_a_path(good):
    assert check_path(good) == good


@pytest.mark.parametrize("bad", ["", "a\0b", "a" * 256, "ä" * 128, pytest.param("/x" * 2048, id="long"), "\ud800"])
def test_what_no_kernel_takes_is_an_invalid_path(bad):
    with pytest.raises(InvalidPath) as caught:
        check_path(bad)
    assert len(caught.value.message) < 250


@pytest.mark.parametrize("wrong", [b"x", 1, None, ["x"]])
def test_what_is_no_path_is_invalid_input(wrong):
    with pytest.raises(InvalidInput, match=r"pathlib\.Path"):
        check_path(wrong)


def test_a_host_path_is_made_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert host_path("a/../b/", "source") == str(tmp_path / "b")
    assert host_path(pathlib.Path("b"), "source") == str(tmp_path / "b")
    assert host_path("/x", "source") == "/x"


def test_a_relative_path_in_a_removed_directory_is_explained():
    code = (
        "import os, tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)\n"
        "from atoll.policy.paths import host_path\n"
        "try: host_path('x', 'source')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("InvalidPath source is relative")


@pytest.mark.parametrize(
    ("path", "clean"),
    [("/workspace", "/workspace"), ("/a//b/", "/a/b"), ("/./a/.", "/a"), ("//a", "/a"), ("/process", "/process")],
)
def test_a_workspace_path_is_normalised(path, clean):
    assert workspace_path(path) == clean


@pytest.mark.parametrize("bad", ["workspace", "./x", "/", "//", "/.", "/a/../b", "/proc", "/proc/1", "/sys/x", "/dev/"])
def test_where_no_workspace_can_be_is_refused(bad):
    with pytest.raises(InvalidPath, match="workdir is"):
        workspace_path(bad)


@given(st.text(max_size=40))
def test_any_text_is_a_clean_workspace_path_or_invalid(text):
    try:
        clean = workspace_path(text)
    except InvalidInput:
        return
    assert clean == workspace_path(clean) == os.path.normpath(clean)
    assert clean.startswith("/")
