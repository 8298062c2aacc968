"""Where the ticks of an axis lie, and how numbers are told beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of numbers on a range of pixels; `begin` may be the larger of the two pixels.

    Attributes:
        least, most: the numbers at its ends, of which the second is the larger.
    """

    least: float
    most: float
    begin: float
    end: float

    @classmethod
    def over(cls, values: Iterable[float], begin: float, end: float) -> Axis:
        """An axis that holds all values, with a little room; around the one value where there is no range."""
        held = list(values) or [0.0]
        least, most = min(held), max(held)
        room = 0.05 * (most - least) or 0.05 * abs(most) or 0.5
        return cls(least - room, most + room, begin, end)

    def place(self, value: float) -> float:
        """The value's pixel."""
        return self.begin + (value - self.least) / (self.most - self.least) * (self.end - self.begin)

    def ticks(self, wanted: int) -> Sequence[float]:
        """Round numbers within the range, about so many of them."""
        rough = (self.most - self.least) / max(1, wanted)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(one for one in (power, 2 * power, 5 * power, 10 * power) if one >= rough)
        first = math.ceil(self.least / step)
        return [number * step for number in range(first, math.floor(self.most / step) + 1)]


def told(value: float) -> str:
    """A number in few letters."""
    text = f"{value:.4g}"
    return "0" if float(text) == 0 else text
