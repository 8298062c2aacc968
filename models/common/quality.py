"""How close one video is to another: PSNR, and SSIM as in Wang et al., IEEE TIP 13(4), 2004.

Frames are uint8 (F, Y, X, C).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Frames = NDArray[np.uint8]

PEAK = 255.0
WINDOW, WIDTH = 11, 1.5
"""SSIM's Gaussian window: pixels a side, and standard deviation."""

_C1, _C2 = (0.01 * PEAK) ** 2, (0.03 * PEAK) ** 2


def psnr(frames: Frames, reference: Frames) -> float:
    """Peak signal to noise ratio over all elements, dB; infinite for equal frames."""
    error = float(np.square(frames.astype(np.float64) - reference).mean())
    return math.inf if error == 0 else 10 * math.log10(PEAK**2 / error)


def ssim(frames: Frames, reference: Frames) -> float:
    """Structural similarity, the mean over frames, channels and all places where the window fits; at most 1.

    Raises:
        ValueError: frames smaller than the window.
    """
    if min(frames.shape[1:3]) < WINDOW:
        raise ValueError(f"SSIM needs frames of {WINDOW} x {WINDOW} pixels or more, not {frames.shape[1:3]}")
    x, y = _planes(frames), _planes(reference)
    mean_x, mean_y = _blurred(x), _blurred(y)
    variance_x, variance_y = _blurred(x * x) - mean_x**2, _blurred(y * y) - mean_y**2
    covariance = _blurred(x * y) - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + _C1) / (mean_x**2 + mean_y**2 + _C1)
    structure = (2 * covariance + _C2) / (variance_x + variance_y + _C2)
    return float((luminance * structure).mean())


def _planes(frames: Frames) -> Tensor:
    """Each channel of each frame as a plane, float64 (F x C, 1, Y, X)."""
    planes: Any = torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2)
    return planes.reshape(-1, 1, *frames.shape[1:3]).double()


def _blurred(planes: Tensor) -> Tensor:
    """Gaussian-weighted means, where the window fits."""
    at = torch.arange(WINDOW, dtype=torch.float64) - WINDOW // 2
    weights = torch.exp(-(at**2) / (2 * WIDTH**2))
    weights = weights / weights.sum()
    rows = torch.nn.functional.conv2d(planes, weights.view(1, 1, -1, 1))
    return torch.nn.functional.conv2d(rows, weights.view(1, 1, 1, -1))
