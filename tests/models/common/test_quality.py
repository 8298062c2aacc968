"""PSNR and SSIM against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mutoscope.models.common.quality import WIDTH, WINDOW, psnr, ssim

RNG = np.random.default_rng(0)
FRAMES = RNG.integers(0, 256, (2, 16, 20, 3), dtype=np.uint8)
NOISY = np.clip(FRAMES.astype(int) + RNG.integers(-20, 21, FRAMES.shape), 0, 255).astype(np.uint8)


def by_definition(x: np.ndarray, y: np.ndarray) -> float:
    """SSIM of Wang et al. with a loop over places, one plane at a time."""
    at = np.arange(WINDOW) - WINDOW // 2
    line = np.exp(-(at**2) / (2 * WIDTH**2))
    weights = np.outer(line, line) / line.sum() ** 2
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    values = []
    for frame in range(x.shape[0]):
        for channel in range(3):
            for top in range(x.shape[1] - WINDOW + 1):
                for left in range(x.shape[2] - WINDOW + 1):
                    place = (frame, slice(top, top + WINDOW), slice(left, left + WINDOW), channel)
                    a, b = x[place].astype(float), y[place].astype(float)
                    mean_a, mean_b = (weights * a).sum(), (weights * b).sum()
                    variance_a = (weights * (a - mean_a) ** 2).sum()
                    variance_b = (weights * (b - mean_b) ** 2).sum()
                    covariance = (weights * (a - mean_a) * (b - mean_b)).sum()
                    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
                    values.append(luminance * (2 * covariance + c2) / (variance_a + variance_b + c2))
    return float(np.mean(values))


def test_ssim_is_the_mean_of_its_definition() -> None:
    assert ssim(FRAMES, NOISY) == pytest.approx(by_definition(FRAMES, NOISY), abs=1e-10)
    assert ssim(FRAMES, 255 - FRAMES) == pytest.approx(by_definition(FRAMES, 255 - FRAMES), abs=1e-10)


def test_equal_frames() -> None:
    assert ssim(FRAMES, FRAMES) == pytest.approx(1)
    assert psnr(FRAMES, FRAMES) == math.inf


def test_psnr_of_a_known_error() -> None:
    """One level off everywhere: 20 log10(255) = 48.13 dB; uint8 differences must not wrap around."""
    dark = np.zeros((1, 16, 16, 3), np.uint8)
    assert psnr(dark, dark + 1) == psnr(dark + 1, dark) == pytest.approx(48.1308, abs=1e-4)
    assert psnr(dark, dark + 255) == pytest.approx(0)


def test_flat_frames_differ_in_luminance_alone() -> None:
    low, high = np.full((1, 16, 16, 3), 100, np.uint8), np.full((1, 16, 16, 3), 150, np.uint8)
    c1 = 2.55**2
    assert ssim(low, high) == pytest.approx((2 * 100 * 150 + c1) / (100**2 + 150**2 + c1))


def test_frames_smaller_than_the_window_are_refused() -> None:
    with pytest.raises(ValueError, match="11 x 11 pixels or more"):
        ssim(FRAMES[:, :8], FRAMES[:, :8])
