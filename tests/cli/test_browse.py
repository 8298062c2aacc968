"""Looking around: ls, show, get, lineage, weights, cards, on a home with one picture and its video."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.refs import ArtifactRef
from tests.cli.conftest import Command

PROMPT = "a red circle, drifting right"


@dataclass(frozen=True)
class World:
    """What the home holds: weights that made an image that made a video."""

    weights: ArtifactRef
    image: ArtifactRef
    video: ArtifactRef
    image_run: str
    video_run: str


@pytest.fixture
def world(catalog: Catalog, store: ArtifactStore) -> World:
    weights = store.put(b'{"files":[]}', kind="weights", media_type="application/json")
    image = store.put(b"picture", kind="image", media_type="image/png", meta={"height": 64, "width": 64})
    video = store.put(b"film", kind="video", media_type="video/mp4", meta={"fps": 8})
    imported = catalog.runs.record_completed(
        "import",
        card="flux-t2i",
        parameters={"folder": "/weights"},
        generated={"weights:transformer": weights},
    )
    catalog.weights.publish("flux-t2i", "transformer", weights.digest, imported.id)
    asked = catalog.workflows.start("image_video.t2i_i2v", {"prompt": PROMPT, "seed": 7})
    made = catalog.runs.record_completed(
        "engine",
        card="flux-t2i",
        parameters={"prompt": PROMPT},
        seed=7,
        used={"weights:transformer": weights},
        generated={"image": image},
        workflow_run_id=asked,
    )
    filmed = catalog.runs.record_completed(
        "engine",
        card="wan-i2v",
        parameters={"prompt": PROMPT},
        seed=7,
        used={"image": image},
        generated={"video": video},
    )
    catalog.workflows.finish(asked, "succeeded", outputs={"video": video, "image": image})
    return World(weights, image, video, made.id, filmed.id)


def test_ls_lists_the_newest_first(world: World, mutoscope: Command) -> None:
    lines = mutoscope("ls").out.splitlines()
    assert lines[0].split() == ["ARTIFACT", "SIZE", "ABOUT"]
    assert [line.split()[0] for line in lines[1:]] == [str(world.video), str(world.image), str(world.weights)]
    assert lines[2].endswith(f"7 B   flux-t2i seed 7 {PROMPT}")


def test_ls_filters(world: World, mutoscope: Command) -> None:
    assert json.loads(mutoscope("ls", "--kind", "image", "--json").out) == [world.image.to_dict()]
    assert [line.split()[0] for line in mutoscope("ls", "-n", "1").out.splitlines()[1:]] == [str(world.video)]


def test_ls_shows_runs_and_workflows(world: World, mutoscope: Command) -> None:
    runs = json.loads(mutoscope("ls", "runs", "--json").out)
    assert [(run["kind"], run["card"]) for run in runs][:2] == [("engine", "wan-i2v"), ("engine", "flux-t2i")]
    (asked,) = json.loads(mutoscope("ls", "workflows", "--json").out)
    assert asked["parameters"] == {"prompt": PROMPT, "seed": 7}
    assert asked["state"] == "succeeded"


def test_an_empty_home_says_what_to_do(catalog: Catalog, mutoscope: Command) -> None:
    assert mutoscope("ls").out == "nothing yet: `mutoscope demo` makes a first video\n"


def test_show_tells_how_an_artifact_was_made(world: World, mutoscope: Command) -> None:
    shown = json.loads(mutoscope("show", f"image:{world.image.digest[:6]}", "--json").out)
    assert shown["digest"] == world.image.digest
    assert shown["present"] is True
    assert shown["used"] == {"weights:transformer": "flux-t2i/transformer@1"}
    assert shown["made by"]["id"] == world.image_run
    assert shown["made by"]["seed"] == 7
    assert Path(shown["path"]).read_bytes() == b"picture"


def test_show_finds_runs_by_the_beginning_of_their_id(world: World, mutoscope: Command) -> None:
    shown = json.loads(mutoscope("show", world.video_run, "--json").out)
    assert shown["run"]["card"] == "wan-i2v"
    assert shown["used"] == {"image": str(world.image)}
    assert shown["generated"] == {"video": str(world.video)}
    assert world.video_run in mutoscope("show", world.video_run).out


def test_show_takes_versions_and_names_outputs(world: World, catalog: Catalog, mutoscope: Command) -> None:
    shown = mutoscope("show", "flux-t2i/transformer@live").out.splitlines()
    assert shown[0].split() == ["artifact", str(world.weights)]
    (asked,) = catalog.workflows.list()
    assert f"  video  {world.video}" in mutoscope("show", asked.id).out.splitlines()


def test_ls_takes_a_workflow_by_name(world: World, mutoscope: Command) -> None:
    (asked,) = json.loads(mutoscope("ls", "workflows", "--workflow", "text_to_video", "--json").out)
    assert asked["workflow"] == "image_video.t2i_i2v"
    assert mutoscope("ls", "--kind", "audio").out == "none of these yet\n"


def test_show_survives_bytes_that_are_gone(world: World, store: ArtifactStore, mutoscope: Command) -> None:
    path = store.local_path(world.image.digest)
    assert path is not None
    path.unlink()
    shown = json.loads(mutoscope("show", str(world.image), "--json").out)
    assert (shown["present"], shown["path"]) == (False, None)
    assert shown["bytes"].startswith("missing: ")


def test_get_writes_verified_bytes(world: World, tmp_path: Path, mutoscope: Command) -> None:
    file = tmp_path / "clips" / "clip.mp4"
    assert mutoscope("get", str(world.video), "-o", str(file)).out == f"{file}\n"
    assert file.read_bytes() == b"film"
    into = mutoscope("get", str(world.image), "-o", str(tmp_path)).out.strip()
    assert into == str(tmp_path / f"image-{world.image.digest[:12]}.png")


def test_get_refuses_damaged_bytes(
    world: World, store: ArtifactStore, tmp_path: Path, mutoscope: Command
) -> None:
    path = store.local_path(world.video.digest)
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(b"filn")
    result = mutoscope("get", str(world.video), "-o", str(tmp_path / "clip.mp4"))
    assert result.code == 1
    assert re.fullmatch(r"error: .*\n", result.err), "one line"
    assert not (tmp_path / "clip.mp4").exists()


def test_lineage_reaches_the_import(world: World, mutoscope: Command) -> None:
    tree = mutoscope("lineage", str(world.video)).out
    starred = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=:)[0-9a-f]{12}", "*", tree)
    assert starred == (
        "video:*\n"
        "└─ wan-i2v run *  seed=7\n"
        "   └─ image: image:*\n"
        "      └─ flux-t2i run *  seed=7\n"
        "         └─ weights:transformer: flux-t2i/transformer@1  weights:*\n"
        "            └─ flux-t2i import *\n"
    )


def test_lineage_down_from_weights(world: World, mutoscope: Command) -> None:
    graph = json.loads(mutoscope("lineage", "flux-t2i/transformer@live", "--down", "--json").out)
    assert {world.image.digest, world.video.digest} <= set(graph["artifacts"])
    near = json.loads(mutoscope("lineage", "flux-t2i/transformer@1", "--down", "--depth", "1", "--json").out)
    assert world.video.digest not in near["artifacts"]


def test_weights_are_listed_shown_and_traced(world: World, mutoscope: Command) -> None:
    (listed,) = json.loads(mutoscope("weights", "list", "--json").out)
    assert (listed["version"], listed["live"]) == ("flux-t2i/transformer@1", True)
    shown = json.loads(mutoscope("weights", "show", "flux-t2i/transformer@live", "--json").out)
    assert shown["digest"] == world.weights.digest
    made = json.loads(mutoscope("weights", "made", "flux-t2i/transformer@1", "--json").out)
    assert [one["ref"]["digest"] for one in made["makings"]] == [world.image.digest]
    films = mutoscope("weights", "made", "flux-t2i/transformer@1", "--kind", "video", "--json")
    assert json.loads(films.out) == {"makings": [], "next": None}


def test_cards_show_declaration_and_live_weights(world: World, mutoscope: Command) -> None:
    card = json.loads(mutoscope("cards", "flux-t2i", "--json").out)
    assert card["weights"] == {"transformer": "flux-t2i/transformer@1"}
    assert card["outputs"]["image"]["kind"] == "image"
    assert "prompt" in card["parameters"]
    assert "none is alive: start one" in mutoscope("cards", "wan-i2v").out


def test_cards_need_no_catalog(home: Path, mutoscope: Command) -> None:
    assert {"flux-t2i", "wan-i2v"} <= {line.split()[0] for line in mutoscope("cards").out.splitlines()[1:]}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("show", "image:ffff"), 2, "`mutoscope ls` lists"),
        (("show", "what is this"), 2, "is not an artifact"),
        (("lineage", "video:zz"), 2, "is not an artifact"),
        (("get", "video:0000"), 2, "no artifact is named"),
        (("ls", "--kind", "film"), 2, "use one of image, video"),
        (("ls", "--workflow", "nope"), 2, "workflow 'nope' is unknown: use one of"),
        (("impact", "flux-t2i/transformer@1", "--kind", "film"), 2, "use one of image, video"),
        (("weights", "made", "flux-t2i/transformer@1", "--kind", "film"), 2, "use one of image, video"),
        (("show", "flux-t2i/transformer@9"), 2, "no weights are named"),
        (("weights", "show", "flux-t2i/nothing@1"), 2, "no weights are named"),
        (("weights", "list", "nocard"), 2, "use one of flux-t2i"),
        (("weights", "import", "flux-t2i", "/nowhere"), 2, "/nowhere"),
        (("cards", "nocard"), 2, "is unknown"),
        (("replay", "image:ffff"), 2, "`mutoscope ls` lists"),
    ],
)
def test_bad_input_is_one_line(
    world: World, mutoscope: Command, arguments: tuple[str, ...], code: int, says: str
) -> None:
    result = mutoscope(*arguments)
    assert (result.code, result.out) == (code, "")
    assert re.fullmatch(r"error: .*\n", result.err)
    assert says in result.err


def test_a_prefix_of_two_artifacts_lists_both(
    catalog: Catalog, store: ArtifactStore, mutoscope: Command
) -> None:
    first: dict[str, ArtifactRef] = {}
    for number in range(400):  # two of 400 digests share three digits with near certainty
        ref = store.put(f"{number}".encode(), kind="image", media_type="image/png")
        catalog.artifacts.record(ref)
        twin = first.setdefault(ref.digest[:3], ref)
        if twin is not ref:
            break
    result = mutoscope("show", f"image:{ref.digest[:3]}")
    assert result.code == 2
    assert "names several artifacts" in result.err
    assert str(twin) in result.err
    assert str(ref) in result.err
    assert len(result.err.splitlines()) == 1
