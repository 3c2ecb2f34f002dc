"""Writes the Helm chart from what kustomize renders: ``values.yaml`` makes of its templates what
``k8s/base`` is, and ``values_prod.yaml`` besides what ``k8s/overlays/prod`` is.
``values.schema.json`` refuses values of other names and types.

    python k8s/helm/render.py

What differs between the two, and what an operator sets, is a value; everything else stands in the
templates as it is. Needs kubectl.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
K8S = HERE.parent

Manifest = dict[str, Any]

ROLES = ("zookeeper", "bookie", "broker", "autorecovery")
WORKLOADS = ("StatefulSet", "Deployment")
COMPONENTS = ("autoscaling", "backup", "drills")
CREDENTIALS = "zookeeperCredentials"
"""The value that is the name of a Secret; empty: there is none."""
SECRET = "zookeeper-credentials"
"""The name of that Secret in what kustomize renders."""
TLS = dict.fromkeys(ROLES, "zookeeperTls") | {"zookeeper": "tls"}
"""The value of each role that says whether it uses TLS: an update changes one after the other."""
PRIORITIES = "priorityClasses"
"""The value that says whether a release has the classes, which are for all namespaces alike."""

_CONFIGURATION = re.compile(r"^zookeeper-[0-9a-z]{10}$")
"""The name of the ConfigMap that has another name with another ``zoo.cfg``."""
_NAME = "zookeeper-{{ .Values.zookeeper.configuration | sha256sum | trunc 10 }}"
_REPLICAS = "  replicas: {{ toJson .Values.broker.replicas }}\n"
_REPLICAS_OR_AUTOSCALED = f"""\
{{{{- if not .Values.autoscaling }}}}
{_REPLICAS}\
{{{{- else }}}}
{{{{- with lookup "apps/v1" "Deployment" .Release.Namespace "broker" }}}}
  replicas: {{{{ toJson .spec.replicas }}}}
{{{{- end }}}}
{{{{- end }}}}
"""
"""An update to one without a number would have one broker until the autoscaler acts."""
_MEMBERS = """\
{{- $server := "(?m)^[ \\t]*server[.][0-9]+[ \\t]*[=:]" }}
{{- $members := regexFindAll $server .Values.zookeeper.configuration -1 | len | max 1 }}
{{- with .Values.zookeeper.replicas }}
{{- if ne $members (int64 .) }}
{{- fail (printf "zookeeper.replicas is %v, and the configuration has %d servers" . $members) }}
{{- end }}
{{- end }}
"""
"""A server that the list of members lacks is none, and a quorum is one of the list. One without a
list works alone; with 0, all are stopped."""
_PLACE = re.compile(r"'@@([^@]+)@@'")

_WRITTEN = "# Written by k8s/helm/render.py from what kustomize renders.\n"


def kustomize(folder: Path) -> list[Manifest]:
    """Return what kustomize makes of a folder."""
    command = ["kubectl", "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def with_components(*names: str) -> list[Manifest]:
    """Return what kustomize makes of the base and of ``components``, in that order."""
    with tempfile.TemporaryDirectory() as folder:
        base, *components = (
            os.path.relpath(K8S / part, os.path.realpath(folder))
            for part in ("base", *(f"components/{name}" for name in names))
        )
        overlay = {"resources": [base], "components": components}
        Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(overlay), "utf-8")
        return kustomize(Path(folder))


def objects(rendered: list[Manifest]) -> list[Manifest]:
    """Return the objects of a chart. A release goes into a namespace that is there."""
    return [each for each in rendered if each["kind"] != "Namespace"]


def component_of(manifest: Manifest) -> str:
    """Return the component that an object belongs to; empty: it is always there."""
    name, kind = manifest["metadata"]["name"], manifest["kind"]
    if kind == "HorizontalPodAutoscaler":
        return "autoscaling"
    if name == "drills":
        return "drills"
    return "backup" if "backup" in name else ""


def values_of(rendered: list[Manifest]) -> Manifest:
    """Return the values that make the templates what was rendered."""
    present = {component_of(each) for each in rendered}
    values: Manifest = {name: name in present for name in COMPONENTS}
    values[CREDENTIALS] = ""
    values[PRIORITIES] = True
    for each in objects(rendered):
        role, spec = each["metadata"]["name"], each.get("spec", {})
        if each["kind"] in WORKLOADS and role in ROLES:
            values[role] = {name: found for name, (_, found) in set_by_values(each).items()}
            if role != "zookeeper":
                values["image"] = spec["template"]["spec"]["containers"][0]["image"]
                # Empty: that of all. An update changes one role after the other.
                values[role] |= {"image": "", "extraArgs": []}
            values[role][TLS[role]] = False
        elif each["kind"] == "ConfigMap" and "zoo.cfg" in each["data"]:
            configuration = each["data"]["zoo.cfg"]
    values["zookeeper"]["configuration"] = configuration
    return values


def schema_of(values: Manifest) -> Manifest:
    """Return the schema that values have to satisfy: no names but these, and their types. What
    Kubernetes examines itself is not described further."""
    over_tls = {"required": ["zookeeperTls"], "properties": {"zookeeperTls": {"const": True}}}
    has_tls = {"required": ["tls"], "properties": {"tls": {"const": True}}}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        # The last two are given to a chart that is a part of another one.
        **_known({**values, "global": {}, "enabled": True}),
        "if": {"anyOf": [{"properties": {role: over_tls}} for role in ROLES if TLS[role] != "tls"]},
        "then": {
            "$comment": "Who talks to ZooKeeper over TLS does so as a user, and the servers have a "
            "port for it.",
            "properties": {CREDENTIALS: {"minLength": 1}, "zookeeper": has_tls},
        },
    }


def _known(values: Manifest) -> Manifest:
    return {
        "type": "object",
        "additionalProperties": False,
        # Kubernetes takes one that is missing for 1.
        "required": ["replicas"] if "replicas" in values else [],
        "properties": {name: _type_of(name, value) for name, value in values.items()},
    }


def _type_of(name: str, value: Any) -> Manifest:
    if name in ROLES:
        return _known(value)
    if isinstance(value, list):
        of = "string" if name == "extraArgs" else "object"
        return {"type": "array", "items": {"type": of}}
    if isinstance(value, bool | str | dict):
        return {"type": {bool: "boolean", str: "string", dict: "object"}[type(value)]}
    return {"type": "integer", "minimum": 0}


def differing(default: Manifest, wanted: Manifest) -> Manifest:
    """Return the values that make others of the default ones. Helm merges them: null removes."""
    found: Manifest = {}
    for key in default.keys() | wanted.keys():
        if key not in wanted:
            found[key] = None
        elif isinstance(default.get(key), dict) and isinstance(wanted[key], dict):
            if below := differing(default[key], wanted[key]):
                found[key] = below
        elif key not in default or default[key] != wanted[key]:
            found[key] = wanted[key]
    return dict(sorted(found.items()))


def set_by_values(workload: Manifest) -> dict[str, tuple[Manifest, Any]]:
    """Return what of a workload is a value, by its name: the object that holds it, and it."""
    role, spec = workload["metadata"]["name"], workload["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    holders = {
        "replicas": spec,
        "volumeClaimTemplates": spec,
        "affinity": pod,
        "topologySpreadConstraints": pod,
        "resources": container,
        **({"image": container, "env": container} if role == "zookeeper" else {}),
        **({"volumes": pod} if role == "bookie" else {}),
    }
    return {name: (holder, holder[name]) for name, holder in holders.items() if name in holder}


def template_of(manifest: Manifest) -> str:
    """Return the template of an object."""
    metadata, kind = manifest["metadata"], manifest["kind"]
    name = metadata["name"]
    if "namespace" in metadata:
        metadata["namespace"] = "@@.Release.Namespace@@"
    if is_role := kind in WORKLOADS:
        for key, (holder, found) in set_by_values(manifest).items():
            holder[key] = f"@@.Values.{name}.{key}@@"
            if key == "volumes" and (secrets := [each for each in found if "secret" in each]):
                holder[key] = f"@@(concat {_list(f'{name}.volumes')} {_go(secrets)})@@"
    if kind == "ConfigMap" and "zoo.cfg" in manifest["data"]:
        manifest["data"]["zoo.cfg"] = "@@.Values.zookeeper.configuration@@"
    for holder, key in _strings(manifest):
        if key == "secretName" and holder[key] == SECRET:
            holder[key] = f"@@.Values.{CREDENTIALS}@@"
        elif _CONFIGURATION.match(holder[key]):
            holder[key] = "@@name@@"
        elif key == "image" and "/fencelog:" in f"/{holder[key]}":
            own = f"(default .Values.image .Values.{name}.image)"
            holder[key] = f"@@{own if is_role else '.Values.image'}@@"
        elif key == "image" and holder[key].startswith("zookeeper:"):
            holder[key] = "@@.Values.zookeeper.image@@"
    if is_role and name != "zookeeper":
        container = manifest["spec"]["template"]["spec"]["containers"][0]
        given = " ".join(f'"{argument}"' for argument in container["args"])
        container["args"] = f"@@(concat (list {given}) {_list(f'{name}.extraArgs')})@@"
    text = yaml.safe_dump(manifest, sort_keys=False, width=10_000, allow_unicode=True)
    text = _PLACE.sub(r"{{ toJson \1 }}", text.replace("'@@name@@'", _NAME))
    return text.replace(_REPLICAS, _REPLICAS_OR_AUTOSCALED)


def _list(value: str) -> str:
    """Return a list of the values as an expression, also where it is removed, or not known yet."""
    return f"(default list .Values.{value})"


def alternatives(first: str, *others: tuple[str, str]) -> str:
    """Return the template that is the first one, or the last one of the others whose condition is
    true: pairs of it and a template. Where a condition is true, those before it are true as well,
    or make no difference."""
    texts = [text.splitlines(keepends=True) for text in (first, *(text for _, text in others))]
    conditions = ["", *(condition for condition, _ in others)]
    common: list[tuple[int, ...]] = [(line,) for line in range(len(texts[0]))]
    for one, other in pairwise(texts):
        same = dict(_same_lines(one, other))
        common = [(*lines, same[lines[-1]]) for lines in common if lines[-1] in same]
    parts: list[str] = []
    begins = (0,) * len(texts)
    for lines in [*common, tuple(map(len, texts))]:
        gaps = ["".join(text[i:j]) for text, i, j in zip(texts, begins, lines, strict=True)]
        parts += _choice(conditions, gaps)
        parts += texts[0][lines[0] : lines[0] + 1]
        begins = tuple(line + 1 for line in lines)
    return "".join(parts)


def _same_lines(one: list[str], other: list[str]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the lines that two texts have in common."""
    for i, j, count in SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks():
        yield from zip(range(i, i + count), range(j, j + count), strict=True)


