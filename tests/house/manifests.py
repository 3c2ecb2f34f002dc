"""The rendering of the kustomize base as `kubectl kustomize` does it, as far as the base needs
it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

KUSTOMIZATION_KEYS = {"apiVersion", "kind", "namespace", "labels", "images", "resources"}
CLUSTER_WIDE = {"Namespace", "PriorityClass"}


def render(folder: Path) -> list[Manifest]:
    """Return every object of a kustomization with its namespace, labels and image tags set.

    Raises ValueError for a field of kustomize that this renderer does not know.
    """
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    if unknown := kustomization.keys() - KUSTOMIZATION_KEYS:
        raise ValueError(f"{folder}/kustomization.yaml: {sorted(unknown)} not rendered here")
    tags = {image["name"]: image["newTag"] for image in kustomization.get("images", [])}
    pairs = {
        key: value
        for label in kustomization.get("labels", [])
        for key, value in label["pairs"].items()
    }
    manifests = []
    for resource in kustomization["resources"]:
        for manifest in yaml.safe_load_all((folder / resource).read_text("utf-8")):
            metadata = manifest["metadata"]
            metadata["labels"] = {**metadata.get("labels", {}), **pairs}
            if manifest["kind"] not in CLUSTER_WIDE:
                metadata["namespace"] = kustomization["namespace"]
            elif manifest["kind"] == "Namespace":
                metadata["name"] = kustomization["namespace"]
            for container in containers(manifest):
                if (image := container["image"]) in tags:
                    container["image"] = f"{image}:{tags[image]}"
            manifests.append(manifest)
    return manifests


def pod_template(manifest: Manifest) -> Manifest | None:
    """Return the pod template of a workload, None for every other object."""
    template: Manifest | None = manifest.get("spec", {}).get("template")
    return template


def containers(manifest: Manifest) -> Iterator[Manifest]:
    """Yield the containers of a workload, including its init containers."""
    if template := pod_template(manifest):
        yield from template["spec"].get("initContainers", [])
        yield from template["spec"]["containers"]
