"""What differs between the recipes of two artifacts.

The two are walked together, from the artifacts back, inputs aligned by role. Where an input is the same bytes
on both sides the walk ends: whatever made them, it was the same thing. Where the bytes differ, the runs that
made them are compared in turn, so that a difference is named once, at the step it comes from.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from mutoscope.platform.catalog.graph import ArtifactNode, Edge, place_of
from mutoscope.platform.catalog.incidents import Incident, to_incident
from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.recipes import Recipes
from mutoscope.platform.catalog.records import WEIGHTS_ROLE, RunRecord
from mutoscope.platform.catalog.tables import incidents
from mutoscope.platform.wording import plain

SHOWN_ROLES = 4
"""Roles of a step's path that are kept: a chain of thousands of steps must not carry thousands each."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a recipe that differs. Values are words for people; None: absent on that side."""

    field: str
    left: str | None
    right: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """Two runs that stand at the same place of two recipes, where they differ.

    Attributes:
        depth: inputs between the artifacts compared and here; 0 for the runs that made those.
        path: the roles that lead here, the last `SHOWN_ROLES` of them.
        left, right: the artifacts made here; left_run, right_run: what made them, None where nothing is on
            record.
        differences: in the order people ask: card, weights, parameters, seed, inputs, then the machine.
        unexplained: nothing differs in what went in, and yet other bytes came out.
    """

    depth: int
    path: tuple[str, ...]
    left: ArtifactNode
    right: ArtifactNode
    left_run: RunRecord | None
    right_run: RunRecord | None
    differences: tuple[Difference, ...]
    unexplained: bool


@dataclass(frozen=True, slots=True)
class Diff:
    """What differs between two recipes.

    Attributes:
        left_run, right_run: what made the two artifacts, None where nothing is on record.
        steps: those that differ, nearest to the artifacts first.
        compared: pairs of runs that were compared.
        equal: how many fields of each sort were equal in them.
        incidents: determinism incidents on record about the steps that are unexplained.
    """

    left: ArtifactNode
    right: ArtifactNode
    left_run: RunRecord | None
    right_run: RunRecord | None
    steps: tuple[Step, ...]
    compared: int
    equal: Mapping[str, int]
    incidents: tuple[Incident, ...]

    @property
    def same_bytes(self) -> bool:
        """The two are one artifact."""
        return self.left.ref.digest == self.right.ref.digest


def compare(connection: Connection, recipes: Recipes, left: str, right: str) -> Diff:
    """Compare the recipes of two artifacts, by digest. Both must be in `recipes`."""
    steps: list[Step] = []
    equal: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    # A queue instead of a recursion: chains are thousands of runs long, and nearer steps come first.
    pending = deque([_Place(0, (), left, right)] if left != right else [])
    while pending:
        place = pending.popleft()
        if (place.left, place.right) in seen:
            continue
        seen.add((place.left, place.right))
        step, further = _compare_step(recipes, place, equal)
        if step.differences or step.unexplained:
            steps.append(step)
        pending.extend(further)
    return Diff(
        left=recipes.artifacts[left],
        right=recipes.artifacts[right],
        left_run=recipes.maker(left),
        right_run=recipes.maker(right),
        steps=tuple(steps),
        compared=len(seen),
        equal=dict(equal),
        incidents=_incidents(connection, steps),
    )


_Pair = tuple[str, str | None, str | None]
"""A field with its value on either side."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Two artifacts to compare the making of; see `Step`."""

    depth: int
    path: tuple[str, ...]
    left: str
    right: str

    def behind(self, role: str, left: str, right: str) -> _Place:
        return _Place(self.depth + 1, (*self.path, role)[-SHOWN_ROLES:], left, right)


def _compare_step(recipes: Recipes, place: _Place, equal: Counter[str]) -> tuple[Step, list[_Place]]:
    """The step, and the inputs whose making to compare next."""
    nodes = recipes.artifacts[place.left], recipes.artifacts[place.right]
    runs = recipes.maker(place.left), recipes.maker(place.right)
    left, right = runs
    if left is None or right is None:
        unlike = Difference("made by", _shown_run(left), _shown_run(right))
        return Step(place.depth, place.path, *nodes, *runs, (unlike,), False), []
    slots = recipes.makers[place.left].role, recipes.makers[place.right].role
    differences = list(_differing("output", [("output", *slots)], equal))
    further: list[_Place] = []
    if left.id != right.id:
        differences += _fields(recipes, left, right, equal)
        differences += _inputs(recipes, left, right, equal, place, further)
        differences += _machine(left, right, equal)
    unexplained = not differences and not further
    return Step(place.depth, place.path, *nodes, *runs, tuple(differences), unexplained), further


