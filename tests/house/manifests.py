"""The rendering of the kustomize base as `kubectl kustomize` does it, as far as the base needs
it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from kubernetes_validate import utils

Manifest = dict[str, Any]

_OLDEST, _NEWEST = 27, int(kubernetes_validate.latest_version().split(".")[1])
VERSIONS = tuple(f"1.{minor}" for minor in range(_OLDEST, _NEWEST + 1))
"""Each Kubernetes that the manifests are for, up to the newest whose schema is known."""

# The definitions of a version, 1.8 MB, would be read for each object anew.
utils.schema_contents = lru_cache(maxsize=64)(utils.schema_contents)

KUSTOMIZATION_KEYS = {
    *("apiVersion", "kind", "namespace", "labels", "images", "resources", "configMapGenerator")
}
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
    generated = [config_map(each, folder) for each in kustomization.get("configMapGenerator", [])]
    names = {manifest["metadata"].pop("plain name"): manifest for manifest in generated}
    read = [
        manifest
        for resource in kustomization["resources"]
        for manifest in yaml.safe_load_all((folder / resource).read_text("utf-8"))
    ]
    for manifest in (*generated, *read):
        metadata = manifest["metadata"]
        metadata["labels"] = {**metadata.get("labels", {}), **pairs}
        if manifest["kind"] not in CLUSTER_WIDE:
            metadata["namespace"] = kustomization["namespace"]
        elif manifest["kind"] == "Namespace":
            metadata["name"] = kustomization["namespace"]
        for container in containers(manifest):
            if (image := container["image"]) in tags:
                container["image"] = f"{image}:{tags[image]}"
        for volume in (pod_template(manifest) or {"spec": {}})["spec"].get("volumes", ()):
            mounted = volume.get("configMap", {})
            if (named := names.get(mounted.get("name"))) is not None:
                mounted["name"] = named["metadata"]["name"]
    return [*generated, *read]


def config_map(generator: Manifest, folder: Path) -> Manifest:
    """Return the ConfigMap that a generator makes. It has a name of its contents, as kustomize
    makes it, and its "plain name"."""
    if unknown := generator.keys() - {"name", "files", "options"}:
        raise ValueError(f"{folder}/kustomization.yaml: {sorted(unknown)} not rendered here")
    name, data = generator["name"], {f: (folder / f).read_text("utf-8") for f in generator["files"]}
    hashed = json.dumps(
        {"data": data, "kind": "ConfigMap", "name": ""}, separators=(",", ":"), sort_keys=True
    )
    digest = hashlib.sha256(hashed.encode()).hexdigest()[:10]
    metadata = {
        "plain name": name,
        "name": f"{name}-{digest.translate(str.maketrans('013ae', 'ghkmt'))}",
        "labels": dict(generator.get("options", {}).get("labels", {})),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod_template(manifest: Manifest) -> Manifest | None:
    """Return the pod template of a workload, None for every other object."""
    spec = manifest.get("spec", {})
    template: Manifest | None = spec.get("jobTemplate", {}).get("spec", spec).get("template")
    return template


def containers(manifest: Manifest) -> Iterator[Manifest]:
    """Yield the containers of a workload, including its init containers."""
    if template := pod_template(manifest):
        yield from template["spec"].get("initContainers", [])
        yield from template["spec"]["containers"]


def title(manifest: Manifest) -> str:
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def by_title(manifests: list[Manifest], name: str) -> Manifest:
    return next(manifest for manifest in manifests if title(manifest) == name)


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    """Tell whether a selector, of a Service or with expressions, finds pods with these labels."""
    expressions = selector.get("matchExpressions", [])
    plain = {} if expressions else selector
    assert all(expression["operator"] == "In" for expression in expressions)
    return selector.get("matchLabels", plain).items() <= labels.items() and all(
        labels.get(expression["key"]) in expression["values"] for expression in expressions
    )


def pod_labels(manifest: Manifest) -> dict[str, str]:
    """Return the labels of a workload's pods, or of a pod."""
    template = pod_template(manifest) or manifest
    labels: dict[str, str] = template["metadata"]["labels"]
    return labels


def kubectl_renders(folder: Path) -> list[Manifest]:
    """Return what ``kubectl kustomize`` makes of a folder."""
    command = ["kubectl", "kustomize", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(run.stdout))
