"""Written text, read by the real models: rendered words, wrong words, none, and what may go wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from mutoscope.models.reward.ocr import components, folder
from mutoscope.models.reward.ocr.card import CARD, OcrRecipe
from mutoscope.models.reward.ocr.folder import installed, packaged_folder
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.errors import InvalidFolder, InvalidInput, InvalidParameter
from tests.models.reward.scoring import reward_of, score_of
from tests.support.tiny_reward import make

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

RED, PINK, WHITE, BLACK = (220, 30, 40), (250, 185, 205), (255, 255, 255), (0, 0, 0)


def written(
    text: str,
    *,
    size: tuple[int, int] = (160, 64),
    points: int = 22,
    ink: tuple[int, int, int] = BLACK,
    ground: tuple[int, int, int] = WHITE,
) -> Pixels:
    """Text in the middle of a picture of `size` (width, height)."""
    picture = Image.new("RGB", size, ground)
    middle = (size[0] / 2, size[1] / 2)
    ImageDraw.Draw(picture).text(middle, text, ink, ImageFont.load_default(points), anchor="mm")
    return np.asarray(picture)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    return load_instance(CARD, make(tmp_path_factory.mktemp("ocr"), CARD.id))


@pytest.mark.parametrize(
    ("text", "look"),
    [
        ("OPEN", {}),
        ("hello world", {}),
        ("Mutoscope", {"ink": RED, "ground": PINK}),
        ("stop", {"size": (64, 64), "points": 14}),
        ("exit", {"size": (32, 20), "points": 10}),  # smaller than the reader takes
        ("SALE 50%", {"size": (512, 512), "points": 60}),
    ],
)
def test_what_is_written_is_read(reader: Instance, text: str, look: dict[str, Any]) -> None:
    reward = reward_of(reader, image=written(text, **look), text=text)
    assert reward.score == 1.0, reward.details


def test_a_wrong_word_earns_the_letters_it_shares(reader: Instance) -> None:
    """OPEN to CLOSED: four of six letters differ at the best alignment."""
    reward = reward_of(reader, image=written("CLOSED"), text="OPEN")
    assert reward.details["read"] == ["CLOSED"]
    assert reward.score == pytest.approx(1 - 4 / 6)


def test_words_beside_the_wanted_one_count_against_it(reader: Instance) -> None:
    wanted = score_of(reader, image=written("OPEN"), text="open")
    crowded = score_of(reader, image=written("OPEN SHOP HERE", size=(256, 64)), text="open")
    assert wanted == 1.0
    assert crowded == pytest.approx(4 / 14)


@pytest.mark.parametrize("image", [np.zeros((64, 64, 3), np.uint8), np.full((1, 1, 3), 255, np.uint8)])
def test_nothing_written_is_a_score_of_nothing(reader: Instance, image: Pixels) -> None:
    reward = reward_of(reader, image=image, text="OPEN")
    assert (reward.status, reward.score, reward.details["read"]) == ("score", 0.0, [""])


def test_capital_letters_count_if_asked_to(reader: Instance) -> None:
    image = written("OPEN")
    assert score_of(reader, image=image, text="open") == 1.0
    assert score_of(reader, image=image, text="open", match_case=True) == 0.0


def test_a_video_scores_the_mean_of_its_frames(reader: Instance) -> None:
    video = np.stack([written("OPEN"), written("OPEN"), written("")])
    reward = reward_of(reader, video=video, text="OPEN", frames=3)
    assert reward.details["read"] == ["OPEN", "OPEN", ""]
    assert reward.score == pytest.approx(2 / 3)


def test_white_space_is_no_text(reader: Instance) -> None:
    with pytest.raises(InvalidParameter, match=r"^text=' \\n' is not valid: say what should be written"):
        reward_of(reader, image=written("OPEN"), text=" \n")


def test_a_reader_that_fails_at_a_picture_says_so(reader: Instance) -> None:
    """RapidOCR cannot scale a line of two pixels: no sample's fault, and no score of 0 either."""
    reward = reward_of(reader, image=np.zeros((2, 3000, 3), np.uint8), text="OPEN")
    assert (reward.status, reward.score) == ("failed", None)
    assert str(reward.reason).startswith("the reader failed: ResizeImgError")


_READ = """
import json, sys
from pathlib import Path
import numpy as np
from PIL import Image
from mutoscope.models.reward.ocr.components import Reader
from mutoscope.models.reward.ocr.folder import model_file

folder, picture = Path(sys.argv[1]), np.asarray(Image.open(sys.argv[2]))
lines = Reader(model_file(folder, "det"), model_file(folder, "rec")).read(picture)
print(json.dumps([[line.text, line.confidence.hex()] for line in lines]))
"""


def test_two_processes_read_the_same_bits(tmp_path: Path) -> None:
    models, picture = make(tmp_path / "ocr", CARD.id), tmp_path / "picture.png"
    Image.fromarray(written("Mutoscope 1894", size=(256, 64))).save(picture)
    command = [sys.executable, "-c", _READ, str(models), str(picture)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1]
    assert [text for text, _ in json.loads(said[0])] == ["Mutoscope 1894"]


def test_without_the_extra_the_card_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = make(tmp_path / "ocr", CARD.id)
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(InvalidInput) as raised:
        components.load({"scorer": models}, device=None, dtype=None)  # type: ignore[arg-type]
    assert str(raised.value) == (
        "reward-ocr needs rapidocr, which is not installed here: "
        "install it with: pip install 'mutoscope[ocr]'"
    )


def test_without_the_extra_nothing_is_imported_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = make(tmp_path / "ocr", CARD.id)
    monkeypatch.setattr(folder, "LIBRARIES", (*folder.LIBRARIES, "no-such-distribution"))
    assert packaged_folder() is None
    with pytest.raises(InvalidInput, match="reward-ocr needs no-such-distribution, which is not installed"):
        CARD.inspect(models)


def test_another_release_of_a_library_refuses_to_score(tmp_path: Path) -> None:
    """Its scores could differ under an unchanged key."""
    models = make(tmp_path / "ocr", CARD.id)
    recipe = OcrRecipe(releases={**installed(), "onnxruntime": "0.0.1"})
    with pytest.raises(
        InvalidFolder, match=r"^reward-ocr was imported with onnxruntime 0\.0\.1, and here is"
    ):
        load_instance(CARD, models, recipe=recipe)


def test_the_models_are_a_component_and_the_releases_are_in_the_recipe(tmp_path: Path) -> None:
    summary = CARD.inspect(make(tmp_path / "ocr", CARD.id))
    assert summary.components == {"scorer": ("PP-OCRv6_det_small.onnx", "PP-OCRv6_rec_small.onnx")}
    assert isinstance(summary.recipe, OcrRecipe)
    assert set(summary.recipe.releases) == set(folder.LIBRARIES)


def test_models_that_are_missing_or_damaged_are_refused(tmp_path: Path) -> None:
    models = make(tmp_path / "ocr", CARD.id)
    recogniser = models / "PP-OCRv6_rec_small.onnx"
    recogniser.rename(recogniser.with_suffix(".away"))
    with pytest.raises(InvalidFolder, match=r"holds 0 files \*_rec_\*\.onnx: give a folder with one"):
        CARD.inspect(models)
    shutil.copy(recogniser.with_suffix(".away"), recogniser)
    with recogniser.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(InvalidFolder, match="does not load as OCR models"):
        load_instance(CARD, models)
