"""What holds of every card, asked of each one that is registered. A new card gets all of this for a line in
`tests/support/cards.py`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.example import example_request
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.parity import gates
from mutoscope.platform.engine.parity.content import content
from mutoscope.platform.engine.parity.report import Report, Verdict
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.errors import InvalidFolder, InvalidParameter
from tests.support.cards import served, unmade
from tests.support.parts import few_now

ROOT = Path(__file__).parents[2]
CARDS = list(served())
CHECKED = few_now(CARDS, lambda name: name not in {"multi-expert", "wan-t2v"})
"""These two have the parts and the code of others."""
FOLDERS = [name for name, card in served().items() if card.components]

Instances = Callable[[str], Instance]
Folders = Callable[[str], Path]
Reports = Callable[[str], Report]


def test_every_card_has_a_tiny_folder() -> None:
    assert unmade() == []


@pytest.mark.parametrize("card_id", CARDS)
class TestDeclaration:
    """What can be asked without weights."""

    def test_the_id_is_kebab_case(self, card_id: str) -> None:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", card_id)

    def test_slots_are_described_and_named_once(self, card_id: str) -> None:
        card = served()[card_id]
        for slots in (card.inputs, card.outputs):
            assert len({slot.name for slot in slots}) == len(slots)
            assert all(slot.description for slot in slots)
        assert card.outputs, "a card without outputs makes nothing"

    def test_parameters_are_described(self, card_id: str) -> None:
        fields = served()[card_id].parameters.model_fields
        assert [name for name, field in fields.items() if not field.description] in ([], ["prompt"])

    def test_its_code_is_part_of_its_digest(self, card_id: str) -> None:
        card = served()[card_id]
        module = card.builder.partition(":")[0]
        assert any(f"{module}.".startswith(f"{package}.") for package in card.sources)
        assert re.fullmatch("[0-9a-f]{64}", numerics.card_digest(card))


@pytest.mark.parametrize("card_id", FOLDERS)
class TestFolder:
    """What its inspector says."""

    def test_its_own_folder_fits(self, card_id: str, folder_of: Folders) -> None:
        card = served()[card_id]
        summary = card.inspect(folder_of(card_id))
        required = {part.name for part in card.components if not part.optional}
        assert required <= set(summary.components) <= {part.name for part in card.components}
        assert isinstance(summary.recipe, card.recipe)

    def test_another_folder_is_refused_in_one_line_that_names_it(self, card_id: str, tmp_path: Path) -> None:
        with pytest.raises(InvalidFolder) as refusal:
            served()[card_id].inspect(tmp_path)
        assert str(tmp_path) in str(refusal.value)
        assert "\n" not in str(refusal.value)

    def test_it_keeps_no_trace_of_the_folder_in_the_recipe(self, card_id: str, folder_of: Folders) -> None:
        """The recipe is pinned by digest: two copies of a folder must have one."""
        folder = folder_of(card_id)
        assert str(folder) not in served()[card_id].inspect(folder).recipe.model_dump_json()


def test_inspecting_folders_loads_no_torch(folder_of: Folders) -> None:
    """A flow host imports folders, and has no GPU stack."""
    program = (
        "import json, sys; from pathlib import Path\n"
        "from mutoscope.models.registry import get_card\n"
        "for card, folder in json.loads(sys.argv[1]).items(): get_card(card).inspect(Path(folder))\n"
        "print(json.dumps([name for name in ('torch', 'diffusers', 'transformers') if name in sys.modules]))"
    )
    folders = json.dumps({card_id: str(folder_of(card_id)) for card_id in FOLDERS})
    done = subprocess.run(
        [sys.executable, "-c", program, folders], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("card_id", CARDS)
class TestServing:
    """What the example request comes to."""

    def test_every_output_is_filled_with_its_kind(self, card_id: str, instance_of: Instances) -> None:
        instance = instance_of(card_id)
        result = Engine().run(instance, example_request(instance.card, instance.recipe))
        declared = {slot.name: slot for slot in instance.card.outputs_under(Profile.SERVE)}
        assert set(result.outputs) <= set(declared)
        assert {name for name, slot in declared.items() if slot.required} <= set(result.outputs)
        for name, output in result.outputs.items():
            assert output.kind == declared[name].kind
            json.dumps(dict(output.meta))
            if output.kind == "latent":
                assert all(np.isfinite(array).all() for array in dict(output.value).values())

    def test_progress_counts_to_its_total(self, card_id: str, instance_of: Instances) -> None:
        instance = instance_of(card_id)
        seen = []
        Engine().run(instance, example_request(instance.card, instance.recipe), seen.append)
        assert [each.step for each in seen] == list(range(1, len(seen) + 1))
        assert len(seen) <= seen[0].total

    def test_another_seed_makes_another_output(self, card_id: str, instance_of: Instances) -> None:
        instance = instance_of(card_id)
        if not instance.card.seeded:
            pytest.skip("it draws nothing")
        # A language model that serves draws nothing; one that is rolled out does.
        profile = instance.card.profiles[-1]
        first, second = (
            example_request(instance.card, instance.recipe, seed=seed, profile=profile) for seed in (1, 2)
        )
        assert content(Engine().run(instance, first)) != content(Engine().run(instance, second))

    def test_an_unknown_parameter_is_refused_by_name(self, card_id: str, instance_of: Instances) -> None:
        instance = instance_of(card_id)
        request = example_request(instance.card, instance.recipe, colour="red")
        with pytest.raises(InvalidParameter, match="colour='red'"):
            Engine().submit(instance, request)


@pytest.mark.parametrize("card_id", CHECKED)
class TestParity:
    """The gates, and the defects that each of them must notice."""

    def test_no_gate_fails_and_no_defect_passes(self, card_id: str, report_of: Reports) -> None:
        report = report_of(card_id)
        assert report.ok, "\n".join(str(finding) for finding in report.findings)

    def test_serving_together_was_really_tried(self, card_id: str, report_of: Reports) -> None:
        (together,) = (f for f in report_of(card_id).findings if f.name == gates.TOGETHER)
        assert together.verdict is Verdict.PASSED
        assert together.figures["mixes"] >= 4

    def test_a_card_that_is_rolled_out_keeps_the_promises_of_one(
        self, card_id: str, report_of: Reports
    ) -> None:
        verdicts = {finding.name: finding.verdict for finding in report_of(card_id).findings}
        rolled_out = Profile.ROLLOUT in served()[card_id].profiles
        expected = Verdict.PASSED if rolled_out else Verdict.NOT_APPLICABLE
        assert {verdicts[gates.CAPTURE_OFF], verdicts[gates.ROLLOUT]} == {expected}
