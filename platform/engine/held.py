"""Which weights a module holds after they were replaced in place.

An instance names the weights it was assembled over. Most modules hold those for good. One that a sync wrote
into does not, and every instance and every view made before is a mixture from then on: it must not start
another request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from mutoscope.platform.engine.views import origin_of
from mutoscope.platform.errors import RunFailed

_held: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()


def note_replaced(module: Any, digest: str | None) -> None:
    """Note what a module holds from now on; None if nobody can tell."""
    _held[module] = digest


def require_held(card_id: str, components: Mapping[str, Any], weights: Mapping[str, str]) -> None:
    """Refuse components whose modules hold other weights by now than those they are said to have.

    Raises:
        RunFailed: names the component and both versions.
    """
    if not _held:
        return
    for name, component in components.items():
        origin = origin_of(component)
        module, expected = (component, weights.get(name)) if origin is None else (origin.base, origin.digest)
        try:
            holds = _held.get(module, expected)
        except TypeError:  # what cannot be referred to weakly, a schedule or a tokenizer, is never written to
            continue
        if holds != expected:
            told = "holds unknown weights" if holds is None else f"holds {holds[:12]}"
            raise RunFailed(
                f"{name} of this {card_id} {told} since a sync, not {(expected or 'its own')[:12]}: "
                "submit to the resident, or load the instance anew"
            )
