"""How a pod finds Services: variables, and a /etc/hosts of its own with their names.

The variables are those of Kubernetes, of the Services that are there when the container starts. The hosts file is one
per namespace: what the machine's says, `NAME`, `NAME.NAMESPACE` and `NAME.NAMESPACE.svc.cluster.local` of every
Service, and pods with a subdomain as `HOSTNAME.SUBDOMAIN…`. It is written in place, so that pods which have it mounted
see what comes later. Where no Service is, no pod has one. A Service has an address of its own on this machine; a
headless one, and every pod, is at 127.0.0.1.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairway.kube.client import Client
from fairway.kube.informer import Informer
from fairway.kube.kinds import Kind, Selection

from .environment import Pod

SERVICES = Kind("Service", "services")
HERE, DOMAIN, MACHINE = "127.0.0.1", "svc.cluster.local", Path("/etc/hosts")
Service = Mapping[str, Any]


class Names:
    """`folder` has the files; `pods` are those of this machine. `is_closed`: no namespace sees the names of another."""

    def __init__(
        self, client: Client, folder: Path, pods: Callable[[], Iterable[Pod]], *, is_closed: bool = False
    ) -> None:
        self.folder, self._pods, self.is_closed = folder, pods, is_closed
        self._written: dict[str, str] = {}
        self.informer = Informer[Service](client, Selection(SERVICES), shape=dict, changed=self._changed)

    def variables(self, namespace: str) -> dict[str, str]:
        return variables(it for it in self.informer.store.values() if it["metadata"]["namespace"] == namespace)

    def hosts(self, namespace: str) -> str:
        """The path of the namespace's file, as it is to be now; empty where there is no Service."""
        services = list(self._seen(self.informer.store.values(), namespace))
        if not services and namespace not in self._written:
            return ""
        text = MACHINE.read_text() + "".join(_lines(services, self._seen(self._pods(), namespace), namespace))
        path = self.folder / namespace
        if self._written.get(namespace) != text:
            self.folder.mkdir(mode=0o755, exist_ok=True)
            path.touch(mode=0o644)
            with path.open("r+") as file:
                file.write(text)
                file.truncate()
            self._written[namespace] = text
        return str(path)

    def _seen(self, things: Iterable[Service], namespace: str) -> Iterator[Service]:
        return (it for it in things if not self.is_closed or it["metadata"]["namespace"] == namespace)

    def _changed(self, old: Service | None, new: Service | None) -> None:
        for namespace in self._written:
            self.hosts(namespace)


def variables(services: Iterable[Service]) -> dict[str, str]:
    """Those of Services that have an address."""
    found: dict[str, str] = {}
    for it in services:
        address, ports = _address(it), it["spec"].get("ports") or ()
        if address == HERE or not ports:
            continue
        name = it["metadata"]["name"].upper().replace("-", "_")
        found |= {f"{name}_SERVICE_HOST": address, f"{name}_SERVICE_PORT": str(ports[0]["port"]),
                  f"{name}_PORT": _url(address, ports[0])}  # fmt: skip
        for port in ports:
            if port.get("name"):
                found[f"{name}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = str(port["port"])
            own = f"{name}_PORT_{port['port']}_{port.get('protocol', 'TCP')}"
            found |= {own: _url(address, port), f"{own}_PROTO": port.get("protocol", "TCP").lower(),
                      f"{own}_PORT": str(port["port"]), f"{own}_ADDR": address}  # fmt: skip
    return found


def _url(address: str, port: Mapping[str, Any]) -> str:
    return f"{port.get('protocol', 'TCP').lower()}://{address}:{port['port']}"


def _address(service: Service) -> str:
    address = service["spec"].get("clusterIP") or "None"
    return HERE if address == "None" else str(address)


def _lines(services: Iterable[Service], pods: Iterable[Pod], namespace: str) -> Iterator[str]:
    yield "\n# Services and pods\n"
    for it in services:
        if it["spec"].get("type") != "ExternalName":
            yield _line(_address(it), it["metadata"]["name"], it["metadata"]["namespace"], namespace)
    for pod in pods:
        if subdomain := pod["spec"].get("subdomain"):
            name = pod["spec"].get("hostname") or pod["metadata"]["name"]
            yield _line(HERE, f"{name}.{subdomain}", pod["metadata"]["namespace"], namespace)


def _line(address: str, name: str, own: str, namespace: str) -> str:
    names = [f"{name}.{own}.{DOMAIN}", f"{name}.{own}.svc", f"{name}.{own}"] + ([name] if own == namespace else [])
    return f"{address}\t{' '.join(names)}\n"
