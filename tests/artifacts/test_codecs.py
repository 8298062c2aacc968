"""Stills, tensors, text and plain data: what goes in comes out, and equal values are equal bytes."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mutoscope.platform.artifacts import codecs
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.refs import KINDS

IMAGE = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def round_trip(kind: str, value: Any) -> Any:
    encoded = codecs.encode(kind, value)
    return codecs.decode(kind, encoded.data, encoded.media_type)


def test_an_image_is_a_png_of_the_same_pixels() -> None:
    encoded = codecs.encode("image", IMAGE, {"prompt": "a circle"})
    assert encoded.media_type == "image/png"
    assert encoded.meta == {"prompt": "a circle", "height": 6, "width": 8}
    with Image.open(io.BytesIO(encoded.data)) as picture:
        assert (picture.format, picture.size, picture.info) == ("PNG", (8, 6), {})
    assert np.array_equal(round_trip("image", IMAGE), IMAGE)
    assert np.array_equal(round_trip("image", IMAGE[::-1, ::-1]), IMAGE[::-1, ::-1])


def test_pictures_from_outside_are_flattened_to_rgb() -> None:
    picture = Image.new("RGBA", (2, 1), (200, 0, 0, 0))
    picture.putpixel((1, 0), (10, 20, 30, 255))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    # Transparent shows the white paper; opaque stays.
    assert codecs.decode("image", buffer.getvalue(), "image/png").tolist() == [
        [[255, 255, 255], [10, 20, 30]]
    ]
    buffer = io.BytesIO()
    Image.new("L", (16, 16), 77).save(buffer, "JPEG", quality=100)
    assert codecs.decode("image", buffer.getvalue(), "image/jpeg").tolist()[0][0] == [77, 77, 77]


@pytest.mark.parametrize("kind", ["latent", "embedding"])
def test_arrays_keep_names_types_and_shapes(kind: str) -> None:
    arrays = {
        "float16": ARRAY.astype(np.float16),
        "transposed": ARRAY.T,
        "big-endian": ARRAY.astype(">f4"),
        "int64": np.array([2**40, -1]),
        "bool": np.array([True, False]),
        "scalar": np.array(3.5),
    }
    decoded = round_trip(kind, arrays)
    assert set(decoded) == set(arrays)
    for name, array in arrays.items():
        assert decoded[name].shape == array.shape
        assert decoded[name].dtype == array.dtype.newbyteorder("=")
        assert np.array_equal(decoded[name], array)


def test_one_array_comes_back_as_one_array() -> None:
    assert isinstance(round_trip("latent", ARRAY), np.ndarray)
    assert np.array_equal(round_trip("latent", ARRAY), ARRAY)
    # A mapping that happens to use the same name stays a mapping.
    assert set(round_trip("latent", {"array": ARRAY})) == {"array"}
    assert codecs.encode("latent", ARRAY).meta == {"tensors": {"array": "float32[2, 3]"}}
    assert codecs.encode("latent", {str(i): ARRAY for i in range(9)}).meta == {"count": 9}


def test_text_and_plain_data() -> None:
    assert round_trip("text", "a red circle → ●\n") == "a red circle → ●\n"
    assert codecs.encode("text", "é").data == b"\xc3\xa9"
    data = {"b": [1, 2.5, None], "a": {"é": True}}
    assert round_trip("json", data) == data
    assert codecs.encode("json", data).data == '{"a":{"é":true},"b":[1,2.5,null]}\n'.encode()
    assert codecs.encode("json", {"b": 1, "a": 2}).data == codecs.encode("json", {"a": 2, "b": 1}).data
    assert codecs.decode("weights", b'{"files":[]}', "application/vnd.example+json") == {"files": []}
    assert round_trip("blob", b"\x00\xff") == b"\x00\xff"


ENCODE_ALL = """
import hashlib, numpy as np
from mutoscope.platform.artifacts import codecs
rng = np.random.default_rng(1)
image = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
arrays = {name: rng.normal(size=(3, 4)).astype(np.float32) for name in ("zeta", "alpha", "mid", "beta")}
video = rng.integers(0, 256, (5, 32, 48, 3), dtype=np.uint8)
for kind, value, meta in (("image", image, {}), ("latent", arrays, {}), ("latent", arrays["mid"], {}),
                          ("json", {"b": 1, "a": 2}, {}), ("video", video, {"fps": 8})):
    print(hashlib.sha256(codecs.encode(kind, value, meta).data).hexdigest())
"""


def test_equal_values_are_equal_bytes_in_every_process() -> None:
    # Other processes hash text differently, so an order taken from a hash map would show here.
    runs = [
        subprocess.run(
            [sys.executable, "-c", ENCODE_ALL],
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONHASHSEED": seed, "PATH": "", "HOME": "/nonexistent"},
        )
        for seed in ("1", "2")
    ]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr
    assert runs[0].stdout == runs[1].stdout
    assert len(set(runs[0].stdout.split())) == 5


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("image", IMAGE.astype(np.float32), r"image='float32\[6, 8, 3\]' is not valid: use a uint8 array"),
        ("image", IMAGE[..., :1], r"uint8\[6, 8, 1\]"),
        ("image", [[0]], "list"),
        ("latent", {}, "non-empty mapping"),
        ("latent", {"a": [1]}, "mapping of names to arrays"),
        ("latent", {"a": np.array(["text"])}, "numeric arrays"),
        ("text", b"bytes", "use str"),
        ("text", "\ud800", "surrogates"),
        ("json", {"a": float("nan")}, "plain JSON"),
        ("json", {"a": {1, 2}}, "plain JSON"),
        ("blob", "text", "use bytes"),
        ("audio", IMAGE, "use a float32 array"),
    ],
)
def test_values_of_another_kind_are_refused(kind: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        codecs.encode(kind, value)


@pytest.mark.parametrize(
    ("kind", "media_type"),
    [
        ("image", "image/png"),
        ("video", "video/mp4"),
        ("latent", "application/x-safetensors"),
        ("json", "application/json"),
        ("text", "text/plain; charset=utf-8"),
        ("image", "image/x-unheard-of"),
    ],
)
@pytest.mark.parametrize("data", [b"\xff\xfe garbage", b"\xff"])
def test_bytes_of_another_type_are_refused(kind: str, media_type: str, data: bytes) -> None:
    with pytest.raises(InvalidParameter):
        codecs.decode(kind, data, media_type)


def test_a_truncated_image_is_refused() -> None:
    encoded = codecs.encode("image", IMAGE)
    with pytest.raises(InvalidParameter, match="readable PNG"):
        codecs.decode("image", encoded.data[:60], encoded.media_type)


def test_every_kind_has_a_codec_or_says_that_it_has_none() -> None:
    with pytest.raises(InvalidParameter) as refused:
        codecs.encode("nothing", b"")
    assert {kind for kind in KINDS if kind not in str(refused.value)} == set()
