"""The digest encoding, pinned for good. A change here would silently orphan every memo key ever stored."""

from __future__ import annotations

import hashlib
import struct
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any

import pytest

from mutoscope.platform.errors import UnhashableInput
from mutoscope.platform.ids import digest, new_id, sha256

DOMAIN = "mutoscope.test/1"

GOLDEN: list[tuple[Any, str]] = [
    (None, "139f40ee25ae7206333022edfceb28119ddc5624126a37c27fe237001e849292"),
    (True, "8e05b147f96aaa6297f1cf3df05fa376d582a23e11962d0cf2151191271f717d"),
    (False, "1c6c974754452b777fb0b52c56fbf5542b566a238eebad193397aef05440ff5c"),
    (0, "0f544f7dac09163d93ab736f075d004c9e0d02199b9db78ea0b2762b9c876bf9"),
    (1, "b6519acfae71f7d6b9200a7e3738ac31de948fb65173d887796021c5b76530d4"),
    (-1, "e81faef5cc090454cd85e1f779eb9c91f4536e34ffd24d1d758e8c0672bc2283"),
    (2**80, "b8bef8f53abb949d3d6aac9a66108aeb2dca5387ec43e7c04236a40b16db76a8"),
    (1.0, "eec4d16a2d27a6659190eed37f89dfd7236790b157f5063669522f5c40805aa2"),
    (-0.0, "841729123b02b07e5fb6b5cdd369dedceefdf29dd1e6f8a01996e1244ddea1fe"),
    (0.0, "ed3b137a1aa829e11153dabea8428dc6029117428cdc177bb0b77864247dac23"),
    (0.1, "a400a2f0527b7986068ecb86fad15ef99416b8d7d8b3d23ffc8c2c193ef0c11c"),
    ("", "f520c7ad29844c82a58c91e5239ac9037232a50d9532f433a616751925b4d0c3"),
    ("1", "58517b3d986241da54bab87551114a379e413d30e3d3aa39b489530b7069be5d"),
    ("é", "c0f88ce1ff3a8a218f6851df2ea0891d552a05e231256a2b2688d0d153705d52"),
    (b"", "f32ad66e7bb205d7db02c2ef3569a6d08265564063ab2fd83c0a1fc27295ba57"),
    (b"1", "1a7b3a80fc6b9a98ef41eeff8ab463c581717e9a7ef2f7932eb398175cf96b74"),
    ([], "2e8786b69f86b0d81bff05fa858b62ecdb464eee74c3b98d8f4c61a8fc05b790"),
    ([1, 2], "dea129fa36ad6cbf5aaf8351310ec9ed5d5745aea950b66ba6224a42f20ff97d"),
    (["v1", "2b"], "a4eb7a54bf54711b4ccf75c14152ec236356e861a2ab96cf889e9d9f536f8405"),
    (["v12", "b"], "d01bc37bec609e4f983be31cb9afb36e16ac77bbd1db2ace43e96da6da6b1d54"),
    ({}, "4096ff37e547b98ef29c89a40dad78b4da664decc7654401cff248a63e5ad510"),
    ({"a": 1, "b": [True, None]}, "6ce402e77e95e8827e6107d64678c60ff4bb501c96558d1025813fc90eb59517"),
]


@pytest.mark.parametrize(("value", "expected"), GOLDEN, ids=[repr(value) for value, _ in GOLDEN])
def test_golden(value: Any, expected: str) -> None:
    assert digest(DOMAIN, value) == expected


def test_the_golden_values_differ_pairwise() -> None:
    # 1, 1.0, True and "1"; "" and b"" and [] and {} and None; "v1"+"2b" and "v12"+"b"; 0.0 and -0.0.
    assert len({expected for _, expected in GOLDEN}) == len(GOLDEN)


def test_the_encoding_written_out_by_hand() -> None:
    def frame(tag: bytes, payload: bytes) -> bytes:
        return tag + struct.pack(">Q", len(payload)) + payload

    # Keys sort by their UTF-8 bytes: "a" before "b", whatever the order of insertion.
    listed = frame(b"L", frame(b"B", b"\x01") + frame(b"N", b""))
    pairs = frame(b"S", b"a") + frame(b"I", b"1") + frame(b"S", b"b") + listed
    expected = hashlib.sha256(frame(b"D", DOMAIN.encode()) + frame(b"M", pairs)).hexdigest()

    assert digest(DOMAIN, {"b": [True, None], "a": 1}) == expected


def test_domains_separate() -> None:
    assert digest("mutoscope.test/2", 1) == "d84addc110fe23973347cbde241f081e848946d780fa9da4c29ca2aeed10b2a5"
    assert digest("mutoscope.test/2", 1) != digest(DOMAIN, 1)


def test_equal_data_in_other_containers_is_equal() -> None:
    assert digest(DOMAIN, (1, 2)) == digest(DOMAIN, [1, 2])
    assert digest(DOMAIN, MappingProxyType({"a": 1})) == digest(DOMAIN, {"a": 1})


class Prompt(str, Enum):  # noqa: UP042 - prints its name, which is the point
    RED = "a red circle"


class Steps(IntEnum):
    FEW = 4


def test_a_subclass_is_what_it_holds_and_not_what_it_prints() -> None:
    assert str(Prompt.RED) == "Prompt.RED"
    assert digest(DOMAIN, Prompt.RED) == digest(DOMAIN, "a red circle")
    assert digest(DOMAIN, {"n": Steps.FEW}) == digest(DOMAIN, {"n": 4})


def test_text_is_not_normalised() -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    assert digest(DOMAIN, composed) != digest(DOMAIN, decomposed)


HOLDS_ITSELF: list[Any] = []
HOLDS_ITSELF.append(HOLDS_ITSELF)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, {"b": object()}]}, f"{DOMAIN}.a[1].b"),
        ({1: "key"}, DOMAIN),
        (float("nan"), DOMAIN),
        ([float("inf")], f"{DOMAIN}[0]"),
        ({1, 2}, DOMAIN),
        ({"text": "\ud800"}, f"{DOMAIN}.text"),
        ({"\ud800": "text"}, f"a key of {DOMAIN}"),
        ({"a": bytearray(b"1")}, f"{DOMAIN}.a"),
        ([range(3)], f"{DOMAIN}[0]"),
        ({"n": [10**5000]}, f"{DOMAIN}.n[0]"),
        (HOLDS_ITSELF, DOMAIN),
    ],
)
def test_what_has_no_encoding_is_refused_by_path(value: Any, path: str) -> None:
    with pytest.raises(UnhashableInput) as refused:
        digest(DOMAIN, value)
    assert str(refused.value).startswith(path)


def test_sha256_is_that_of_the_standard() -> None:
    # FIPS 180-4, the example "abc".
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_ids_sort_by_creation() -> None:
    ids = [new_id() for _ in range(1000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 1000
    assert all(len(text) == 36 and text[14] == "7" for text in ids)
