"""Pictures from outside become artifacts with a recorded import."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mutoscope.platform.artifacts import codecs
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration.media import ingest_image, ingest_json
from mutoscope.platform.orchestration.runtime import Runtime


def test_a_picture_is_stored_and_its_import_recorded(runtime: Runtime, tmp_path: Path) -> None:
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    ref = ingest_image(tmp_path / "cat.png")
    stored = codecs.decode(ref.kind, runtime.store.get(ref.digest), ref.media_type)
    assert np.array_equal(stored, pixels)
    assert (ref.meta["height"], ref.meta["width"]) == (4, 6)
    (run,) = runtime.catalog.runs.generated_by(ref.digest)
    assert (run.kind, run.parameters["file"]) == ("import", "cat.png")


def test_the_same_file_again_leaves_one_import(runtime: Runtime, tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.png")
    first, second = ingest_image(tmp_path / "a.png"), ingest_image(tmp_path / "a.png")
    assert first == second
    assert len(runtime.catalog.runs.generated_by(first.digest)) == 1


def test_transparent_is_white(runtime: Runtime, tmp_path: Path) -> None:
    Image.new("RGBA", (2, 2), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    ref = ingest_image(tmp_path / "clear.png")
    assert (codecs.decode("image", runtime.store.get(ref.digest), ref.media_type) == 255).all()


def test_what_is_no_picture_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "notes.png").write_text("not a picture")
    for name, reason in (("notes.png", "it is not a picture"), ("gone.png", "No such file")):
        # The error shortens a long path, and the folder's length is the runner's choice.
        with pytest.raises(InvalidParameter, match=f"^image=.* is not valid: give a PNG or JPEG .*{reason}"):
            ingest_image(tmp_path / name)
    assert runtime.catalog.artifacts.list("image") == []


def test_json_is_stored_as_such_and_anything_else_refused(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "prompts.json").write_text('["a red circle",  {"prompt": "ring", "target": "a red ring"}]')
    ref = ingest_json(tmp_path / "prompts.json")
    stored = codecs.decode(ref.kind, runtime.store.get(ref.digest), ref.media_type)
    assert stored == ["a red circle", {"prompt": "ring", "target": "a red ring"}]
    (run,) = runtime.catalog.runs.generated_by(ref.digest)
    assert (run.kind, run.parameters["file"]) == ("import", "prompts.json")
    (tmp_path / "notes.json").write_text("red circle")
    for name, reason in (("notes.json", "use valid JSON"), ("gone.json", "No such file")):
        with pytest.raises(InvalidParameter, match=f"^json=.* is not valid: give a JSON file .*{reason}"):
            ingest_json(tmp_path / name)
