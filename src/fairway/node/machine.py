"""This machine as a Node, and hollow nodes from a file.

`probe` reads what the machine has: CPUs this process may use, memory, disk, GPUs through NVML (none is normal, and so
is no driver). `offered` is what it offers, which options override. `node_of` is the Node object:
- labels as GPU feature discovery sets them, `fairway.dev/devices: Scheduler` (Fairway chooses devices);
- the annotation `fairway.dev/device-groups`, a JSON list of the devices, in the order of CUDA_VISIBLE_DEVICES:
  {"index": 0, "numa": 0, "nvlink": 0, "memory": "80Gi", "mig": false}; devices with the same `nvlink` number are linked
  with each other, -1 is none or unknown.
Labels and annotations of ours are renewed at every start, all others are the users', and stay; so do taints.
"""

import ctypes
import os
import platform
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from fairway.api.objects import CAN_PAUSE, CHOOSER, DEVICES, HOLLOW
from fairway.api.quantities import format as quantity
from fairway.api.quantities import parse, time_text
from fairway.kube import kinds
from fairway.kube.agenda import Agenda
from fairway.kube.client import Client, unless_absent
from fairway.kube.kinds import Ref
from fairway.kube.lease import micro_time
from fairway.kube.manifest import Unreadable, load

from .cards import Card, capacity_of, cards, labels_of, notes_of

GPU, PODS, CARDS = "nvidia.com/gpu", 110, "fairway.dev/cards"
LEASE_NAMESPACE, LEASE_SECONDS, RENEW_SECONDS = "kube-node-lease", 40, 10.0
FAKE_MODEL, FAKE_BYTES, FAKE_GROUP = "Fairway-Fake-80GB", 80 << 30, 4
OWN_LABEL = re.compile(r"(nvidia|amd)\.com/gpu\..*|fairway\.dev/devices")


@dataclass(frozen=True, slots=True)
class Gpu:
    """`numa` and `nvlink` are group numbers; -1: none or unknown. A GPU that is not there has no `uuid`, nor a device
    `file`, which goes by its minor number and not by its index."""

    index: int
    model: str
    memory: int
    numa: int = -1
    nvlink: int = -1
    is_partitioned: bool = False
    uuid: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a machine has, or offers: milli-CPU, bytes. `cards`: GPUs of other makers (cards.py)."""

    name: str
    cpu: int
    memory: int
    storage: int
    gpus: tuple[Gpu, ...] = ()
    cards: tuple[Card, ...] = ()


class NodesError(Exception):
    """A file of nodes that cannot be used: one line."""


def own_name() -> str:
    """The name of the Node that this machine is."""
    return re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower())[:63].strip("-.") or "localhost"


def probe(folder: Path) -> Machine:
    """`folder`: where pods keep their files."""
    cpu, disk = 1000 * len(os.sched_getaffinity(0)), psutil.disk_usage(str(folder)).total
    return Machine(own_name(), cpu, psutil.virtual_memory().total, disk, gpus(), cards())


def offered(machine: Machine, *, cpus: str = "", memory: str = "", fake_gpus: int | None = None) -> Machine:
    """The machine as the options want it seen; Malformed for a quantity that is none."""
    fakes = tuple(
        Gpu(index, FAKE_MODEL, FAKE_BYTES, index // FAKE_GROUP, index // FAKE_GROUP) for index in range(fake_gpus or 0)
    )
    return Machine(
        machine.name,
        parse(cpus, "cpu") if cpus else machine.cpu,
        parse(memory, "memory") if memory else machine.memory,
        machine.storage,
        machine.gpus if fake_gpus is None else fakes,
        machine.cards,
    )


def opened() -> Any:
    """NVML, to be shut down; None without a driver."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")  # asked first: the module below is large, and useless without it
        import pynvml

        pynvml.nvmlInit()
    except OSError:
        return None
    except pynvml.NVMLError:
        return None
    return pynvml


