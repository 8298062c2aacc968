"""A resident: what the requests of a card are served from now."""

from __future__ import annotations

from mutoscope.platform.engine.instance import Instance


class Resident:
    """The place of a card in memory, and the instance that holds it.

    An instance stays what it is for good; a weight sync puts another one in its place. A request submitted to
    a resident runs, from its first step to its last, on the instance that is there when it begins. Calling it
    gives that instance.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    @property
    def instance(self) -> Instance:
        """The current one."""
        return self._instance

    def __call__(self) -> Instance:
        return self._instance

    def bump(self, instance: Instance) -> None:
        """Serve from another instance of the card. Only a weight sync does this."""
        if instance.card.id != self._instance.card.id:
            raise ValueError(f"a resident of {self._instance.card.id} cannot become {instance.card.id}")
        self._instance = instance
