"""The given image as the first frame of a video."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mutoscope.models.common.video_codec import LatentCodec
from mutoscope.platform import ids
from mutoscope.platform.engine.request import Request
from mutoscope.platform.errors import InvalidParameter

_IMAGE_DOMAIN = "mutoscope.image-input/1"


@dataclass(frozen=True, slots=True)
class PictureEncode:
    """Fills `first_BCTYX`, the latent (T = 1) of the given image; None without one.

    A video's first latent frame holds its first frame alone, and the encoder is causal: the frames that the
    pipeline encodes behind it have no say in it.
    """

    codec: LatentCodec

    def __call__(self, slots: Mapping[str, Any]) -> Mapping[str, Any]:
        if "image" not in slots:
            return {"first_BCTYX": None}
        frame_B3YX = covering(slots["image"], *_size(slots)).to(self.codec.device)
        return {"first_BCTYX": self.codec.encode(frame_B3YX.unsqueeze(2))}

    def content(self, slots: Mapping[str, Any]) -> tuple[str, int, int] | None:
        """The image's digest, and the size it is brought to."""
        if "image" not in slots:
            return None
        image = slots["image"]
        digest = ids.digest(_IMAGE_DOMAIN, {"shape": list(image.shape), "pixels": image.tobytes()})
        return (digest, *_size(slots))


def covering(image_YXC: NDArray[np.uint8], height: int, width: int) -> Tensor:
    """An image scaled to cover the size and cropped to it in the middle, float32 (1, 3, Y, X) in [-1, 1].

    Its pixels are rounded to 8 bits again, as the pipeline's are.
    """
    image = torch.from_numpy(np.ascontiguousarray(image_YXC)).permute(2, 0, 1)[None].float()
    scale = max(width / image.shape[-1], height / image.shape[-2])
    rows, columns = (math.ceil(scale * side) for side in image.shape[-2:])
    scaled = functional.interpolate(
        image, size=(rows, columns), mode="bilinear", align_corners=False, antialias=True
    )
    top, left = round((rows - height) / 2), round((columns - width) / 2)
    cropped = scaled[:, :, top : top + height, left : left + width]
    return cropped.round().clamp(0, 255) / 127.5 - 1.0


def check_picture(request: Request) -> None:
    """Refuse an image that would not be read. Raises InvalidParameter."""
    if "image" in request.inputs and request.parameters["num_frames"] == 1:
        raise InvalidParameter("num_frames", 1, "use 5 or more, or leave the image out: it is a first frame")


def _size(slots: Mapping[str, Any]) -> tuple[int, int]:
    parameters = slots["request"].parameters
    return parameters["height"], parameters["width"]