def gpus() -> tuple[Gpu, ...]:
    """The devices NVML knows, in its order, which is that of the bus; none without a driver."""
    if (nvml := opened()) is None:
        return ()
    try:
        devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        links = groups(len(devices), lambda one, two: _is_linked(nvml, devices[one], devices[two]))
        return tuple(_gpu(nvml, index, device, links[index]) for index, device in enumerate(devices))
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int, device: Any, link: int) -> Gpu:
    model, is_partitioned = nvml.nvmlDeviceGetName(device), False
    with suppress(nvml.NVMLError):  # not every model knows the question
        is_partitioned = nvml.nvmlDeviceGetMigMode(device)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    bus = nvml.nvmlDeviceGetPciInfo(device).busId
    bus = (bus.decode() if isinstance(bus, bytes) else bus).lower()
    numa = -1
    with suppress(OSError, ValueError):
        numa = int(Path(f"/sys/bus/pci/devices/{bus[-12:]}/numa_node").read_text())
    memory, uuid = nvml.nvmlDeviceGetMemoryInfo(device).total, nvml.nvmlDeviceGetUUID(device)
    model, uuid = (text.decode() if isinstance(text, bytes) else text for text in (model, uuid))
    return Gpu(index, model, memory, numa, link, is_partitioned, uuid, _file(nvml, device))


def _file(nvml: Any, device: Any) -> str:
    with suppress(nvml.NVMLError):
        return f"/dev/nvidia{nvml.nvmlDeviceGetMinorNumber(device)}"
    return ""


def _is_linked(nvml: Any, one: Any, two: Any) -> bool:
    with suppress(nvml.NVMLError):
        return bool(nvml.nvmlDeviceGetP2PStatus(one, two, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK)
    return False


def groups(count: int, is_linked: Any) -> list[int]:
    """A number per device, the same for those linked directly or through others; -1 for one linked with none."""
    group = list(range(count))
    for one in range(count):
        for two in range(one + 1, count):
            if group[one] != group[two] and is_linked(one, two):
                group = [group[one] if it == group[two] else it for it in group]
    numbers = {it: number for number, it in enumerate(sorted({it for it in group if group.count(it) > 1}))}
    return [numbers.get(it, -1) for it in group]


def node_of(machine: Machine, now: float) -> dict[str, Any]:
    capacity = {
        "cpu": quantity(machine.cpu, "cpu"),
        "memory": f"{machine.memory >> 10}Ki",
        "ephemeral-storage": f"{machine.storage >> 10}Ki",
        "pods": str(max(PODS, 2 * machine.cpu // 1000)),
    } | ({GPU: str(len(machine.gpus))} if machine.gpus else {}) | capacity_of(machine.cards)
    notes = {DEVICES: _devices(machine.gpus), CAN_PAUSE: "true"}
    if machine.cards:
        notes[CARDS] = msgspec.json.encode(notes_of(machine.cards)).decode()
    meta = {"name": machine.name, "labels": labels(machine), "annotations": notes}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta,
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": conditions(now),
                       "addresses": [{"type": "InternalIP", "address": "127.0.0.1"},
                                     {"type": "Hostname", "address": machine.name}],
                       "nodeInfo": _facts()}}


def labels(machine: Machine) -> dict[str, str]:
    said = {
        "kubernetes.io/hostname": machine.name,
        "kubernetes.io/arch": _architecture(),
        "kubernetes.io/os": platform.system().lower(),
        CHOOSER: "Scheduler",
    }
    said |= labels_of(machine.cards)
    if machine.gpus:
        said |= {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": re.sub(r"[^A-Za-z0-9_.-]+", "-", machine.gpus[0].model).strip("-")[:63],
            "nvidia.com/gpu.count": str(len(machine.gpus)),
            "nvidia.com/gpu.memory": str(min(gpu.memory for gpu in machine.gpus) >> 20),
        }
    return said


def _devices(gpus: Sequence[Gpu]) -> str:
    return msgspec.json.encode([
        {"index": it.index, "numa": it.numa, "nvlink": it.nvlink, "memory": quantity(it.memory, "memory"),
         "mig": it.is_partitioned}
        for it in gpus
    ]).decode()


def conditions(now: float) -> list[dict[str, str]]:
    """Ready, and nothing wrong."""
    said = (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "Fairway runs pods here"),
    )
    moment = time_text(int(now))
    names = ("type", "status", "reason", "message")
    return [dict(zip(names, it)) | {"lastHeartbeatTime": moment, "lastTransitionTime": moment} for it in said]


