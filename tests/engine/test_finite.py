"""NaN and infinity: named where they arise, and nothing of them is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.finite import all_finite, require_finite, require_finite_weights
from mutoscope.platform.errors import InvalidFolder, RunFailed
from tests.engine.rowtoy import NAN, Net, latent, row_instance, row_request
from tests.engine.toy import ToyLoop, ToyState, toy_instance, toy_request

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_bad_value_among_many_is_seen(dtype: torch.dtype, value: float) -> None:
    sound = torch.linspace(-3, 3, 999).to(dtype)
    assert all_finite(sound)
    broken = sound.clone()
    broken[500] = value
    assert not all_finite(broken)


def test_what_cannot_be_broken_is_sound() -> None:
    assert all_finite(torch.empty(0))
    assert all_finite(torch.arange(5))
    require_finite({"a": [torch.ones(2), "text", None], "b": (torch.zeros(1),)}, "nothing")


def test_a_nested_result_is_looked_through() -> None:
    broken = torch.ones(2, 3).index_fill(1, torch.tensor(0), torch.nan)
    said = r"^here gave NaN or infinity, 2 of 6 values \(2, 3\) in float32: lower"
    with pytest.raises(RunFailed, match=said):
        require_finite({"a": [torch.ones(2), (broken,)]}, "here")


def test_a_velocity_that_is_not_finite_fails_its_request_alone() -> None:
    engine, instance = Engine(), row_instance(most=4)
    bad = engine.submit(instance, row_request("bad", trouble=NAN, trouble_step=2))
    good = engine.submit(instance, row_request("good", seed=1))
    while engine.step():
        pass
    assert str(bad.error) == (
        "denoise step 3 of 4 (net) of row-toy gave NaN or infinity, 64 of 64 values (1, 8, 8) in float32: "
        "lower guidance or use a wider dtype if it overflowed, else load weights that are sound"
    )
    assert bad.progress.step == 3  # encode and two steps
    assert latent(good.result()) == latent(Engine().run(row_instance(), row_request("good", seed=1)))


def test_weights_that_are_not_finite_are_named_at_the_first_step() -> None:
    net = Net()
    net.shift.fill_(torch.nan)
    with pytest.raises(RunFailed, match=r"^net of row-toy holds NaN or infinity in shift, seen at denoise"):
        Engine().run(row_instance(net), row_request("r"))


def test_weights_that_are_not_finite_are_refused_by_name() -> None:
    net = Net()
    require_finite_weights("net", net)
    net.scale.fill_(torch.inf)
    with pytest.raises(InvalidFolder, match=r"^net holds NaN or infinity in scale: take the component"):
        require_finite_weights("net", net)


def test_what_a_node_fills_is_looked_at() -> None:
    def encode(slots: Mapping[str, Any]) -> dict[str, Any]:
        return {"cond": torch.full((3,), torch.inf)}

    with pytest.raises(RunFailed, match=r"^encode \(net\) of row-toy gave NaN or infinity, 3 of 3 values"):
        Engine().run(row_instance(encode=encode), row_request("r"))


def test_a_broken_latent_never_becomes_pixels() -> None:
    """Without the check, NaN turns into whatever the conversion to uint8 makes of it."""

    class Overflowing(ToyLoop):
        def velocity(self, state: ToyState) -> torch.Tensor:
            return super().velocity(state) * (torch.inf if state.step == 1 else 1.0)

    with pytest.raises(RunFailed, match="denoise step 2 of 3 of toy"):
        Engine().run(toy_instance(Overflowing()), toy_request())
