"""What a training leaves in the catalog, and that passing by again changes none of it."""

from __future__ import annotations

import threading

import pytest

from mutoscope.platform.catalog import Catalog, WeightVersion
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from tests.support.records import an_artifact

CARD, PART = "toy-card", "net"
NAME = "first-try"
CONFIGURATION = {"learning_rate": 1e-4, "prompts": ["a red circle"]}


@pytest.fixture
def base(catalog: Catalog) -> WeightVersion:
    ref = an_artifact("base", "weights")
    run = catalog.runs.record_completed("import", card=CARD, generated={f"weights:{PART}": ref})
    return catalog.weights.publish(CARD, PART, ref.digest, run.id)


def step(catalog: Catalog, name: str, parent: WeightVersion) -> tuple[str, str]:
    """A training step: its run and the digest of the weights it made."""
    ref = an_artifact(name, "weights")
    run = catalog.runs.record_completed(
        "train_step", card=CARD, used={f"weights:{PART}": parent.digest}, generated={"weights": ref}
    )
    return run.id, ref.digest


def publish(catalog: Catalog, made: tuple[str, str], parent: WeightVersion, alias: str = NAME) -> str:
    run, digest = made
    return str(catalog.trainings.publish_step(CARD, PART, digest, run, parent, alias=alias))


def head(catalog: Catalog, alias: str = NAME) -> str:
    return str(catalog.weights.aliased(CARD, alias)[PART])


def test_a_training_begins_once_from_what_was_live_then(catalog: Catalog, base: WeightVersion) -> None:
    begun = catalog.trainings.begin(NAME, CONFIGURATION, [base], heads=[(CARD, PART)])
    assert begun.base == {CARD: {PART: f"{CARD}/{PART}@1"}}
    assert (head(catalog), head(catalog, f"{NAME}-base")) == (str(base), str(base))
    ref = an_artifact("newer", "weights")
    catalog.artifacts.record(ref)
    newer = catalog.weights.publish(CARD, PART, ref.digest)
    again = catalog.trainings.begin(NAME, {"learning_rate": 9.0}, [newer], heads=[(CARD, PART)])
    assert again == begun == catalog.trainings.get(NAME)
    assert again.configuration == CONFIGURATION
    assert head(catalog, f"{NAME}-base") == str(base)
    assert catalog.trainings.list() == [begun]


def test_what_is_not_trained_has_no_head(catalog: Catalog, base: WeightVersion) -> None:
    catalog.trainings.begin(NAME, CONFIGURATION, [base])
    assert catalog.weights.aliased(CARD, NAME) == {}
    assert head(catalog, f"{NAME}-base") == str(base)


@pytest.mark.parametrize("name", ["live", "7", "a b", "", "x-base", "x-best", "n" * 59])
def test_what_is_no_name_of_a_training(catalog: Catalog, base: WeightVersion, name: str) -> None:
    with pytest.raises(InvalidParameter, match=r"^name="):
        catalog.trainings.begin(name, CONFIGURATION, [base])
    assert catalog.trainings.list() == []


@pytest.mark.parametrize("taken", [NAME, f"{NAME}-base", f"{NAME}-best"])
def test_a_name_that_is_an_alias_of_something_else(catalog: Catalog, base: WeightVersion, taken: str) -> None:
    catalog.weights.set_alias(taken, base)
    with pytest.raises(InvalidParameter, match=f"'{taken}' is an alias of other weights"):
        catalog.trainings.begin(NAME, CONFIGURATION, [base])


def test_a_training_that_nobody_began(catalog: Catalog) -> None:
    with pytest.raises(UnknownReference, match="no training is named 'first-try'"):
        catalog.trainings.get(NAME)


def test_a_step_makes_one_version_however_often_it_is_published(
    catalog: Catalog, base: WeightVersion
) -> None:
    made = step(catalog, "one", base)
    first = catalog.trainings.publish_step(
        CARD, PART, made[1], made[0], base, alias=NAME, metrics={"loss": 0.5}
    )
    again = catalog.trainings.publish_step(
        CARD, PART, made[1], made[0], base, alias=NAME, metrics={"loss": 9.0}
    )
    assert again == first
    assert (str(first), first.parent_id, first.metrics) == (f"{CARD}/{PART}@2", base.id, {"loss": 0.5})
    assert first.produced_by_run == made[0]
    assert catalog.weights.live(CARD) == {PART: base}, "only by option does anything become live"


