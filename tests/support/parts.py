"""Which of many cases are tried with every change, and which in the long part of the suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def later(*values: Any) -> Any:
    """A case of the long part."""
    return pytest.param(*values, marks=pytest.mark.long)


def few_now(cases: Iterable[Any], now: Callable[..., bool]) -> list[Any]:
    """The cases, all but those that `now` names marked for the long part. A case is a value, or a tuple of
    them, which `now` is given one by one."""
    given = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case) if now(*case) else later(*case) for case in given]
