"""The shipped cards repeat themselves: across processes, and whoever they are served with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from mutoscope.platform.engine.instance import Instance
from tests.support.interleaving import serve_together
from tests.support.starter_digests import all_digests, digests, starter_instance, starter_request

CARDS = ["flux-t2i", "wan-i2v"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def starter() -> Callable[[str], Instance]:
    return cache(starter_instance)


def test_another_process_makes_the_same_bytes() -> None:
    """A fresh process with another hash seed; this one has run much else before."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.starter_digests"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == all_digests()


@pytest.mark.parametrize("card", CARDS)
def test_interleaved_equals_serial(card: str, starter: Callable[[str], Instance]) -> None:
    """Three requests, two equal, together and one by one."""
    instance = starter(card)
    requests = [starter_request(instance, "first"), starter_request(instance, "other", seed=8)]
    requests.append(starter_request(instance, "twin"))
    alone = {name: made for each in requests for name, made in serve_together(instance, [each]).items()}
    assert serve_together(instance, requests, stagger=1) == alone
    assert alone["first"] == alone["twin"]


@pytest.mark.parametrize("card", CARDS)
def test_another_seed_makes_another_output(card: str, starter: Callable[[str], Instance]) -> None:
    instance = starter(card)
    first, second = (digests(instance, starter_request(instance, seed=seed)) for seed in (7, 8))
    assert not set(first.values()) & set(second.values())


def test_another_image_makes_another_video(starter: Callable[[str], Instance]) -> None:
    instance = starter("wan-i2v")
    first, second = (digests(instance, starter_request(instance, flip=flip)) for flip in (False, True))
    assert not set(first.values()) & set(second.values())
