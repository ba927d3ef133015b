"""Metadata: what the server writes into it, what may not change in it, and what it may not hold.

The server's are uid, creationTimestamp, resourceVersion, generation and the two deletion fields; whatever a client puts
there is replaced. managedFields are dropped here; the registry puts back what they are to be. Causes speak of
`metadata.…`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fairway.api.quantities import time_text
from fairway.embedded.catalog import Resource
from fairway.embedded.errors import Cause, denied, required, shown, wrong
from fairway.embedded.selector import QUALIFIED, VALUE

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
SAY_LABEL = ("a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
             "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
             "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')")
SAY_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')")
_SAY_QUALIFIED = ("name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
                  "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
                  "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')")
_SAY_VALUE = ("a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
              "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
              "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')")
_ANNOTATION_BYTES = 256 << 10
_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_LABEL_NAMED = ("namespaces", "services")
_KEPT = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
         "generation", "resourceVersion", "generateName")


def begin(thing: dict[str, Any], *, uid: str, now: float) -> None:
    """The metadata of a new object. Name and namespace are there already."""
    meta = thing["metadata"]
    for name in ("managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"):
        meta.pop(name, None)
    meta["uid"], meta["creationTimestamp"] = uid, time_text(int(now))


def carry(meta: dict[str, Any], old: Mapping[str, Any]) -> None:
    """What an update does not change."""
    meta.pop("managedFields", None)
    meta.pop("selfLink", None)
    for name in _KEPT:
        if name in old:
            meta[name] = old[name]
        else:
            meta.pop(name, None)


def faults(meta: Mapping[str, Any], old: Mapping[str, Any], *, resource: Resource) -> Iterator[Cause]:
    """What is wrong with the metadata, in the fields that are not as in `old`."""
    if not old:
        yield from _name_faults(resource, meta.get("name", ""))
    if (labels := meta.get("labels")) and labels != old.get("labels"):
        yield from label_faults(labels, "metadata.labels")
    if (annotations := meta.get("annotations")) and annotations != old.get("annotations"):
        yield from (wrong("metadata.annotations", key, _SAY_QUALIFIED)
                    for key in annotations if not QUALIFIED.fullmatch(key.lower()))
        if sum(len(key) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATION_BYTES:
            yield Cause("metadata.annotations", "FieldValueTooLong",
                        f"Too long: may not be more than {_ANNOTATION_BYTES} bytes")
    added = set(meta.get("finalizers") or ()) - set(old.get("finalizers") or ())
    for name in added:
        if not QUALIFIED.fullmatch(name):
            yield wrong("metadata.finalizers", name, _SAY_QUALIFIED)
        elif not resource.custom and name not in _FINALIZERS and not {"/", "."} & set(name):
            yield wrong("metadata.finalizers", name,
                        "name is neither a standard finalizer name nor is it fully qualified")
    if added and old.get("deletionTimestamp"):
        yield denied("metadata.finalizers", "no new finalizers can be added if the object is being deleted, found new "
                     f"finalizers {shown(sorted(added))}")


def label_faults(labels: Mapping[str, str], path: str) -> Iterator[Cause]:
    for key, value in labels.items():
        if not QUALIFIED.fullmatch(key):
            yield wrong(path, key, _SAY_QUALIFIED)
        if not VALUE.fullmatch(value):
            yield wrong(path, value, _SAY_VALUE if len(value) <= 63 else "must be no more than 63 characters")


def _name_faults(resource: Resource, name: str) -> Iterator[Cause]:
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif resource.kind.group == "rbac.authorization.k8s.io":
        if name in (".", "..") or "/" in name or "%" in name:
            yield wrong("metadata.name", name, "may not contain '/' or '%', and may not be '.' or '..'")
    elif resource.name in _LABEL_NAMED:
        if not LABEL.fullmatch(name):
            yield wrong("metadata.name", name, SAY_LABEL if len(name) <= 63 else "must be no more than 63 characters")
    elif not SUBDOMAIN.fullmatch(name):
        yield wrong("metadata.name", name, SAY_SUBDOMAIN if len(name) <= 253 else "must be no more than 253 characters")
