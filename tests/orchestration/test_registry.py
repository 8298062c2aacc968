"""Declarations of workflows: one namespace, no holes, no cycles."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mutoscope.platform.errors import InvalidWorkflow, UnknownWorkflow
from mutoscope.platform.orchestration import registry as registry_module
from mutoscope.platform.orchestration.registry import Registry
from mutoscope.platform.orchestration.workflow import workflow


@pytest.fixture
def registry() -> Registry:
    return Registry(card_ids=lambda: ("flux-t2i", "upscaler"))


def declare(registry: Registry, id: str, *requires: str, name: str, place: str | None = None) -> None:  # noqa: A002
    async def body(prompt: str) -> None: ...

    body.__qualname__ = place or name
    workflow(id, requires=requires, name=name, registry=registry)(body)


def test_found_by_id_and_by_name(registry: Registry) -> None:
    declare(registry, "image.make", "flux-t2i", name="make")
    assert registry.get("image.make") is registry.get("make")
    with pytest.raises(UnknownWorkflow, match=r"^workflow 'mkae' is unknown: use one of make$"):
        registry.get("mkae")


@pytest.mark.parametrize("bad", ["make", "Image.make", "image.", "image..make", "image-x.make", "1.a"])
def test_ids_are_dotted_snake_case(registry: Registry, bad: str) -> None:
    with pytest.raises(InvalidWorkflow, match="is malformed: use dotted snake case"):
        declare(registry, bad, name="make")


@pytest.mark.parametrize(
    ("new_id", "name", "claimed"),
    [
        ("image.make", "other", "image.make"),
        ("image.other", "make", "make"),
        ("image.other", "upscaler", "upscaler"),
    ],
)
def test_ids_and_names_share_one_namespace_with_cards(
    registry: Registry, new_id: str, name: str, claimed: str
) -> None:
    declare(registry, "image.make", name="make")
    with pytest.raises(InvalidWorkflow, match=f"claims '{claimed}'"):
        declare(registry, new_id, name=name, place="elsewhere")
    assert list(registry.all()) == ["image.make"]


def test_a_module_imported_again_replaces_its_own(registry: Registry) -> None:
    declare(registry, "image.make", name="make")
    first = registry.get("make")
    declare(registry, "image.make", name="make")
    assert registry.get("make") is not first
    assert len(registry.all()) == 1


def test_missing_requirements_are_found_however_deep(registry: Registry) -> None:
    declare(registry, "a.outer", "a.inner", "flux-t2i", name="outer")
    with pytest.raises(
        InvalidWorkflow, match=r"'a\.outer' requires 'a\.inner', which is no card or workflow"
    ):
        registry.check_requirements(registry.get("outer"))
    declare(registry, "a.inner", "no-such-card", name="inner")
    with pytest.raises(InvalidWorkflow, match=r"'a\.inner' requires 'no-such-card'"):
        registry.check_requirements(registry.get("outer"))


def test_the_declaration_that_closes_a_cycle_is_refused(registry: Registry) -> None:
    declare(registry, "a.one", "a.two", name="one")
    declare(registry, "a.two", "a.three", name="two")
    with pytest.raises(
        InvalidWorkflow, match=r"a\.three -> a\.one -> a\.two -> a\.three: remove one requirement"
    ):
        declare(registry, "a.three", "a.one", name="three")
    assert "a.three" not in registry.all()
    with pytest.raises(InvalidWorkflow, match=r"a\.self -> a\.self"):
        declare(registry, "a.self", "a.self", name="self")


def test_a_shared_requirement_is_no_cycle(registry: Registry) -> None:
    declare(registry, "a.leaf", "flux-t2i", name="leaf")
    declare(registry, "a.left", "a.leaf", name="left")
    declare(registry, "a.right", "a.leaf", name="right")
    declare(registry, "a.top", "a.left", "a.right", name="top")
    registry.check_requirements(registry.get("top"))


def test_a_workflow_is_an_async_function_with_annotated_named_parameters(registry: Registry) -> None:
    def plain(prompt: str) -> None: ...

    async def variadic(*prompts: str) -> None: ...

    async def bare(prompt) -> None: ...  # type: ignore[no-untyped-def]

    for fn, complaint in ((plain, "is not async"), (variadic, "takes named"), (bare, "takes named")):
        with pytest.raises(InvalidWorkflow, match=complaint):
            workflow("a.b", registry=registry)(fn)  # type: ignore[arg-type]


def test_a_workflow_is_required_by_function_or_by_id(registry: Registry) -> None:
    @workflow("a.inner", requires=["flux-t2i"], name="inner", registry=registry)
    async def inner(prompt: str) -> None: ...

    @workflow("a.outer", requires=[inner, "upscaler"], name="outer", registry=registry)
    async def outer(prompt: str) -> None: ...

    assert registry.get("outer").requires == ("a.inner", "upscaler")
    assert registry.cards_of(registry.get("outer")) == {"flux-t2i", "upscaler"}
    with pytest.raises(InvalidWorkflow, match=r"is no workflow of this registry: require it by its id$"):
        workflow("b.outer", requires=[inner], name="other", registry=Registry(card_ids=tuple))(outer.fn)


def test_what_is_missing_is_looked_for_in_modules_that_are_not_imported_yet() -> None:
    imported: list[str] = []

    def complete() -> None:
        imported.append("late")
        if "a.late" not in late.all():
            declare(late, "a.late", "flux-t2i", name="late")

    late = Registry(card_ids=lambda: ("flux-t2i",), complete=complete)
    declare(late, "a.early", "a.late", name="early")
    assert imported == []  # a declaration looks for nothing
    late.check_all()
    assert late.get("late").id == "a.late"
    assert imported == ["late"]
    declare(late, "a.lost", "a.nowhere", name="lost")
    with pytest.raises(InvalidWorkflow, match=r"'a\.lost' requires 'a\.nowhere', which is no"):
        late.check_all()


def test_a_module_whose_workflow_requires_what_does_not_exist_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hollow.py").write_text(
        "from mutoscope.platform.orchestration.workflow import workflow\n"
        '@workflow("test.hollow", requires=["no-such-card"])\n'
        "async def hollow() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(registry_module.VARIABLE, "hollow")
    monkeypatch.setattr(registry_module.REGISTRY, "_by_id", dict(registry_module.REGISTRY.all()))
    with pytest.raises(InvalidWorkflow, match=r"'test\.hollow' requires 'no-such-card', which is no card"):
        registry_module.discover()
    sys.modules.pop("hollow", None)
