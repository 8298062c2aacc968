"""How far what was read is from what was wanted."""

from __future__ import annotations

import unicodedata


def normalised(text: str, *, match_case: bool = False) -> str:
    """Text as it is compared: Unicode NFKC, runs of white space as one space, case folded unless it counts.

    Punctuation counts. Lines are joined by a space, since where a line breaks is a matter of layout.
    """
    plain = " ".join(unicodedata.normalize("NFKC", text).split())
    return plain if match_case else plain.casefold()


def similarity(read: str, wanted: str) -> float:
    """1 − Levenshtein distance / length of the longer text: 1 for equal texts, 0 where nothing agrees.

    Text beside the wanted one counts against it, so that covering a picture with letters earns nothing.
    """
    longer = max(len(read), len(wanted))
    return 1.0 - edit_distance(read, wanted) / longer if longer else 1.0


def edit_distance(one: str, other: str) -> int:
    """Fewest insertions, deletions and replacements of a character that turn `one` into `other`."""
    above = list(range(len(other) + 1))
    for row, left in enumerate(one, start=1):
        here = [row]
        for column, right in enumerate(other, start=1):
            replaced = above[column - 1] + (left != right)
            here.append(min(above[column] + 1, here[column - 1] + 1, replaced))
        above = here
    return above[-1]
