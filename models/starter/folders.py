"""Where the weights lie that ship with the package, or with one it was installed with. No torch."""

from __future__ import annotations

from pathlib import Path

from mutoscope.models.reward.ocr.folder import packaged_folder

WEIGHTS = Path(__file__).with_name("weights")


def starter_folder(card_id: str) -> Path | None:
    """The card folder of starter weights for a card, or None if none ship for it."""
    if card_id == "reward-ocr":
        return packaged_folder()
    folder = WEIGHTS / card_id
    return folder if (folder / "model_index.json").is_file() else None
