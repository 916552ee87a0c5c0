"""Removing what hostile code made."""

from __future__ import annotations

import os

import pytest

from atoll.engine.removal import remove_tree


def test_a_tree_deeper_than_any_path_may_be_is_removed(tmp_path):
    box = tmp_path / "box"
    box.mkdir()
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(box)
        for _ in range(1500):
            os.mkdir("nested")
            os.chdir("nested")
        with open("leaf", "w") as file:
            file.write("x")
    finally:
        os.fchdir(here)
        os.close(here)
    remove_tree(str(box))
    assert os.listdir(tmp_path) == []


def test_links_are_removed_and_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    box = tmp_path / "box"
    box.mkdir()
    (box / "link").symlink_to(outside)
    (box / "hard").hardlink_to(outside / "kept")
    remove_tree(str(box))
    assert not box.exists()
    assert (outside / "kept").read_text() == "kept"


def test_odd_names_closed_directories_and_special_files_are_no_hindrance(tmp_path):
    box = tmp_path / "box"
    box.mkdir()
    (box / "new\nline").write_text("")
    with open(os.fsencode(box) + b"/\xff\xfe", "w"):
        pass
    os.mkfifo(box / "fifo")
    closed = box / "closed"
    closed.mkdir()
    (closed / "inner").mkdir()
    (closed / "inner" / "file").write_text("")
    closed.chmod(0)
    remove_tree(str(box))
    assert os.listdir(tmp_path) == []


def test_what_is_not_there_is_already_removed(tmp_path):
    remove_tree(str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError):
        remove_tree(str(tmp_path / "no" / "parent"))


def test_what_somebody_has_left_who_was_killed_over_it_is_removed(tmp_path, monkeypatch):
    """A steward that ends by itself is killed by whoever destroys its sandbox meanwhile."""
    box = tmp_path / "box"
    (box / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "box-of-another.removing.7.1").mkdir()
    monkeypatch.setattr(os, "rmdir", _die)
    for _ in range(2):  # the second one is killed over what the first has left
        with pytest.raises(KeyboardInterrupt):
            remove_tree(str(box))
    monkeypatch.undo()
    assert any(".removing." in name for name in os.listdir(tmp_path)), "the control: it does leave something"
    remove_tree(str(box))
    assert os.listdir(tmp_path) == ["box-of-another.removing.7.1"]


def _die(name, **_keywords):
    if name == "box":
        raise KeyboardInterrupt
    raise OSError(39, "not empty")
