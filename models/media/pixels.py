"""Clips as frames."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def frames_of(video: Any) -> NDArray[np.uint8]:
    """A clip's frames, uint8 (T, H, W, 3), whether or not it carries sound."""
    return np.asarray(getattr(video, "frames_THWC", video))
