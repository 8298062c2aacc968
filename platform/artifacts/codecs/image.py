"""Images: uint8 arrays (H, W, 3), sRGB, as PNG."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from mutoscope.platform.artifacts.codecs.encoded import Encoded
from mutoscope.platform.errors import InvalidParameter

MEDIA_TYPE = "image/png"


def encode(value: Any, meta: dict[str, Any]) -> Encoded:
    """PNG without timestamps or text chunks. Meta gains ``height`` and ``width``, pixels."""
    if not (
        isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3
    ):
        raise InvalidParameter("image", describe(value), "use a uint8 array of shape (height, width, 3)")
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(value)).save(buffer, format="PNG")
    return Encoded(buffer.getvalue(), MEDIA_TYPE, {**meta, "height": value.shape[0], "width": value.shape[1]})


def decode(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """uint8 (H, W, 3). Also reads JPEG and WebP given from outside; transparency is flattened onto white."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            if "A" in image.getbands() or "transparency" in image.info:
                layer = image.convert("RGBA")
                canvas = Image.new("RGBA", layer.size, "white")
                return np.asarray(Image.alpha_composite(canvas, layer).convert("RGB"), dtype=np.uint8).copy()
            return np.asarray(image.convert("RGB"), dtype=np.uint8).copy()
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise InvalidParameter(
            "image", f"{len(data)} bytes", f"use a readable PNG, JPEG or WebP ({error})"
        ) from None


def describe(value: Any) -> str:
    """Type and shape of a value for an error line."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return type(value).__name__