def _facts() -> dict[str, str]:
    def read(path: str) -> str:
        with suppress(OSError):
            return Path(path).read_text().strip()
        return ""

    system = read("/etc/os-release")
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', system, re.MULTILINE)
    return {
        "machineID": read("/etc/machine-id"),
        "systemUUID": read("/etc/machine-id"),
        "bootID": read("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": platform.release(),
        "osImage": found[1] if found else platform.system(),
        "containerRuntimeVersion": "fairway://processes",
        "kubeletVersion": "v1.32.0+fairway",
        "kubeProxyVersion": "",
        "operatingSystem": platform.system().lower(),
        "architecture": _architecture(),
    }


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def nodes_of(file: Path, now: float, *, machine: str) -> list[dict[str, Any]]:
    """The Node objects of a YAML file (documents, or Lists of them), as hollow nodes that are ready. An annotation sets
    them apart from Nodes of others."""
    try:
        nodes = [_hollow(file, it, now) for it in load(file)]
    except Unreadable as error:
        raise NodesError(str(error)) from error
    if machine in [node["metadata"]["name"] for node in nodes]:
        raise NodesError(f"{file}: node {machine!r} is this machine; give the hollow one another name")
    return nodes


def _hollow(file: Path, node: Any, now: float) -> dict[str, Any]:
    if not isinstance(node, dict) or node.get("kind") != "Node" or not (node.get("metadata") or {}).get("name"):
        raise NodesError(f"{file}: each object must be a Node with metadata.name")
    name, status = node["metadata"]["name"], dict(node.get("status") or {})
    for one, other in (("capacity", "allocatable"), ("allocatable", "capacity")):
        amounts = {"pods": PODS} | (status.get(one) or status.get(other) or {})
        status[one] = {resource: str(value) for resource, value in amounts.items()}
    meta = dict(node["metadata"])
    meta["labels"] = {"kubernetes.io/hostname": name} | (meta.get("labels") or {})
    meta["annotations"] = (meta.get("annotations") or {}) | {HOLLOW: "true"}
    status = {"conditions": conditions(now)} | status
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": node.get("spec") or {}, "status": status}


async def register(client: Client, node: dict[str, Any]) -> None:
    """Makes the node, or brings what is ours of it up to date."""
    meta = node["metadata"]
    place = Ref(kinds.NODES, meta["name"])
    found = await client.find(place) or await client.create(kinds.NODES, node)
    gone = {name: None for name in found["metadata"].get("labels") or {} if OWN_LABEL.fullmatch(name)}
    parts = {"labels": gone | (meta.get("labels") or {}), "annotations": meta.get("annotations") or {}}
    found = await client.patch(place, {"metadata": parts})
    await client.update(place, found | {"status": node["status"]}, subresource="status")


async def beat(client: Client, name: str) -> None:
    """Renews the node's Lease until cancelled: who watches nodes sees that it lives."""
    place = Ref(kinds.LEASES, name, LEASE_NAMESPACE)

    async def renew(_: str) -> float:
        now = client.clock.now()
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": micro_time(now)}
        if await unless_absent(client.patch(place, {"spec": spec})) is None:
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
            await client.create(kinds.LEASES, lease, namespace=LEASE_NAMESPACE)
        return now + RENEW_SECONDS

    agenda = Agenda(client.clock, client.chance)
    agenda.note(name)
    await agenda.run(renew)
