"""The views for analysts: their columns are those on record, and the page's examples answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect, text

from mutoscope import migrations
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.refs import ArtifactRef
from tests.support.records import an_artifact

PAGE = (Path(__file__).parents[2] / "docs" / "analysts.md").read_text()
PROMPT = "a red circle left of a blue square"
NET, VAE = an_artifact("net", "weights"), an_artifact("vae", "weights")
VIDEO = an_artifact("video", "video")


def documented() -> dict[str, list[str]]:
    """View to its columns, as the page lists them."""
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    return {
        section.partition("\n")[0]: re.findall(r"^\| (\w+) \| (?!meaning)", section, flags=re.MULTILINE)
        for section in sections
        if section.startswith("v_")
    }


def examples() -> list[str]:
    return re.findall(r"^```sql\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def rows(catalog: Catalog, query: str) -> list[tuple[object, ...]]:
    with catalog._database.read() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


@pytest.fixture
def images(any_catalog: Catalog) -> dict[int, ArtifactRef]:
    """Seed to image: two pictures by one version, a third by the next; a film of the first."""
    catalog, made = any_catalog, {}
    catalog.artifacts.record(VAE)
    asked = catalog.workflows.start("text_to_image", {})
    for version, seeds in enumerate([(1, 2), (3,)], 1):
        net = an_artifact(f"net {version}", "weights")
        imported = catalog.runs.record_completed(
            "import", card="flux-t2i", generated={"weights:transformer": net}
        )
        catalog.weights.publish("flux-t2i", "transformer", net.digest, imported.id)
        for seed in seeds:
            made[seed] = an_artifact(f"image {seed}")
            catalog.runs.record_completed(
                "engine",
                card="flux-t2i",
                parameters={"prompt": PROMPT},
                seed=seed,
                used={"weights:transformer": net, "weights:vae": VAE},
                generated={"image": made[seed]},
                workflow_run_id=asked,
            )
    catalog.runs.record_completed(
        "engine", card="wan-i2v", used={"image": made[1], "weights:vae": VAE}, generated={"video": VIDEO}
    )
    return made


def test_columns_are_those_documented(any_catalog: Catalog) -> None:
    with any_catalog._database.read() as connection:
        inspector = inspect(connection)
        found = {
            view: [column["name"] for column in inspector.get_columns(view)]
            for view in inspector.get_view_names()
        }
    assert found == documented()
    assert len(found) == 4


def test_the_examples_of_the_page(any_catalog: Catalog, images: dict[int, ArtifactRef]) -> None:
    versions, seeds, films = (rows(any_catalog, query) for query in examples())
    sizes = {seed: ref.size for seed, ref in images.items()}
    assert versions == [
        ("flux-t2i/transformer@1", 2, sizes[1] + sizes[2]),
        ("flux-t2i/transformer@2", 1, sizes[3]),
    ]
    assert [row[:3] for row in seeds] == [(seed, "image", ref.digest) for seed, ref in images.items()]
    assert films == [(VIDEO.digest, "flux-t2i/transformer@1")]


def test_lineage_has_a_row_for_each_derivation(any_catalog: Catalog, images: dict[int, ArtifactRef]) -> None:
    found = rows(
        any_catalog,
        "select source_role, source, run_kind, card from v_lineage "
        f"where artifact = '{VIDEO.digest}' order by source_role",
    )
    assert found == [
        ("image", images[1].digest, "engine", "wan-i2v"),
        ("weights:vae", VAE.digest, "engine", "wan-i2v"),
    ]


def test_outputs_name_their_workflow_and_prompt(any_catalog: Catalog, images: dict[int, ArtifactRef]) -> None:
    query = "select seed, prompt, workflow, card from v_outputs where kind in ('image', 'video') order by run"
    assert rows(any_catalog, query) == [
        *((seed, PROMPT, "text_to_image", "flux-t2i") for seed in (1, 2, 3)),
        (None, None, None, "wan-i2v"),
    ]


def test_weights_without_a_name_are_there_too(any_catalog: Catalog, images: dict[int, ArtifactRef]) -> None:
    query = "select distinct component, weights, version from v_weight_use where component = 'vae'"
    assert rows(any_catalog, query) == [("vae", VAE.digest, None)]
    query = "select count(*) from v_weight_made where version is null"
    assert rows(any_catalog, query) == [(4,)]


def test_downgrading_takes_them_away(any_catalog_url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(next(iter(migrations.__path__)))))
    engine = create_engine(any_catalog_url)
    with engine.begin() as connection:
        assert len(inspect(connection).get_view_names()) == 4
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
    with engine.begin() as connection:
        assert inspect(connection).get_view_names() == []
    engine.dispose()
