"""Where the weights that ship with the package lie. No torch."""

from __future__ import annotations

from pathlib import Path

WEIGHTS = Path(__file__).with_name("weights")


def starter_folder(card_id: str) -> Path | None:
    """The card folder of starter weights for a card, or None if none ship for it."""
    folder = WEIGHTS / card_id
    return folder if (folder / "model_index.json").is_file() else None