def _fields(recipes: Recipes, left: RunRecord, right: RunRecord, equal: Counter[str]) -> Iterator[Difference]:
    """Card, kind of run, weights, parameters and seed."""
    yield from _differing("card", [("card", left.card or left.kind, right.card or right.kind)], equal)
    yield from _differing("kind", [("kind", left.kind, right.kind)], equal)
    same_card = left.card == right.card
    weights = _aligned(_weights(recipes, left), _weights(recipes, right))
    parameters = _aligned(flat(left.parameters), flat(right.parameters))
    if not same_card:
        # Another card has other components and parameters: only what both have is worth comparing.
        weights, parameters = _shared(weights), _shared(parameters)
    in_roles = [(f"{WEIGHTS_ROLE}{name}", one, other) for name, one, other in weights]
    yield from _differing("weights", in_roles, equal)
    yield from _differing("parameters", parameters, equal)
    if (left.seed, right.seed) != (None, None):
        yield from _differing("seed", [("seed", plain(left.seed), plain(right.seed))], equal)


def _inputs(
    recipes: Recipes,
    left: RunRecord,
    right: RunRecord,
    equal: Counter[str],
    place: _Place,
    further: list[_Place],
) -> Iterator[Difference]:
    """Inputs that only one side has, or that differ with nothing on record to explain it. Those that a run
    made are for `further`: what differs in the making is the difference."""
    sides = _slots(recipes, left), _slots(recipes, right)
    for key in sorted({*sides[0], *sides[1]}):
        one, other = sides[0].get(key), sides[1].get(key)
        role = place_of(*key)
        if one == other:
            equal["inputs"] += 1
        elif one and other and one in recipes.makers and other in recipes.makers:
            further.append(place.behind(role, one, other))
        else:
            yield Difference(
                role, *(str(recipes.artifacts[end].ref) if end else None for end in (one, other))
            )


def _machine(left: RunRecord, right: RunRecord, equal: Counter[str]) -> Iterator[Difference]:
    """What the runs ran on: code, numeric contract with its library versions, and all else in the key."""
    if left.card == right.card:
        code = ("code", _short(left.card_digest), _short(right.card_digest))
        yield from _differing("code", [code], equal)
    parts = left.key_parts or {}, right.key_parts or {}
    others = [{name: part[name] for name in part if name not in _ELSEWHERE} for part in parts]
    yield from _differing("numerics", _aligned(flat(others[0]), flat(others[1])), equal)
    if not all("numeric" in part for part in parts):
        yield from _differing(
            "numerics", [("contract", _short(left.contract), _short(right.contract))], equal
        )


_ELSEWHERE = ("card", "card_digest", "inputs", "parameters", "seed", "weights")
"""Key parts that columns and edges hold too, and that are compared there."""


def _differing(sort: str, pairs: list[_Pair], equal: Counter[str]) -> Iterator[Difference]:
    for name, left, right in pairs:
        if left == right:
            equal[sort] += left is not None
        else:
            yield Difference(name, left, right)


def _aligned(left: Mapping[str, str], right: Mapping[str, str]) -> list[_Pair]:
    return [(name, left.get(name), right.get(name)) for name in sorted({*left, *right})]


def _shared(pairs: list[_Pair]) -> list[_Pair]:
    return [pair for pair in pairs if None not in pair]


def _weights(recipes: Recipes, run: RunRecord) -> dict[str, str]:
    """Component to the version's name; the digest where the bytes never had one."""
    named: dict[str, str] = {}
    for edge in _used(recipes, run, weights=True):
        versions = recipes.artifacts[edge.digest].versions
        own = [version for version in versions if version.card == run.card] or versions
        named[edge.role.removeprefix(WEIGHTS_ROLE)] = str(own[0]) if own else edge.digest[:12]
    return named


def _slots(recipes: Recipes, run: RunRecord) -> dict[tuple[str, int], str]:
    return {(edge.role, edge.ordinal): edge.digest for edge in _used(recipes, run, weights=False)}


def _used(recipes: Recipes, run: RunRecord, *, weights: bool) -> Iterator[Edge]:
    return (edge for edge in recipes.used.get(run.id, ()) if edge.role.startswith(WEIGHTS_ROLE) == weights)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested mappings as dotted names, values as words."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = plain(value)
    return found


def _shown_run(run: RunRecord | None) -> str | None:
    return str(run) if run else None


def _short(digest: str | None) -> str | None:
    return digest[:12] if digest else None


def _incidents(connection: Connection, steps: list[Step]) -> tuple[Incident, ...]:
    """Determinism incidents about the keys of the unexplained steps, oldest first."""
    made = [run for step in steps if step.unexplained for run in (step.left_run, step.right_run) if run]
    rows = by_keys(connection, _INCIDENTS, {run.memo_key for run in made if run.memo_key})
    return tuple(sorted(map(to_incident, rows), key=lambda one: (one.created_at, one.id)))


_INCIDENTS = select(incidents).where(incidents.c.kind == "determinism", incidents.c.memo_key.in_(KEYS))