def test_a_training_that_passes_by_again_does_not_move_its_head_back(
    catalog: Catalog, base: WeightVersion
) -> None:
    versions, steps = [base], []
    for name in ("one", "two", "three"):
        steps.append(step(catalog, name, versions[-1]))
        run, digest = steps[-1]
        versions.append(catalog.trainings.publish_step(CARD, PART, digest, run, versions[-1], alias=NAME))
    passed = [publish(catalog, made, parent) for made, parent in zip(steps, versions, strict=False)]
    assert passed == [f"{CARD}/{PART}@{ordinal}" for ordinal in (2, 3, 4)]
    assert head(catalog) == passed[-1]
    history = [str(version) for _, version in catalog.weights.alias_history(CARD, PART, NAME)]
    assert history == passed, "and never went back on the way"


def test_a_head_that_was_rolled_back_stays_there(catalog: Catalog, base: WeightVersion) -> None:
    one = step(catalog, "one", base)
    first = catalog.weights.get(publish(catalog, one, base))
    two = step(catalog, "two", first)
    publish(catalog, two, first)
    catalog.weights.set_alias(NAME, first)
    assert publish(catalog, two, first) == f"{CARD}/{PART}@3"
    assert head(catalog) == str(first)


def test_a_step_that_taught_nothing_is_no_version(catalog: Catalog, base: WeightVersion) -> None:
    run, _ = step(catalog, "one", base)
    assert catalog.trainings.publish_step(CARD, PART, base.digest, run, base, alias=NAME) == base
    assert catalog.weights.list(CARD) == [base]


def test_trainings_that_share_a_step_share_its_version_and_have_heads_of_their_own(
    catalog: Catalog, base: WeightVersion
) -> None:
    made = step(catalog, "one", base)
    assert publish(catalog, made, base) == publish(catalog, made, base, "second-try")
    assert head(catalog) == head(catalog, "second-try") == f"{CARD}/{PART}@2"


def test_equal_bytes_of_two_steps_are_two_versions(catalog: Catalog, base: WeightVersion) -> None:
    one, two = step(catalog, "one", base), step(catalog, "one", base)
    assert publish(catalog, one, base) != publish(catalog, two, base)


def test_weights_nobody_recorded_are_refused(catalog: Catalog, base: WeightVersion) -> None:
    run, _ = step(catalog, "one", base)
    digest = an_artifact("never stored", "weights").digest
    with pytest.raises(UnknownReference, match="the catalog does not know"):
        publish(catalog, (run, digest), base)
    assert catalog.weights.list(CARD) == [base]


def test_steps_published_at_once_by_many_are_one_version(catalog: Catalog, base: WeightVersion) -> None:
    made = step(catalog, "one", base)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(publish(catalog, made, base))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [f"{CARD}/{PART}@2"] * 6
    assert len(catalog.weights.alias_history(CARD, PART, NAME)) == 1


def test_an_alias_advances_to_a_version_once(catalog: Catalog, base: WeightVersion) -> None:
    best = f"{NAME}-best"
    assert catalog.trainings.advance(best, base)
    first = catalog.weights.get(publish(catalog, step(catalog, "one", base), base))
    assert catalog.trainings.advance(best, first)
    assert not catalog.trainings.advance(best, base)
    assert head(catalog, best) == str(first)


def test_notes_are_kept_by_iteration_and_lead_to_what_they_rest_on(
    catalog: Catalog, base: WeightVersion
) -> None:
    records = [an_artifact(f"record {number}", "json") for number in range(3)]
    for number in (2, 0, 1):
        used = {"weights:net": an_artifact("base", "weights")}
        catalog.trainings.note(NAME, "iteration", number, {"record": records[number]}, used=used)
    catalog.trainings.note(NAME, "evaluation", 0, {"record": an_artifact("evaluation", "json")})
    noted = catalog.trainings.notes(NAME, "iteration", range(5))
    assert [(note.iteration, note.artifacts["record"].digest) for note in noted] == [
        (number, record.digest) for number, record in enumerate(records)
    ]
    assert catalog.trainings.notes("other", "iteration", range(5)) == []
    assert base.digest in catalog.lineage.closure(records[0].digest).artifacts


def test_a_note_that_says_otherwise_is_refused(catalog: Catalog) -> None:
    first = catalog.trainings.note(NAME, "iteration", 3, {"record": an_artifact("a", "json")})
    assert catalog.trainings.note(NAME, "iteration", 3, {"record": an_artifact("a", "json")}) == first
    with pytest.raises(InvalidParameter, match="iteration 3 came out differently before"):
        catalog.trainings.note(NAME, "iteration", 3, {"record": an_artifact("b", "json")})
    assert catalog.trainings.notes(NAME, "iteration", [3]) == [first]
