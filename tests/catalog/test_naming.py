"""Names that people type: what each kind stands for, and that none of several is guessed."""

from __future__ import annotations

import pytest

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.errors import AmbiguousReference, UnknownReference
from tests.support.records import CARD, an_artifact, make

IMAGE, NET = an_artifact("image"), an_artifact("net", "weights")


def test_each_kind_of_name(catalog: Catalog) -> None:
    workflow_run = catalog.workflows.start("text_to_image", {})
    run = make(catalog, "key", {"image": IMAGE})
    catalog.artifacts.record(NET)
    version = catalog.weights.publish(CARD, "net", NET.digest)
    assert catalog.find(IMAGE.digest[:12]) == catalog.find(f"image:{IMAGE.digest[:6]}") == IMAGE
    assert catalog.find("toy-card/net@1") == catalog.find("toy-card/net@live") == version
    assert catalog.find_artifact(IMAGE.digest[:12]) == IMAGE
    assert catalog.find_artifact("toy-card/net@live") == version
    assert catalog.find(run.id) == run
    assert catalog.find(workflow_run) == catalog.workflows.find(workflow_run)


def test_a_run_and_a_workflow_run_of_one_minute_are_not_mistaken(catalog: Catalog) -> None:
    workflow_run = catalog.workflows.start("text_to_image", {})
    run = make(catalog, "key", {"image": IMAGE})
    shared = next(n for n in range(36) if workflow_run[:n] != run.id[:n]) - 1
    with pytest.raises(AmbiguousReference, match=f"{run.id} and of workflow run {workflow_run}: add digits"):
        catalog.find(run.id[:shared])


def test_what_an_ambiguous_beginning_could_stand_for_is_listed(catalog: Catalog) -> None:
    started = sorted(catalog.workflows.start("text_to_image", {}) for _ in range(2))
    with pytest.raises(AmbiguousReference, match=rf"several workflow run ids \({started[0]}, {started[1]}\)"):
        catalog.workflows.find("0")


def test_a_stranger(catalog: Catalog) -> None:
    for name in ("0", "video:0", "0" * 64, "toy-card/net@1"):
        with pytest.raises(UnknownReference):
            catalog.find(name)
