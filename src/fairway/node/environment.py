"""What the process of a container finds: its variables and its arguments. Pure; what it needs is fetched before.

Of Fairway's own environment a child sees an allow-list, nothing else. Over it stand, each replacing the ones before:
HOSTNAME; the variables of Services; for members of a gang RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR
and MASTER_PORT, or what torchrun reads; envFrom; env, with $(NAME) expanded as Kubernetes does. Last, so that nobody
sees another's device: CUDA_VISIBLE_DEVICES, the pod's devices dealt out to its containers in their order (empty for one
without), and CUDA_DEVICE_ORDER, since we count as NVML does. What exec(2) would not take is refused before it is made:
each reference can double what is there, and a few dozen would fill any memory.

LOCAL_RANK is 0 of 1: a process sees only its own devices, as if it were alone on its machine. A gang is an indexed Job
(rank = completion index) or bare pods with a group label (rank = what their names mean, `api/names.py`).
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from fairway.api.names import ranks
from fairway.api.objects import ASSIGNED, ELASTIC, GROUP_NAME, GROUP_SIZE, INDEX, MIN_COUNT, WORLD_SIZE
from fairway.api.quantities import Malformed, exact, shown

GPU = "nvidia.com/gpu"
ALLOWED = re.compile(r"(LD_LIBRARY_)?PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|CUDA_(HOME|PATH)")
NAMED = {"configMapRef": "ConfigMap", "configMapKeyRef": "ConfigMap", "configMap": "ConfigMap",
         "secretRef": "Secret", "secretKeyRef": "Secret", "secret": "Secret"}
REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
POD_UID, HERE = "FAIRWAY_POD_UID", "127.0.0.1"
DEFAULT_PATH = "/dev/termination-log"  # of a container's last words
MOST_BYTES, MOST_IN_ALL = 128 << 10, 2 << 20
"""Of one argument or variable, and of all of a process, as exec(2) takes them."""
LAST_CALL_SECONDS, TORCHRUN_RESTARTS = 5, 10
"""How long torchrun waits for more than the fewest pods; how often workers may fail, as they do when a pod is taken."""

Pod = Mapping[str, Any]
Container = dict[str, Any]


class Unusable(Exception):
    """The container cannot be made as it is written, in one sentence. `reason`: Kubernetes' word for it."""

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Source:
    """A ConfigMap or Secret: `files` are its entries as bytes; None where there is no such object."""

    kind: str
    name: str
    files: Mapping[str, bytes] | None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the pod does not say itself. `peers`: names of the pods of its group; `port`: its workload's own; `links`:
    the variables of Services."""

    base: Mapping[str, str]
    sources: Mapping[tuple[str, str], Source]
    peers: tuple[str, ...] = ()
    port: int = 0
    capacity: Mapping[str, str] | None = None
    links: Mapping[str, str] = field(default_factory=dict)


def references(value: Any) -> set[tuple[str, str]]:
    """The (kind, name) of every ConfigMap and Secret named in a pod's spec, or in any part of it."""
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    named = {(NAMED[key], _name(it)) for key, it in value.items() if key in NAMED and isinstance(it, dict)}
    return {each for each in named if each[1]}.union(*map(references, value.values()))


def _name(reference: dict[str, Any]) -> str:
    return str(reference.get("name") or reference.get("secretName") or "")


