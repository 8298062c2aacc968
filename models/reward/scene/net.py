"""The network that reads a starter scene: which colours are where, in which shapes, on what background.

It is trained on rendered pictures and answers with probabilities and soft measures only, so that a picture
which is nearly right earns nearly everything. The independent judge (`models/starter/checker.py`) thresholds,
labels and measures silhouettes instead; the two share the words and nothing else.

Shape suffixes
    B  pictures          C  colour words        S  shape words, and one more answer: not in the picture
    H, W  32 x 32        Y, X  16 x 16          D  channels
    G  background words  N  answers to "how many objects": 0, 1, 2, more
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.modeling_utils import ModelMixin
from torch import Tensor, nn

SIDE = 64
"""Pictures are read at SIDE x SIDE pixels, which is also the unit of centres and sizes."""


class Reading(NamedTuple):
    """What the network sees, every entry with the pictures along its first axis.

    Attributes:
        area_BC: pixels of each colour's objects.
        centre_BC2: their centroid (x, y), pixels.
        shape_BCS: probability of each shape; the last entry: no object of the colour.
        ground_BG, count_BN: probabilities.
    """

    area_BC: Tensor
    centre_BC2: Tensor
    shape_BCS: Tensor
    ground_BG: Tensor
    count_BN: Tensor


class Answers(NamedTuple):
    """The network's raw answers, from which readings and the training loss are made: logits throughout."""

    ink_BCHW: Tensor
    """C + 1 channels; the last one is the background."""
    shape_BCS: Tensor
    ground_BG: Tensor
    count_BN: Tensor


class SceneScorer(ModelMixin, ConfigMixin):
    """A small convolutional network over the words of its configuration, in their order."""

    @register_to_config
    def __init__(
        self,
        colours: tuple[str, ...],
        shapes: tuple[str, ...],
        backgrounds: tuple[str, ...],
        stem_width: int = 32,
        width: int = 48,
        counts: int = 4,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, stem_width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(stem_width, stem_width, 3, padding=1),
            nn.SiLU(),
        )
        self.down = nn.Sequential(nn.Conv2d(stem_width, width, 4, stride=2, padding=1), nn.SiLU())
        # Dilation lets 16 x 16 features see a whole object, and where it ends.
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=d, dilation=d) for d in (1, 2, 1, 2))
        self.up = nn.Conv2d(width, stem_width, 1)
        self.ink = nn.Conv2d(stem_width, len(colours) + 1, 1)
        self.shape = nn.Sequential(nn.Linear(width + 1, width), nn.SiLU(), nn.Linear(width, len(shapes) + 1))
        self.ground = nn.Linear(width, len(backgrounds))
        self.count = nn.Sequential(
            nn.Linear(2 * width + len(colours), width), nn.SiLU(), nn.Linear(width, counts)
        )

    def forward(self, pixels_B3HW: Tensor) -> Reading:
        """Read pictures, signals in [-1, 1] of 64 x 64 pixels."""
        answers = self.answer(pixels_B3HW)
        ink_BCHW = answers.ink_BCHW.softmax(1)[:, :-1]
        cells = ink_BCHW.shape[-1]
        unit = (SIDE / cells) ** 2
        mass_BC = ink_BCHW.sum((2, 3))
        at = (torch.arange(cells, device=ink_BCHW.device, dtype=ink_BCHW.dtype) + 0.5) * (SIDE / cells)
        x_BC = (ink_BCHW.sum(2) * at).sum(-1) / mass_BC.clamp_min(1e-6)
        y_BC = (ink_BCHW.sum(3) * at).sum(-1) / mass_BC.clamp_min(1e-6)
        return Reading(
            area_BC=mass_BC * unit,
            centre_BC2=torch.stack([x_BC, y_BC], -1),
            shape_BCS=answers.shape_BCS.softmax(-1),
            ground_BG=answers.ground_BG.softmax(-1),
            count_BN=answers.count_BN.softmax(-1),
        )

    def answer(self, pixels_B3HW: Tensor) -> Answers:
        """The raw answers to pictures."""
        fine_BDHW = self.stem(pixels_B3HW)
        coarse_BDYX = self.down(fine_BDHW)
        for block in self.blocks:
            coarse_BDYX = coarse_BDYX + nn.functional.silu(block(coarse_BDYX))
        raised_BDHW = nn.functional.interpolate(self.up(coarse_BDYX), scale_factor=2, mode="nearest")
        ink_BCHW = self.ink(nn.functional.silu(fine_BDHW + raised_BDHW))

        share_BCYX = nn.functional.avg_pool2d(ink_BCHW.softmax(1), 2)
        mass_BC1 = share_BCYX.sum((2, 3)).unsqueeze(-1)
        # A colour that is hardly there has no features, rather than features of noise.
        pooled_BCD = torch.einsum("bcyx,bdyx->bcd", share_BCYX, coarse_BDYX) / (mass_BC1 + 1.0)
        objects_BCD, ground_BD = pooled_BCD[:, :-1], pooled_BCD[:, -1]
        sizes_BC1 = mass_BC1[:, :-1].sqrt() / 8
        whole_BD = torch.cat([coarse_BDYX.amax((2, 3)), coarse_BDYX.mean((2, 3)), sizes_BC1.squeeze(-1)], -1)
        return Answers(
            ink_BCHW=ink_BCHW,
            shape_BCS=self.shape(torch.cat([objects_BCD, sizes_BC1], -1)),
            ground_BG=self.ground(ground_BD),
            count_BN=self.count(whole_BD),
        )
