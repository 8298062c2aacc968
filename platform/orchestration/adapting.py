"""Adapter import: a LoRA file becomes, for each component it changes, a weight version over its base.

The file is judged by its header: how its tensors are named, and whether their shapes fit the base. What is
stored of it is the tensors of one component each, under the digest of the base; a run that pins such a
version is served the base with the adapter on it. The versions get an alias of their own: an adapter never
becomes what runs use unasked. No torch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from mutoscope.platform.artifacts import ArtifactRef, ArtifactStore
from mutoscope.platform.artifacts.components import StoredComponent, put_component
from mutoscope.platform.artifacts.manifest import ComponentManifest, manifest_in
from mutoscope.platform.artifacts.tensors import shapes_of
from mutoscope.platform.catalog import Catalog, WeightVersion
from mutoscope.platform.catalog.weights import LIVE, check_alias
from mutoscope.platform.custody.users import register
from mutoscope.platform.engine.card import Card
from mutoscope.platform.errors import InvalidAdapter, InvalidParameter, UnknownReference
from mutoscope.platform.lora import components_of, layers_of, require_fit
from mutoscope.platform.tensorfile import NotSafetensors, TensorLayout, build_header, read_layout

FILE = "pytorch_lora_weights.safetensors"
"""What diffusers calls such a file, so that it opens what the store holds."""

_CHUNK_BYTES = 1 << 20


def import_adapter(
    catalog: Catalog,
    store: ArtifactStore,
    card: Card,
    file: Path,
    *,
    alias: str,
    component: str | None = None,
    base: str | None = None,
) -> dict[str, WeightVersion]:
    """Store a LoRA file's changes and give them an alias.

    Args:
        alias: what runs select the adapter by; what had it before is retired from it.
        component: take only the changes of this one; None takes all in the file.
        base: name of the version that the adapter is for, such as ``flux-t2i/transformer@3``, where it is not
            the live one; the file must then be for that component alone.

    Returns:
        The version of each component.

    Raises:
        InvalidAdapter: no LoRA as diffusers names it, or one that does not fit its base; nothing is recorded.
        InvalidParameter: an alias or a component that cannot be.
        UnknownReference: the card has no base yet, or not that one.
    """
    file = file.expanduser().resolve()
    check_alias(alias)
    if alias == LIVE:
        raise InvalidParameter(
            "alias", alias, "give the adapter an alias of its own; a run selects it by that"
        )
    layout = _layout(file)
    chosen = _components(card, layout, component)
    bases = {name: _base(catalog, card, name, base) for name in chosen}
    for name in chosen:
        _require_fit(store, layout, name, bases[name])
    store.check_writable()
    register(catalog, store)
    with catalog.leases.writing(f"import of {file.name} for {card.id}"):
        return _import(catalog, store, card, (file, layout), bases, alias)


def _import(
    catalog: Catalog,
    store: ArtifactStore,
    card: Card,
    source: tuple[Path, TensorLayout],
    bases: Mapping[str, WeightVersion],
    alias: str,
) -> dict[str, WeightVersion]:
    file, layout = source
    stored = {}
    whole = len(components_of(_shapes(layout))) == 1
    with tempfile.TemporaryDirectory() as folder:
        for name, version in bases.items():
            own = file if whole else _part(file, layout, name, Path(folder))
            stored[name] = put_component(store, name, {FILE: own}, base=version.digest)
    digests = {name: component.manifest.digest for name, component in stored.items()}
    before = catalog.weights.aliased(card.id, alias)
    if digests == {name: version.digest for name, version in before.items()}:
        # The same again, and all of it stored: rows marked as lost or collected meanwhile are back.
        catalog.artifacts.record_many([ref for component in stored.values() for ref in _objects(component)])
        return before
    run = catalog.runs.record_completed(
        "import",
        card=card.id,
        parameters={"adapter": str(file), "origin": "user"},
        used={f"weights:{name}": version.digest for name, version in bases.items()},
        generated={f"weights:{name}": component.manifest for name, component in stored.items()},
        members={component.manifest.digest: component.members for component in stored.values()},
    )
    return catalog.weights.publish_all(card.id, digests, run.id, alias=alias, parents=bases)


def _objects(component: StoredComponent) -> list[ArtifactRef]:
    members = (ref for ref in component.members.values() if isinstance(ref, ArtifactRef))
    return [component.manifest, *members]


def _layout(file: Path) -> TensorLayout:
    try:
        with file.open("rb") as opened:
            return read_layout(lambda start, length: _read(opened, start, length), file.stat().st_size)
    except OSError as error:
        raise InvalidAdapter(f"{file} cannot be read ({error.strerror}): give a safetensors file") from None
    except NotSafetensors as reason:
        raise InvalidAdapter(f"{file} {reason}: give a safetensors file") from None


def _components(card: Card, layout: TensorLayout, component: str | None) -> tuple[str, ...]:
    known = [part.name for part in card.components if part.weighted]
    if component is not None and component not in known:
        raise InvalidParameter("component", component, f"{card.id} has {', '.join(known)}")
    found = components_of(_shapes(layout))
    if component is not None:
        return (component,)
    for name in found:
        if name not in known:
            raise InvalidAdapter(
                f"the adapter changes {name}, and {card.id} has {', '.join(known)}: use one for this card"
            )
    return found


def _base(catalog: Catalog, card: Card, component: str, base: str | None) -> WeightVersion:
    if base is None:
        live = catalog.weights.live(card.id).get(component)
        if live is None:
            raise UnknownReference(
                f"card {card.id} has no {component}: use `mutoscope weights import {card.id} FOLDER`"
            )
        return live
    version = catalog.weights.get(base)
    if (version.card, version.component) != (card.id, component):
        raise InvalidParameter(
            "base", base, f"the adapter is for {component}: name a version of {card.id}/{component}"
        )
    return version


def _require_fit(store: ArtifactStore, layout: TensorLayout, component: str, base: WeightVersion) -> None:
    manifest: ComponentManifest | None = manifest_in(store.get(base.digest))
    if manifest is None:
        raise InvalidAdapter(f"{base} has no tensors: adapters change modules")
    shapes = _shapes(layout)
    try:
        require_fit(layers_of(shapes, layout.metadata, component), shapes, shapes_of(store, manifest))
    except InvalidAdapter as error:
        raise InvalidAdapter(f"{error} (base {base})") from None


def _shapes(layout: TensorLayout) -> dict[str, tuple[int, ...]]:
    return {span.name: span.shape for span in layout.spans}


def _part(file: Path, layout: TensorLayout, component: str, folder: Path) -> Path:
    """The tensors of one component in a file of their own. Equal input, equal bytes."""
    spans = [span for span in layout.spans if span.name.startswith(f"{component}.")]
    path = folder / f"{component}.safetensors"
    with file.open("rb") as source, path.open("wb") as target:
        listed = ((span.name, span.dtype, span.shape, span.size) for span in spans)
        target.write(build_header(listed, layout.metadata))
        for span in spans:
            source.seek(span.start)
            left = span.size
            while left and (chunk := source.read(min(left, _CHUNK_BYTES))):
                left -= len(chunk)
                target.write(chunk)
    return path


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)
