"""Which calls have been seen to give a row the same bits in company as alone."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any


class Proofs:
    """Verdicts by the object that is called and by a name. Holds no object alive that can be held weakly."""

    def __init__(self) -> None:
        self._weak: weakref.WeakKeyDictionary[Any, dict[Hashable, bool]] = weakref.WeakKeyDictionary()
        self._strong: dict[int, tuple[Any, dict[Hashable, bool]]] = {}

    def enter(self, owner: Any, name: Hashable, holds: bool) -> None:
        """Keep a verdict."""
        self._of(owner)[name] = holds

    def known(self, owner: Any, name: Hashable) -> bool:
        """Whether the object was judged."""
        return name in self._of(owner)

    def refuted(self, owner: Any, name: Hashable) -> bool:
        """Whether it was judged and failed."""
        return not self._of(owner).get(name, True)

    def _of(self, owner: Any) -> dict[Hashable, bool]:
        try:
            return self._weak.setdefault(owner, {})
        except TypeError:  # slots without __weakref__, or equality without a hash
            return self._strong.setdefault(id(owner), (owner, {}))[1]
