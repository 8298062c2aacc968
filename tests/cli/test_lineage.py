"""lineage, diff, impact and weights as people read them, compared whole; and what they refuse."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from sqlalchemy import update

from mutoscope.platform.catalog import ArtifactRow, Catalog, Member
from mutoscope.platform.catalog.tables import artifacts
from mutoscope.platform.settings import get_settings
from mutoscope.platform.wording import several
from tests.cli.conftest import Command
from tests.support.golden import assert_golden
from tests.support.records import an_artifact
from tests.support.story import SAMPLES, Story, tell


@pytest.fixture(scope="module")
def told(empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Story]:
    """The story, told once, and the catalog's file that holds it."""
    path = tmp_path_factory.mktemp("told") / "catalog.db"
    shutil.copyfile(empty_catalog, path)
    catalog = Catalog.open(f"sqlite:///{path}")
    story = tell(catalog)
    catalog.close()
    return path, story


@pytest.fixture
def story(home: Path, told: tuple[Path, Story]) -> Story:
    """The story, in the test's own home."""
    home.mkdir()
    shutil.copyfile(told[0], home / "catalog.db")
    return told[1]


def collect(*digests: str) -> None:
    """Make tombstones of them, as the collector does."""
    catalog = Catalog.open(get_settings().database_url)
    with catalog._database.write() as connection:
        connection.execute(
            update(artifacts)
            .where(artifacts.c.digest.in_(digests))
            .values(state="tombstone", collected_at=1.0)
        )
    catalog.close()


def test_lineage_up(story: Story, mutoscope: Command) -> None:
    film = str(story.films["first"])
    assert_golden("lineage_up", mutoscope("lineage", "up", film).out)
    assert mutoscope("lineage", film).out == mutoscope("lineage", "up", film).out
    assert (
        mutoscope("lineage", "--depth", "1", film).out == mutoscope("lineage", "up", film, "--depth", "1").out
    )


def test_lineage_down_folds_equal_siblings(story: Story, mutoscope: Command) -> None:
    assert_golden("lineage_down", mutoscope("lineage", "down", "flux-t2i/vae@1", "--depth", "1").out)
    whole = mutoscope("lineage", "down", "flux-t2i/vae@1", "--depth", "1", "--limit", "0").out
    assert whole.count("\n") > 2 * SAMPLES
    assert "more" not in whole
    before = mutoscope("lineage", "flux-t2i/vae@1", "--down").out
    assert before == mutoscope("lineage", "down", "flux-t2i/vae@1").out


def test_lineage_stops_at_the_limit_and_says_so(story: Story, mutoscope: Command) -> None:
    assert_golden("lineage_cut", mutoscope("lineage", "up", "flux-t2i/transformer@2", "-n", "12").out)


def test_lineage_of_what_is_collected(story: Story, mutoscope: Command) -> None:
    collect(story.films["first"].digest, story.weights["transformer 1"].digest)
    film = str(story.films["first"])
    assert_golden("lineage_collected", mutoscope("lineage", "up", film, "--depth", "2").out)
    assert mutoscope("weights", "of", film).out.count("bytes collected") == 1
    assert "(bytes collected)" in mutoscope("impact", "flux-t2i/transformer@1").out.splitlines()[0]
    assert "(bytes collected)" in mutoscope("diff", film, str(story.films["second"])).out
    made = mutoscope("weights", "made", "wan-i2v/transformer@1").out
    assert made.count("bytes collected") == 1


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("weights", ("films", "first"), ("films", "second")),
        ("parameters", ("films", "second"), ("films", "other")),
        ("equal_recipes", ("films", "first"), ("films", "again")),
        ("cards", ("images", "first"), ("films", "first")),
        ("training", ("weights", "transformer 1"), ("weights", "transformer 2")),
        ("same", ("films", "first"), ("films", "first")),
    ],
)
def test_diff(
    story: Story, mutoscope: Command, name: str, left: tuple[str, str], right: tuple[str, str]
) -> None:
    ends = (str(getattr(story, group)[which]) for group, which in (left, right))
    assert_golden(f"diff_{name}", mutoscope("diff", *ends).out)


def test_diff_of_two_outputs_of_a_run(catalog: Catalog, mutoscope: Command) -> None:
    image, latent = an_artifact("image"), an_artifact("latent", "latent")
    catalog.runs.record_completed("engine", card="toy-card", generated={"image": image, "latent": latent})
    assert "one run made both" in mutoscope("diff", str(image), str(latent)).out


def test_diff_keeps_to_a_screen(story: Story, mutoscope: Command) -> None:
    lines = mutoscope(
        "diff", str(story.films["second"]), str(story.films["other"]), "-n", "1"
    ).out.splitlines()
    assert [line for line in lines if line.startswith("… and 2 more")]


