from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from atoll.errors import InvalidInput
from atoll.policy.sizes import MAX_SIZE, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512M", 512 << 20),
        ("512m", 512 << 20),
        ("512MB", 512 << 20),
        ("512MiB", 512 << 20),
        ("512 M", 512 << 20),
        ("1G", 1 << 30),
        ("1.5G", 3 << 29),
        ("0.5K", 512),
        ("4096", 4096),
        ("4096B", 4096),
        (" 2T ", 2 << 40),
        (1, 1),
        (MAX_SIZE, MAX_SIZE),
    ],
)
def test_what_people_write_is_understood(text, size):
    assert parse_size(text) == size


_NO_SIZES = ["", "M", "1X", "-1M", "1,5G", "1e9", "0x10", "1.M", "٣M", "1" * 100, "9" * 10_000, "1M\n1", "0", "0.1"]
_NO_SIZES += [0, -1, MAX_SIZE + 1, "8192P", 10**5000, 1.5, True, None, b"1M", [1]]


@pytest.mark.parametrize("wrong", _NO_SIZES, ids=range(len(_NO_SIZES)))
def test_what_is_no_size_is_refused_in_a_short_sentence(wrong):
    with pytest.raises(InvalidInput) as caught:
        parse_size(wrong, "memory")
    assert caught.value.message.startswith("memory is ")
    assert len(caught.value.message) < 250


@given(st.integers(1, MAX_SIZE))
def test_a_formatted_size_parses_to_itself(size):
    assert parse_size(format_size(size)) == size


@given(st.integers(1, 1 << 22), st.sampled_from("KMGT"))
def test_a_whole_number_of_units_is_formatted_short(count, unit):
    assert len(format_size(parse_size(f"{count}{unit}"))) <= len(f"{count}{unit}")


@given(st.text(max_size=30))
def test_any_text_is_a_size_or_invalid_input(text):
    try:
        assert 0 < parse_size(text) <= MAX_SIZE
    except InvalidInput:
        pass
