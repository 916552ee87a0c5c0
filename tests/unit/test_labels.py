from __future__ import annotations

import string

import pytest
from hypothesis import given, strategies as st

from atoll.errors import InvalidInput
from atoll.policy.labels import MAX_KEY, MAX_LABELS, MAX_VALUE, check_labels, labels_match, parse_label

_ends = string.ascii_letters + string.digits
keys = st.builds(
    lambda first, middle, last: first + middle + last,
    st.sampled_from(_ends),
    st.text(_ends + "._/-", max_size=MAX_KEY - 2),
    st.sampled_from(["", *_ends]),
).filter(lambda key: key[-1] in _ends)
values = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=MAX_VALUE)
labels = st.dictionaries(keys, values, max_size=8)


@given(labels)
def test_good_labels_come_back_as_an_equal_copy(given_labels):
    checked = check_labels(given_labels)
    assert checked == given_labels
    assert checked is not given_labels


def test_no_labels_are_empty_labels():
    assert check_labels(None) == {}


@pytest.mark.parametrize(
    "key",
    ["", "-a", "a-", ".a", "a b", "a=b", 'a"b', "ä", "a\n", "a\0", "a" * (MAX_KEY + 1), 1, None],
)
def test_a_bad_key_is_refused(key):
    with pytest.raises(InvalidInput, match="label key"):
        check_labels({key: "x"})


@pytest.mark.parametrize("value", ["a\nb", "\0", "\x1b[31m", "\ud800", "x" * (MAX_VALUE + 1), 1, None, b"x"])
def test_a_bad_value_is_refused_and_its_label_named(value):
    with pytest.raises(InvalidInput, match="The label 'team'"):
        check_labels({"team": value})


@pytest.mark.parametrize("wrong", [[("a", "b")], "a=b", 1])
def test_what_is_no_mapping_is_refused(wrong):
    with pytest.raises(InvalidInput, match="give a mapping"):
        check_labels(wrong)


def test_the_number_of_labels_is_bounded():
    most = {f"k{i}": "" for i in range(MAX_LABELS)}
    assert check_labels(most) == most
    with pytest.raises(InvalidInput, match="at most"):
        check_labels({**most, "one-more": ""})


@given(keys, values)
def test_key_equals_value_parses(key, value):
    assert parse_label(f"{key}={value}") == (key, value)


def test_a_label_without_equals_is_refused():
    with pytest.raises(InvalidInput, match="key=value"):
        parse_label("team")


@given(labels, labels)
def test_labels_match_when_they_hold_every_wanted_pair(have, wanted):
    assert labels_match(have, wanted) == (wanted.items() <= have.items())
    assert labels_match({**have, **wanted}, wanted)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_any_mapping_passes_or_is_invalid_input(anything):
    try:
        assert check_labels(anything) == anything
    except InvalidInput:
        pass
