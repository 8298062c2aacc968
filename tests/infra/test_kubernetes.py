"""Kubernetes: schemas of the API for every rendered manifest, and what a schema cannot say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from mutoscope.models.registry import cards
from tests.infra.conftest import INFRA, OVERLAYS, Manifest, containers, pods, rendered

VERSION = "1.33"
"""The oldest Kubernetes that the manifests are for."""

SCALED_OBJECT = json.loads(Path(__file__).with_name("scaled_object.json").read_text())
MADE_BY_HAND = {"mutoscope", "prefect", "proxy"}
"""Secrets of a production cluster; docs/deploy.md shows how they are made."""

pytestmark = pytest.mark.parametrize("overlay", OVERLAYS)


def of_kind(overlay: str, *kinds: str) -> Iterator[Manifest]:
    return (manifest for manifest in rendered(overlay) if manifest["kind"] in kinds)


def names(overlay: str, *kinds: str) -> set[str]:
    return {manifest["metadata"]["name"] for manifest in of_kind(overlay, *kinds)}


def selected(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_every_manifest_keeps_to_the_schema_of_its_kind(overlay: str) -> None:
    checked = 0
    for manifest in rendered(overlay):
        if manifest["kind"] == "ScaledObject":
            jsonschema.validate(manifest, SCALED_OBJECT)
        else:
            kubernetes_validate.validate(manifest, VERSION, strict=True)
        checked += 1
    assert checked > 25


def test_everything_is_in_one_namespace(overlay: str) -> None:
    assert {
        manifest["metadata"]["namespace"] for manifest in rendered(overlay) if manifest["kind"] != "Namespace"
    } == {"mutoscope"}


def test_configuration_that_pods_name_exists(overlay: str) -> None:
    maps, secrets = names(overlay, "ConfigMap"), names(overlay, "Secret")
    if overlay == "production":
        assert not secrets, "no secret is in a file"
        secrets = MADE_BY_HAND
    for where, template in pods(overlay):
        spec = template["spec"]
        for volume in spec.get("volumes", ()):
            if "configMap" in volume:
                assert volume["configMap"]["name"] in maps, where
            if "secret" in volume:
                assert volume["secret"]["secretName"] in secrets, where
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
            claims = {"data"} if where.startswith("StatefulSet/") else set()
            assert mounted <= {volume["name"] for volume in spec.get("volumes", ())} | claims, where
            for source in container.get("envFrom", ()):
                if "configMapRef" in source:
                    assert source["configMapRef"]["name"] in maps, where
                else:
                    assert source["secretRef"]["name"] in secrets, where


def test_selectors_select(overlay: str) -> None:
    """Services, budgets and policies mean pods that exist, and named ports that these have."""
    templates = dict(pods(overlay))
    for manifest in of_kind(overlay, "Service", "PodDisruptionBudget", "NetworkPolicy"):
        spec, where = manifest["spec"], f"{manifest['kind']}/{manifest['metadata']['name']}"
        selector = spec.get("selector", spec.get("podSelector", {}))
        selector = selector.get("matchLabels", selector)
        meant = [t for t in templates.values() if selected(t["metadata"]["labels"], selector)]
        assert meant, where
        if manifest["kind"] != "Service":
            continue
        ports = {port["name"] for t in meant for c in t["spec"]["containers"] for port in c.get("ports", ())}
        assert {port.get("targetPort", port["name"]) for port in spec["ports"]} <= ports, where


def test_probes_ask_ports_that_are_there(overlay: str) -> None:
    for where, container in containers(overlay):
        ports = {port["name"] for port in container.get("ports", ())}
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(kind, {})
            for how in ("httpGet", "tcpSocket"):
                if how in probe:
                    assert probe[how]["port"] in ports, f"{where} {kind}"


def test_everything_that_goes_on_is_probed(overlay: str) -> None:
    for manifest in of_kind(overlay, "Deployment"):
        for container in manifest["spec"]["template"]["spec"]["containers"]:
            if container["name"] != "reconciler":  # its manifest says why
                assert "readinessProbe" in container, manifest["metadata"]["name"]


def test_pods_are_confined_and_bounded(overlay: str) -> None:
    for where, template in pods(overlay):
        context = template["spec"]["securityContext"]
        assert context["runAsNonRoot"] is True, where
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, where
        assert template["spec"]["automountServiceAccountToken"] is False, where
    for where, container in containers(overlay):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False, where
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, where
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), where
        assert "memory" in container["resources"]["limits"], where


def test_images_have_tags(overlay: str) -> None:
    for where, container in containers(overlay):
        tag = container["image"].rpartition(":")[2]
        assert re.match(r"\d", tag), f"{where}: {container['image']}"


def test_workers_have_more_time_than_they_take_to_drain(overlay: str) -> None:
    found = 0
    for where, template in pods(overlay):
        (container, *_) = template["spec"]["containers"]
        if container["name"] == "worker":
            given = [a for a in container.get("args", ()) if a.startswith("--drain-seconds=")]
            drain = float(given[0].partition("=")[2]) if given else 30.0
            assert template["spec"]["terminationGracePeriodSeconds"] >= drain + 30, where
            found += 1
    assert found == {"local": 1, "production": 4}[overlay]


def test_what_runs_more_than_once_has_a_budget(overlay: str) -> None:
    budgets = [m["spec"]["selector"]["matchLabels"] for m in of_kind(overlay, "PodDisruptionBudget")]
    for manifest in of_kind(overlay, "Deployment"):
        labels = manifest["spec"]["template"]["metadata"]["labels"]
        if manifest["spec"]["replicas"] > 1 or "worker" in manifest["metadata"]["name"]:
            assert any(selected(labels, budget) for budget in budgets), manifest["metadata"]["name"]


def test_pools_scale_by_the_cards_they_serve(overlay: str) -> None:
    """Of both ways to scale: a card that a pool serves and nobody counts would never be scaled for."""
    deployments = {m["metadata"]["name"]: m for m in of_kind(overlay, "Deployment")}
    pools = {name: m for name, m in deployments.items() if name.startswith("worker-")}
    assert overlay == "local" or len(pools) == 4
    hpa = list(yaml.safe_load_all((INFRA / "kubernetes" / "components" / "hpa" / "scaling.yaml").read_text()))
    for manifest in hpa:
        kubernetes_validate.validate(manifest, VERSION, strict=True)
    for name, manifest in pools.items():
        served = _cards(manifest)
        assert served <= set(cards())
        (scaled,) = [m for m in of_kind(overlay, "ScaledObject") if _target(m) == name]
        (auto,) = [m for m in hpa if _target(m) == name]
        places = [trigger["metadata"]["valueLocation"] for trigger in scaled["spec"]["triggers"]]
        assert {re.search(r'card="(.+)"', place)[1] for place in places} == served  # type: ignore[index]
        counted = [m["external"]["metric"]["selector"]["matchLabels"] for m in auto["spec"]["metrics"]]
        assert {labels["card"] for labels in counted} == served


def _target(manifest: Manifest) -> str:
    return str(manifest["spec"]["scaleTargetRef"]["name"])


def _cards(manifest: Mapping[str, Any]) -> set[str]:
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    return {a.partition("=")[2] for a in container["args"] if a.startswith("--card=")}
