"""Reading safetensors headers: what the library accepts is accepted, what it refuses is refused."""

from __future__ import annotations

import pytest
from safetensors import SafetensorError, deserialize

from mutoscope.platform.tensorfile import METADATA, NotSafetensors, TensorLayout, build_header, read_layout
from tests.support.safetensors import by_hand, checkpoint, entry, saved


def layout_of(data: bytes) -> TensorLayout:
    return read_layout(lambda start, length: data[start : start + length], len(data))


ACCEPTED = {
    "one after the other": by_hand({"a": entry(0, 4, [1]), "b": entry(4, 12, [2])}, bytes(12)),
    "listed out of order": by_hand({"b": entry(4, 12, [2]), "a": entry(0, 4, [1])}, bytes(12)),
    "no tensors": by_hand({}, b""),
    "metadata alone": by_hand({METADATA: {"format": "pt"}}, b""),
    "no elements": by_hand({"none": entry(0, 0, [0, 4]), "a": entry(0, 4, [1])}, bytes(4)),
    "a scalar": by_hand({"a": entry(0, 4, [])}, bytes(4)),
    "bfloat16": by_hand({"a": entry(0, 4, [2], "BF16")}, bytes(4)),
    "half bytes": by_hand({"a": entry(0, 4, [8], "F4")}, bytes(4)),
    "padded": by_hand({"a": entry(0, 4, [1])}, bytes(4), padding=5),
}
REFUSED = {
    "a hole": (by_hand({"a": entry(0, 4, [1]), "b": entry(8, 12, [1])}, bytes(12)), "b leaves a hole"),
    "a hole first": (by_hand({"a": entry(4, 8, [1])}, bytes(8)), "a leaves a hole"),
    "bytes left over": (by_hand({"a": entry(0, 4, [1])}, bytes(8)), "bytes where its header needs"),
    "cut": (by_hand({"a": entry(0, 4, [1])}, bytes(3)), "bytes where its header needs"),
    "an overlap": (by_hand({"a": entry(0, 8, [2]), "b": entry(4, 8, [1])}, bytes(8)), "b overlaps"),
    "the same bytes twice": (by_hand({"a": entry(0, 4, [1]), "b": entry(0, 4, [1])}, bytes(4)), "b overlaps"),
    "backwards": (by_hand({"a": entry(4, 0, [1])}, b""), "is damaged"),
    "before the file": (by_hand({"a": entry(-4, 0, [1])}, b""), "a overlaps"),
    "another shape": (by_hand({"a": entry(0, 4, [2])}, bytes(4)), r"a has 4 bytes where F32\[2\] takes 8"),
    "no JSON": (b"\x02" + bytes(7) + b"\xff\xff", "no readable safetensors header"),
    "no object": (by_hand([], b""), "no readable safetensors header"),  # type: ignore[arg-type]
    "a name twice": (
        by_hand({"a": entry(0, 4, [1]), "b": entry(4, 8, [1])}, bytes(8)).replace(b'"b"', b'"a"'),
        "a leaves a hole",
    ),
    "something else": (b"version https://git-lfs.github.com/spec/v1", "no safetensors file"),
    "nothing": (b"", r"no safetensors file \(0 bytes\)"),
    "a header beyond the file": (by_hand({"a": entry(0, 4, [1])}, bytes(4))[:20], "truncated"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_library_reads_has_a_layout(name: str) -> None:
    data = ACCEPTED[name]
    layout = layout_of(data)
    found = {
        span.name: (span.dtype, list(span.shape), data[span.start : span.start + span.size])
        for span in layout.spans
    }
    assert found == {n: (t["dtype"], t["shape"], bytes(t["data"])) for n, t in deserialize(data)}
    assert [span.start for span in layout.spans] == sorted(span.start for span in layout.spans)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_library_refuses_has_none(name: str) -> None:
    data, reason = REFUSED[name]
    with pytest.raises(SafetensorError):
        deserialize(data)
    with pytest.raises(NotSafetensors, match=reason):
        layout_of(data)


def test_the_header_and_the_tensors_are_the_file() -> None:
    data = saved(checkpoint(0))
    layout = layout_of(data)
    tensors = b"".join(data[span.start : span.start + span.size] for span in layout.spans)
    assert data[: layout.header_size] + tensors == data
    assert layout.metadata == {"format": "pt"}


def test_only_the_header_is_read() -> None:
    data, read = saved(checkpoint(0)), []

    def reader(start: int, length: int) -> bytes:
        read.append((start, length))
        return data[start : start + length]

    layout = read_layout(reader, len(data))
    assert read == [(0, 8), (8, layout.header_size - 8)]


def test_a_header_of_our_own_is_read_by_the_library() -> None:
    built = build_header([("b", "F32", (2,), 8), ("a", "U8", (3,), 3)], {"note": "é"})
    assert len(built) % 8 == 0, "tensors lie aligned"
    assert dict(deserialize(built + bytes(11))) == {
        "b": {"dtype": "F32", "shape": [2], "data": bytearray(8)},
        "a": {"dtype": "U8", "shape": [3], "data": bytearray(3)},
    }
    assert layout_of(built + bytes(11)).metadata == {"note": "é"}