def _choice(conditions: list[str], texts: list[str]) -> Iterator[str]:
    """Yield the template that is the last one of the texts whose condition is true."""
    keyword = "if"
    for number in range(len(texts) - 1, 0, -1):
        if texts[number] != texts[number - 1]:
            yield f"{{{{- {keyword} {conditions[number]} }}}}\n{texts[number]}"
            keyword = "else if"
    if keyword != "if":
        yield f"{{{{- else }}}}\n{texts[0]}" if texts[0] else ""
        yield "{{- end }}\n"


def _go(value: Any) -> str:
    """Return a value as an expression of templates."""
    if isinstance(value, dict):
        pairs = (f'"{key}" {_secret_name(key, each)}' for key, each in value.items())
        return f"(dict {' '.join(pairs)})"
    if isinstance(value, list):
        return f"(list {' '.join(map(_go, value))})"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _secret_name(key: str, value: Any) -> str:
    return f".Values.{CREDENTIALS}" if (key, value) == ("secretName", SECRET) else _go(value)


def _strings(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every text of an object: what holds it, and its key there."""
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        if isinstance(value, str):
            yield node, key
        elif isinstance(value, dict | list):
            yield from _strings(value)


def rendered() -> dict[Path, str]:
    """Return the text of every file of the chart that has another source."""
    base, prod = (kustomize(K8S / folder) for folder in ("base", "overlays/prod"))
    values, values_prod = values_of(base), values_of(prod)
    # For those who have the autoscaler's number set again.
    values_prod["broker"].setdefault("replicas", values["broker"]["replicas"])
    found = {
        HERE / "values.yaml": _WRITTEN + _dump(values),
        HERE / "values_prod.yaml": _WRITTEN + _dump(differing(values, values_prod)),
        HERE / "values.schema.json": json.dumps(schema_of(values), indent=2) + "\n",
    }
    parts: dict[str, list[str]] = {}
    for file, template in _of_base(base):
        parts.setdefault(file, []).append(template)
    for each in objects(prod):
        if component := component_of(each):
            parts.setdefault(component, []).append(template_of(each))
    for file, templates in parts.items():
        text = "---\n".join(templates)
        condition = PRIORITIES if file == "priorityclass" else file
        if condition in (*COMPONENTS, PRIORITIES):
            text = f"{{{{- if .Values.{condition} }}}}\n{text}{{{{- end }}}}\n"
        if file == "zookeeper":
            text = _MEMBERS + text
        found[HERE / "templates" / f"{file}.yaml"] = _WRITTEN + text
    return found


def _of_base(base: list[Manifest]) -> Iterator[tuple[str, str]]:
    """Yield the template of each object of the base, without and with credentials and TLS, after
    the name of its file."""
    plain, credentials, tls = (
        {(each["kind"], each["metadata"]["name"]): each for each in objects(made)}
        for made in (
            base,
            with_components("zookeeper-credentials"),
            with_components("zookeeper-credentials", "zookeeper-tls"),
        )
    )
    for title, manifest in (tls | plain).items():
        kind, name = title
        file = _file_of(manifest)
        role = name if kind in WORKLOADS and name in ROLES else "zookeeper"
        first, *others = (
            template_of(variant[title]) if title in variant else ""
            for variant in (plain, credentials, tls)
        )
        conditions = (f".Values.{CREDENTIALS}", f".Values.{role}.{TLS[role]}")
        yield file, alternatives(first, *zip(conditions, others, strict=True))


def _file_of(manifest: Manifest) -> str:
    """Return the name of the file that an object's template is in."""
    labels: dict[str, str] = manifest["metadata"]["labels"]
    kind: str = manifest["kind"]
    return labels.get("app.kubernetes.io/component", kind.lower())


def _dump(values: Manifest) -> str:
    return yaml.safe_dump(values, sort_keys=False, width=100, allow_unicode=True)


def main() -> None:
    """Write them."""
    for path, text in rendered().items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