def test_impact_of_a_reward_model(story: Story, mutoscope: Command) -> None:
    assert_golden("impact", mutoscope("impact", "aesthetics/net@1").out)
    assert_golden("impact_list", mutoscope("impact", "aesthetics/net@1", "--kind", "video").out)
    found = json.loads(mutoscope("impact", "aesthetics/net@1", "--list", "--limit", "3", "--json").out)
    assert (found["artifacts"], found["runs"]) == (SAMPLES + 5, SAMPLES + 1 + 4)
    assert len(found["downstream"]) == 3
    assert mutoscope("impact", "aesthetics/net@1", "--list", "-n", "3").out.endswith(
        "… and 14 more: --limit 17\n"
    )


def test_impact_of_what_nothing_came_of(story: Story, mutoscope: Command) -> None:
    assert mutoscope("impact", str(story.films["first"])).out.splitlines()[1:] == ["nothing has come of it"]


def test_weights_of(story: Story, mutoscope: Command) -> None:
    assert_golden("weights_of", mutoscope("weights", "of", str(story.films["second"])).out)
    history = mutoscope("weights", "of", str(story.films["second"]), "--history").out
    assert "aesthetics/net@1" in history
    assert mutoscope("weights", "of", "wan-i2v/transformer@1").out == "no weights made it\n"


def test_weights_made_page_by_page(story: Story, mutoscope: Command) -> None:
    command = ("weights", "made", "flux-t2i/transformer@1", "--kind", "image", "--limit", "6")
    first = mutoscope(*command).out
    assert_golden("weights_made", first)
    shown: list[str] = []
    page = first
    while True:
        shown += re.findall(r"image:[0-9a-f]{12}", page)
        more = re.search(r"--after (\S+)", page)
        if more is None:
            break
        page = mutoscope(*command, "--after", more[1]).out
    made = {str(an_artifact(f"sample {n}")) for n in range(SAMPLES)}
    made |= {str(story.images[name]) for name in ("first", "again")}
    assert len(shown) == len(made)
    assert set(shown) == made


def test_a_part_of_a_container_leads_on_to_it(story: Story, mutoscope: Command) -> None:
    tensor = an_artifact("tensor", "blob")
    catalog = Catalog.open(get_settings().database_url)
    with catalog.bulk() as bulk:
        bulk.artifacts([ArtifactRow(tensor, 0.0)])
        bulk.members(
            Member(story.weights[name].digest, "tensor", tensor.digest)
            for name in ("transformer 1", "transformer 2")
        )
    catalog.close()
    holder = min(story.weights[name].digest for name in ("transformer 1", "transformer 2"))[:12]
    up, down = mutoscope("lineage", "up", str(tensor)), mutoscope("lineage", "down", str(tensor))
    assert (up.out, down.out) == (f"{tensor}\n", f"{tensor}\n")
    assert f"it is part of {holder} and of 1 more: `mutoscope lineage up {holder}`" in up.err
    assert f"`mutoscope impact {tensor}`" in down.err
    assert "flux-t2i/transformer@1 to @2" in mutoscope("impact", str(tensor)).out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("weights", "made", "flux-t2i/transformer@1", "--after", "page 2"), "after='page 2' is not valid"),
        (("diff", "video:ffff", "video:ffff"), "`mutoscope ls` lists"),
        (("impact", "flux-t2i/transformer@9"), "no weights are named"),
        (("lineage", "export", "video:zz"), "is not an artifact"),
        (("weights", "of", "flux-t2i/transformer"), "is not an artifact"),
    ],
)
def test_bad_input_is_one_line(
    story: Story, mutoscope: Command, arguments: tuple[str, ...], says: str
) -> None:
    result = mutoscope(*arguments)
    assert (result.code, result.out) == (2, "")
    assert re.fullmatch(r"error: .*\n", result.err)
    assert says in result.err


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (1, "image", "1 image"),
        (0, "image", "0 images"),
        (99_990, "image", "99,990 images"),
        (2, "trajectory", "2 trajectories"),
        (2, "weights", "2 weights"),
        (2, "sample image", "2 sample images"),
    ],
)
def test_counts_in_words(count: int, noun: str, words: str) -> None:
    assert several(count, noun) == words


def test_export_to_a_file_and_to_stdout(story: Story, mutoscope: Command, tmp_path: Path) -> None:
    film, file = str(story.films["first"]), tmp_path / "film.json"
    assert mutoscope("lineage", "export", film, "-o", str(file)).out == f"{file}\n"
    assert mutoscope("lineage", "export", film).out == file.read_text()
    assert json.loads(file.read_text())["entity"]
    lines = mutoscope("lineage", "export", film, "--format", "openlineage").out.splitlines()
    assert {json.loads(line)["eventType"] for line in lines} == {"START", "COMPLETE"}
    refused = mutoscope("lineage", "export", film, "-o", str(tmp_path / "nowhere" / "film.json"))
    assert (refused.code, refused.out) == (2, "")
    assert "name a file to write" in refused.err