def environment(pod: Pod, container: Container, around: Surroundings) -> dict[str, str]:
    env = {name: value for name, value in around.base.items() if ALLOWED.fullmatch(name)}
    env["HOSTNAME"] = pod["spec"].get("hostname") or pod["metadata"]["name"]
    env |= around.links
    env |= gang(pod, around)
    said: dict[str, str] = {}
    for name, value in _bounded(_said(pod, container, around, said)):
        said[name] = value
    devices = {"CUDA_VISIBLE_DEVICES": devices_of(pod, container["name"]), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return env | said | devices | {POD_UID: pod["metadata"]["uid"]}


def _said(
    pod: Pod, container: Container, around: Surroundings, before: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """The variables that the pod names, one by one; `before` has those that came before."""
    for each in container.get("envFrom") or ():
        yield from _all_of(each, around).items()
    for each in container.get("env") or ():
        value = _value(pod, container, each, around)
        if value is not None:
            yield each["name"], expand(value, before, f"env {shown(each['name'])}")


def _bounded(texts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Names and texts as they come, until one is more than exec(2) takes."""
    left = MOST_IN_ALL
    for name, text in texts:
        size = len(os.fsencode(f"{name}={text}")) + 1
        left -= size
        if size > MOST_BYTES:
            raise _too_long(f"env {shown(name)}" if name else "an argument", MOST_BYTES)
        if left < 0:
            raise Unusable(f"{f'env up to {shown(name)}' if name else 'the arguments'}: more than"
                           f" {MOST_IN_ALL} bytes in all, which no program can be started with: pass them in files")
        yield name, text


def _too_long(what: str, most: int) -> Unusable:
    return Unusable(f"{what}: longer than {most} bytes with all that $(NAME) stands for in it: shorten it")


def command(container: Container, env: Mapping[str, str]) -> list[str]:
    if not container.get("command"):
        raise Unusable(
            f"container {container['name']!r} has no command: give it one (kubectl run: --command), since the entry"
            " point of an image needs a container engine (`fairway up --containers podman`)"
        )
    return words(container, env)


def words(container: Container, env: Mapping[str, str]) -> list[str]:
    """Command and arguments."""
    said = (*(container.get("command") or ()), *(container.get("args") or ()))
    return [word for _, word in _bounded(("", expand(it, env, "an argument")) for it in said)]


def expand(text: str, env: Mapping[str, str], what: str, most: int = MOST_BYTES) -> str:
    """$(NAME) → its value, or left as it is where there is none; $$ → $. Unusable, for `what`, beyond `most`."""
    left, end = most - len(text), text.rfind(")") + 1  # past the last one a search for the next would never end

    def put(found: re.Match[str]) -> str:
        nonlocal left
        value = "$" if found[0] == "$$" else env.get(found[1], found[0])
        left -= len(value) - len(found[0])
        if left < 0:
            raise _too_long(what, most)
        return value

    return REFERENCE.sub(put, text[:end]) + text[end:].replace("$$", "$")


def devices_of(pod: Pod, name: str) -> str:
    """The devices of a container: as many as it asks for; all of the pod's where no container asks for whole ones."""
    text = (pod["metadata"].get("annotations") or {}).get(ASSIGNED, "")
    devices = [device for device in text.split(",") if device]
    asked = {it["name"]: _asked(it) for it in pod["spec"]["containers"]}
    if not any(asked.values()):
        return ",".join(devices)
    if name not in asked:
        return ",".join(devices)  # an init container runs alone
    before = 0
    for other, count in asked.items():
        if other == name:
            return ",".join(devices[before : before + count])
        before += count
    return ""


def _asked(container: Container) -> int:
    resources = container.get("resources") or {}
    amount = (resources.get("limits") or {}).get(GPU) or (resources.get("requests") or {}).get(GPU) or "0"
    return int(exact(str(amount)))


def controller_of(pod: Pod) -> dict[str, str]:
    """The reference to what controls it; empty where nothing does."""
    return next((it for it in pod["metadata"].get("ownerReferences") or () if it.get("controller")), {})


def gang_of(pod: Pod) -> str:
    """What the members of the pod's gang have in common; empty if it is in none."""
    meta = pod["metadata"]
    if WORLD_SIZE in (meta.get("annotations") or {}):
        return controller_of(pod).get("uid", "")
    group = (meta.get("labels") or {}).get(GROUP_NAME, "")
    return f"{meta['namespace']}/{group}" if group else ""


def gang(pod: Pod, around: Surroundings) -> dict[str, str]:
    if not gang_of(pod):
        return {}
    meta = pod["metadata"]
    annotations = meta.get("annotations") or {}
    if annotations.get(ELASTIC) == "torchrun":
        return _torchrun(pod, around.port)
    if WORLD_SIZE in annotations:
        rank, size = annotations[INDEX], annotations[WORLD_SIZE]
    else:
        size = (meta.get("labels") or {}).get(GROUP_SIZE, str(len(around.peers)))
        rank = str(ranks(around.peers, size)[meta["name"]])
    return {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": HERE,
        "MASTER_PORT": str(around.port),
    }


def _torchrun(pod: Pod, port: int) -> dict[str, str]:
    """The defaults of torchrun's options (it reads `PET_` and their names): each pod is one of its nodes, and the first
    rank, which is the last to be taken away, holds the rendezvous. Its workers get RANK and the like from torchrun."""
    notes = pod["metadata"]["annotations"]
    devices = notes.get(ASSIGNED, "")
    is_first = notes[INDEX] == "0"
    return {
        "PET_NNODES": f"{notes.get(MIN_COUNT, notes[WORLD_SIZE])}:{notes[WORLD_SIZE]}",
        "PET_NPROC_PER_NODE": str(max(1, len(set(filter(None, devices.split(",")))))),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{HERE}:{port}",
        "PET_RDZV_ID": gang_of(pod),
        "PET_RDZV_CONF": f"is_host={str(is_first).lower()},last_call_timeout={LAST_CALL_SECONDS}",
        "PET_LOCAL_ADDR": HERE,
        "PET_MAX_RESTARTS": str(TORCHRUN_RESTARTS),
    }


def _all_of(each: dict[str, Any], around: Surroundings) -> dict[str, str]:
    files = _looked_up(each, around)[2]
    return {each.get("prefix", "") + name: os.fsdecode(value) for name, value in (files or {}).items()}


def _value(pod: Pod, container: Container, each: dict[str, Any], around: Surroundings) -> str | None:
    source = each.get("valueFrom")
    if not source:
        return str(each.get("value", ""))
    if field := source.get("fieldRef"):
        return field_value(pod, field["fieldPath"])
    if resource := source.get("resourceFieldRef"):
        return _resource(pod, container, resource, around)
    kind, ref, files = _looked_up(source, around)
    if files is not None and ref["key"] not in files and not ref.get("optional"):
        raise Unusable(f"couldn't find key {ref['key']} in {kind} {pod['metadata']['namespace']}/{ref['name']}")
    return os.fsdecode(files[ref["key"]]) if files is not None and ref["key"] in files else None


def _looked_up(holder: dict[str, Any], around: Surroundings) -> tuple[str, dict[str, Any], Mapping[str, bytes] | None]:
    """Kind, reference and entries of the object that `holder` refers to; no entries where it is missing and may be."""
    named = [(NAMED[key], it) for key, it in holder.items() if key in NAMED and it and it.get("name")]
    if not named:
        raise Unusable("env or envFrom refers to no ConfigMap and no Secret by its name")
    ((kind, ref),) = named
    source = around.sources.get((kind, ref["name"]))
    if source is None or source.files is None:
        if not ref.get("optional"):
            raise Unusable(f'{kind.lower()} "{ref["name"]}" not found')
        return kind, ref, None
    return kind, ref, source.files


def field_value(pod: Pod, path: str) -> str:
    meta, spec = pod["metadata"], pod["spec"]
    if found := SUBSCRIPT.fullmatch(path):
        return str((meta.get(found[1]) or {}).get(found[2], ""))
    known = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        **dict.fromkeys(("status.hostIP", "status.podIP", "status.hostIPs", "status.podIPs"), "127.0.0.1"),
    }
    if path not in known:
        raise Unusable(f"fieldPath {path!r} is not supported")
    return known[path]


def _resource(pod: Pod, container: Container, ref: dict[str, Any], around: Surroundings) -> str:
    """`limits.cpu` and the like, in units of the divisor, rounded up; no limit: what the machine has."""
    among = (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
    named = next((it for it in among if it["name"] == ref.get("containerName")), container)
    sort, _, resource = ref["resource"].partition(".")
    fallback = (around.capacity or {}).get(resource, "0") if sort == "limits" else "0"
    amount = ((named.get("resources") or {}).get(sort) or {}).get(resource, fallback)
    try:
        return str(ceil(exact(str(amount)) / (exact(str(ref.get("divisor") or "1")) or 1)))
    except Malformed as error:
        raise Unusable(f"resource {ref['resource']}: {error}") from error
