"""From a prompt to a video a browser plays, with its record: the whole path, nothing replaced."""

from __future__ import annotations

import json
import re
import urllib.request

import av
import numpy as np
import pytest
from PIL import Image

from tests.e2e.conftest import PROMPT, SEED, FirstVideo
from tests.e2e.stack import Stack

pytestmark = pytest.mark.e2e


def test_makes_a_picture_and_a_video(first_video: FirstVideo) -> None:
    with Image.open(first_video.folder / "image.png") as picture:
        assert (picture.format, picture.mode, picture.size) == ("PNG", "RGB", (64, 64))
        first = np.asarray(picture).astype(float)
    with av.open(str(first_video.folder / "video.mp4")) as film:
        stream = film.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        frames = [frame.to_ndarray(format="rgb24") for frame in film.decode(stream)]
    assert len(frames) >= 16
    # A film of so small a size is enlarged for players; the middle of each enlarged pixel is the pixel.
    height, width, _ = frames[0].shape
    assert (height, width) == (height // 64 * 64, height)
    middle = slice(height // 128, None, height // 64)
    # It begins with the picture (both codecs in between) and does not stand still.
    assert np.abs(frames[0][middle, middle] - first).mean() < 16
    assert np.abs(frames[-1].astype(float) - frames[0]).mean() > 1


def test_the_gateway_serves_what_the_report_names(stack: Stack, first_video: FirstVideo) -> None:
    for name, file in (("image", "image.png"), ("video", "video.mp4")):
        output = first_video.report["outputs"][name]
        with urllib.request.urlopen(output["url"]) as page:
            assert page.status == 200
            assert output["digest"][:12] in page.read().decode()
        with urllib.request.urlopen(output["url"].removesuffix("/page")) as answer:
            assert answer.headers["content-type"] == output["media_type"]
            assert answer.read() == (first_video.folder / file).read_bytes()


def test_prefect_shows_one_flow_run_with_two_engine_runs(stack: Stack, first_video: FirstVideo) -> None:
    flow_run = stack.flow_run(first_video.report["flow_run"])
    assert (flow_run["state"]["type"], flow_run["parameters"]["prompt"]) == ("COMPLETED", PROMPT)
    tasks = stack.task_runs(flow_run["id"])
    assert [task["name"].partition("-")[0] for task in tasks] == ["flux", "wan"]
    assert [task["state"]["name"] for task in tasks] == ["Completed", "Completed"]


def test_the_lineage_ends_in_the_starter_weights(stack: Stack, first_video: FirstVideo) -> None:
    reference = f"video:{first_video.digests['video'][:10]}"
    tree, graph = stack.run_all([["lineage", reference], ["lineage", reference, "--json"]])
    assert tree.out.startswith("video:")
    for needed in ("flux-t2i/transformer@1", "wan-i2v/transformer@1", "flux-t2i import", "wan-i2v import"):
        assert needed in tree.out
    runs = graph.json["runs"].values()
    assert {(run["kind"], run["seed"]) for run in runs} == {("engine", SEED), ("import", None)}
    imports = [run for run in runs if run["kind"] == "import"]
    assert {run["parameters"]["origin"] for run in imports} == {"starter"}


def test_the_same_again_comes_from_memo(stack: Stack, first_video: FirstVideo) -> None:
    before = stack.run_count()
    result = stack.run("run", "text_to_video", f"prompt={PROMPT}", f"seed={SEED}")
    assert result.code == 0, result.err
    assert stack.run_count() == before, "no run was queued, so the worker had nothing to do"
    assert re.findall(r"^(\S+) +cached$", result.out, re.MULTILINE) == ["flux-t2i", "wan-i2v"]
    flow_run_id = result.out.rstrip().rpartition("/")[2]
    assert [task["state"]["name"] for task in stack.task_runs(flow_run_id)] == ["Cached", "Cached"]
    for name, digest in first_video.digests.items():
        assert f"{name}:{digest[:12]}" in result.out


def test_submitted_to_the_pool_it_gives_the_same(stack: Stack, first_video: FirstVideo) -> None:
    result = stack.run("run", "text_to_video", f"prompt={PROMPT}", f"seed={SEED}", "--submit", "--json")
    outputs = result.json["outputs"]
    assert {name: output["digest"] for name, output in outputs.items()} == first_video.digests
    flow_run = stack.flow_run(result.json["flow_run"])
    assert (flow_run["work_pool_name"], flow_run["state"]["type"]) == ("mutoscope", "COMPLETED")


@pytest.mark.long
def test_another_seed_and_another_picture_give_other_bytes(stack: Stack, first_video: FirstVideo) -> None:
    picture = stack.home.parent / "blue.png"
    pixels = np.full((64, 64, 3), 255, dtype=np.uint8)
    pixels[20:44, 8:32] = (0, 0, 255)
    Image.fromarray(pixels).save(picture)
    other_seed, other_picture = stack.run_all(
        [
            ["run", "text_to_video", f"prompt={PROMPT}", f"seed={SEED + 1}", "--json"],
            ["run", "image_to_video", f"image={picture}", f"prompt={PROMPT}", f"seed={SEED}", "--json"],
        ]
    )
    made = {name: output["digest"] for name, output in other_seed.json["outputs"].items()}
    assert made["image"] != first_video.digests["image"]
    videos = {
        first_video.digests["video"],
        made["video"],
        other_picture.json["outputs"]["video"]["digest"],
    }
    assert len(videos) == 3


def test_replay_regenerates_equal_digests(stack: Stack, first_video: FirstVideo) -> None:
    before = stack.run_count()
    result = stack.run("replay", f"video:{first_video.digests['video'][:12]}", "--chain", "--json")
    replays = result.json
    assert [(one["card"], one["equal"]) for one in replays] == [("flux-t2i", True), ("wan-i2v", True)]
    assert replays[0]["outputs"]["image"]["now"] == first_video.digests["image"]
    assert replays[1]["outputs"]["video"]["now"] == first_video.digests["video"]
    assert stack.run_count() == before + 2, "the memo did not answer"
    assert stack.catalog.incidents.list() == []


def test_status_and_doctor_are_content(stack: Stack, first_video: FirstVideo) -> None:
    status, doctor = stack.run_all([["status", "--json"], ["doctor", "--json"]])
    names = {process["name"] for process in status.json["processes"] if process["alive"]}
    assert names == {"prefect-server", "gateway", "worker-1", "flow-pool", "reconciler"}
    assert status.json["queue"]["succeeded"] >= 4
    (worker,) = status.json["workers"]
    assert {"flux-t2i", "wan-i2v"} <= set(worker["cards"])
    levels = {finding["check"]: finding["level"] for finding in doctor.json}
    assert "fail" not in levels.values(), json.dumps(doctor.json, indent=1)


def test_a_second_up_on_the_home_is_refused(stack: Stack) -> None:
    result = stack.run("up")
    assert result.code == 2
    assert result.err.startswith(f"error: a stack is already running on {stack.home}")
    assert len(result.err.splitlines()) == 1
