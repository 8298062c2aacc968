"""The curves of a training as TensorBoard reads them. Needs the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mutoscope.platform.errors import InvalidInput


class TensorBoardMissing(InvalidInput):
    """TensorBoard's writer is not installed here."""


def export(series: Mapping[str, Any], folder: Path) -> int:
    """Write every line of every panel as scalars into an event file below `folder`; returns how many numbers.

    Args:
        series: as `curves.series` makes it.

    Raises:
        TensorBoardMissing: the extra is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise TensorBoardMissing(
            f"TensorBoard's writer is not installed ({error}): pip install 'mutoscope[tensorboard]'"
        ) from None
    count = 0
    writer: Any = SummaryWriter(log_dir=str(folder))
    try:
        for panel in series["panels"]:
            for name, line in panel["lines"].items():
                for x, y in line:
                    if y is not None:
                        writer.add_scalar(f"{panel['title']}/{name}", y, global_step=x)
                        count += 1
    finally:
        writer.close()
    return count
