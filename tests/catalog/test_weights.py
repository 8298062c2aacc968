from __future__ import annotations

import pytest

from mutoscope.platform.catalog import Catalog, WeightVersion
from mutoscope.platform.catalog.weights import name_for
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from tests.support.records import an_artifact

CARD = "toy-card"
FIRST, SECOND = an_artifact("w1", "weights"), an_artifact("w2", "weights")


@pytest.fixture
def published(catalog: Catalog) -> tuple[WeightVersion, WeightVersion]:
    run = catalog.runs.record_completed("import", card=CARD, generated={"weights:net": FIRST})
    catalog.artifacts.record(SECOND)
    one = catalog.weights.publish(CARD, "net", FIRST.digest, run.id)
    two = catalog.weights.publish(CARD, "net", SECOND.digest, parent=one, metrics={"loss": 0.5})
    return one, two


def test_versions_are_numbered_and_named(
    catalog: Catalog, published: tuple[WeightVersion, WeightVersion]
) -> None:
    one, two = published
    assert (str(one), str(two)) == ("toy-card/net@1", "toy-card/net@2")
    assert (two.parent_id, two.metrics, two.digest) == (one.id, {"loss": 0.5}, SECOND.digest)
    assert one.produced_by_run is not None
    assert catalog.weights.get("toy-card/net@1") == one
    assert catalog.weights.list() == catalog.weights.list(CARD) == [one, two]
    assert catalog.weights.list("other") == []


def test_the_newest_is_live(catalog: Catalog, published: tuple[WeightVersion, WeightVersion]) -> None:
    assert catalog.weights.live(CARD) == {"net": published[1]}
    assert catalog.weights.get("toy-card/net@live") == published[1]
    assert catalog.weights.live("other") == {}


def test_publishing_the_live_bytes_again_is_no_new_version(
    catalog: Catalog, published: tuple[WeightVersion, WeightVersion]
) -> None:
    assert catalog.weights.publish(CARD, "net", SECOND.digest) == published[1]
    assert len(catalog.weights.list()) == 2
    # Going back to older bytes is a decision of its own, and a version of its own.
    assert str(catalog.weights.publish(CARD, "net", FIRST.digest)) == "toy-card/net@3"
    names = [str(version) for version in catalog.weights.versions_of_digest(FIRST.digest)]
    assert names == ["toy-card/net@1", "toy-card/net@3"]


def test_bytes_that_have_a_name_keep_it_under_an_alias_that_pointed_nowhere(
    catalog: Catalog, published: tuple[WeightVersion, WeightVersion]
) -> None:
    found = catalog.weights.publish_all(CARD, {"net": FIRST.digest}, alias="candidate")
    assert found == {"net": published[0]}
    assert catalog.weights.get("toy-card/net@candidate") == published[0]
    assert catalog.weights.live(CARD) == {"net": published[1]}
    assert len(catalog.weights.list()) == 2


def test_what_an_alias_points_at_and_what_points_at_a_version(
    catalog: Catalog, published: tuple[WeightVersion, WeightVersion]
) -> None:
    one, two = published
    catalog.weights.set_alias("candidate", one)
    catalog.weights.set_alias("best", two)
    assert catalog.weights.aliased(CARD, "candidate") == {"net": one}
    assert catalog.weights.aliased(CARD, "nobody") == catalog.weights.aliased("other", "best") == {}
    assert catalog.weights.aliases() == {str(one): ["candidate"], str(two): ["best", "live"]}
    catalog.weights.set_alias("candidate", two)
    assert catalog.weights.aliases(CARD) == {str(two): ["best", "candidate", "live"]}
    assert catalog.weights.aliases("other") == {}


def test_ordinals_count_per_component_of_a_card(catalog: Catalog) -> None:
    catalog.artifacts.record(FIRST)
    names = [
        str(catalog.weights.publish(card, part, FIRST.digest)) for card in ("a", "b") for part in ("x", "y")
    ]
    assert names == ["a/x@1", "a/y@1", "b/x@1", "b/y@1"]
    assert {str(version) for version in catalog.weights.live("a").values()} == {"a/x@1", "a/y@1"}


def test_aliases_move_and_keep_their_history(
    catalog: Catalog, published: tuple[WeightVersion, WeightVersion]
) -> None:
    one, two = published
    catalog.weights.set_alias("live", one)
    assert catalog.weights.live(CARD) == {"net": one}
    catalog.weights.set_alias("live", one)
    history = catalog.weights.alias_history(CARD, "net", "live")
    assert [version for _, version in history] == [one, two, one]
    assert sorted(since for since, _ in history) == [since for since, _ in history]
    catalog.weights.set_alias("best", two)
    assert catalog.weights.get("toy-card/net@best") == two
    assert catalog.weights.get("toy-card/net@live") == one


def test_a_whole_set_goes_live_at_once(
    catalog: Catalog, published: tuple[WeightVersion, WeightVersion]
) -> None:
    catalog.weights.publish(CARD, "retired", FIRST.digest)
    live = catalog.weights.publish_all(CARD, {"net": SECOND.digest, "vae": FIRST.digest})
    assert {name: str(version) for name, version in live.items()} == {
        "net": "toy-card/net@2",
        "vae": "toy-card/vae@1",
    }
    assert catalog.weights.live(CARD) == live
    assert str(catalog.weights.get("toy-card/retired@1")) == "toy-card/retired@1"
    with pytest.raises(UnknownReference):
        catalog.weights.get("toy-card/retired@live")
    history = catalog.weights.alias_history(CARD, "retired", "live")
    assert [str(version) for _, version in history] == ["toy-card/retired@1", "None"]
    with pytest.raises(UnknownReference, match="not in the catalog"):
        catalog.weights.publish_all(CARD, {"net": FIRST.digest, "vae": an_artifact("unheard of").digest})
    assert catalog.weights.live(CARD) == live, "all or none"


@pytest.mark.parametrize(
    "name",
    [
        "toy-card/net@3",
        "toy-card/net@best",
        "toy-card/other@1",
        "toy-card",
        "net@1",
        "toy-card/net@",
        "@",
        "/@1",
    ],
)
def test_names_of_nothing(
    catalog: Catalog, published: tuple[WeightVersion, WeightVersion], name: str
) -> None:
    with pytest.raises(UnknownReference):
        catalog.weights.get(name)


@pytest.mark.parametrize("alias", ["", "12", "a b", "a@b", "a/b"])
def test_an_alias_must_not_look_like_something_else(
    catalog: Catalog, published: tuple[WeightVersion, WeightVersion], alias: str
) -> None:
    with pytest.raises(InvalidParameter, match="alias"):
        catalog.weights.set_alias(alias, published[0])


def test_unknown_bytes_are_refused(catalog: Catalog) -> None:
    with pytest.raises(UnknownReference, match="not in the catalog"):
        catalog.weights.publish(CARD, "net", FIRST.digest)
    assert catalog.weights.list() == []


def test_a_trainers_runs_call_weights_as_their_card_does(
    published: tuple[WeightVersion, WeightVersion],
) -> None:
    one, two = published
    assert name_for("toy-card", FIRST.digest, [one]) == "toy-card/net@1"
    assert name_for("toy-card-trainer", FIRST.digest, [one]) == "toy-card/net@1"
    assert name_for("another-trainer", SECOND.digest, [two]) == SECOND.digest[:12]
    assert name_for(None, SECOND.digest, [two]) == SECOND.digest[:12]
