"""The manifests of `fairway/deploy`, a kustomize base, and where each object of them is served."""

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from fairway import NAMESPACE
from fairway.kube.kinds import Kind, Ref

Thing = dict[str, Any]


def manifests(namespace: str = NAMESPACE, folder: str = ".") -> Iterator[Thing]:
    """The objects of a folder of the base, in the order in which they are applied."""
    base = files("fairway") / "deploy" / folder
    for name in yaml.safe_load(_text(base / "kustomization.yaml", namespace))["resources"]:
        yield from filter(None, yaml.load_all(_text(base / name, namespace), yaml.CSafeLoader))


def ref_of(one: Thing) -> Ref:
    """Where an object of a manifest is served."""
    name, meta = one["kind"], one["metadata"]
    plural = re.sub("ys$", "ies", name.lower() + "s")
    return Ref(Kind(name, plural, one["apiVersion"], "namespace" in meta), meta["name"], meta.get("namespace", ""))


def _text(file: Traversable, namespace: str) -> str:
    return file.read_text().replace(NAMESPACE, namespace)
