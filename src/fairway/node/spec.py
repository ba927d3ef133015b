"""What the shim of a container is to do, worked out from its pod: program, environment, mounts, limits, user.

A container that cannot be made as it is written is Unusable, and its message says why in one line.
"""

import base64
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.api.objects import GROUP_NAME
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection

from .attended import kept
from .cards import Dealer
from .containers.engine import Engine, is_of_image
from .environment import (
    Container,
    Pod,
    Source,
    Surroundings,
    Unusable,
    command,
    devices_of,
    environment,
    gang_of,
    references,
)
from .health.words import message_path
from .isolation.account import Account, Tenant
from .isolation.limits import Hierarchies, most_processes
from .names import Names
from .ports import port_of
from .resize import size_of
from .volumes import make_volumes, mounts, moved

SOURCES = {"ConfigMap": kinds.Kind("ConfigMap", "configmaps"), "Secret": kinds.Kind("Secret", "secrets")}
OF_POD = 4  # a container of a team's user: this part of the processes that the machine can have


@dataclass(frozen=True, slots=True)
class Specs:
    """`folder` holds everything of the pods; `base` is the environment of which children see a part; `capacity`: of
    this machine; `device_files`: by index, the files of GPUs that only pods with this GPU see. `over`: the uids of the
    pods that are over."""

    client: Client
    folder: Path
    capacity: Mapping[str, Any]
    base: Mapping[str, str]
    names: Names
    tenant: Tenant | None
    limits: Hierarchies
    device_files: Mapping[int, str]
    dealer: Dealer
    engine: Engine | None
    over: Callable[[], Collection[str]]

    async def of(self, pod: Pod, container: Container) -> dict[str, Any]:
        """What the shim is to do; Unusable also where the container lacks what no container lacks."""
        try:
            return await self._read(pod, container)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise Unusable(f"container {container['name']} is not written as Kubernetes expects it ({what})") from error

    async def _read(self, pod: Pod, container: Container) -> dict[str, Any]:
        meta, own = pod["metadata"], self.folder / pod["metadata"]["uid"]
        sources = {key: await self._source(meta["namespace"], *key) for key in references(pod["spec"])}
        gang = gang_of(pod)
        port = port_of(gang, self.folder / "ports") if gang else 0
        account = await self.tenant(pod) if self.tenant else None
        engine = self.engine if is_of_image(container) else None
        if engine:
            await engine.fetch(container)
        base = {} if engine else account.environment(self.base) if account else self.base
        links = self.names.variables(meta["namespace"]) if pod["spec"].get("enableServiceLinks", True) else {}
        around = Surroundings(base, sources, await self._peers(pod), port, self.capacity, links)
        over = self.over() if self.dealer.cards else ()
        env = environment(pod, container, around) | self.dealer.environment(pod, container, over)
        own.mkdir(mode=0o700, exist_ok=True)
        for place in (own / "work", own / "scratch"):
            place.mkdir(parents=True, exist_ok=True)
        message, hosts = message_path(container), self.names.hosts(meta["namespace"])
        mounted = mounts(pod, container, make_volumes(pod, own / "volumes", sources, account), env)
        mounted = mounted if engine else moved(mounted)
        is_bound = bool(mounted or message or hosts) or _gains_nothing(container)
        given = devices_of(pod, container["name"]).split(",")
        hidden = sorted(file for index, file in self.device_files.items() if str(index) not in given)
        hidden += self.dealer.hidden(pod, container) if self.tenant else []
        resources = {} if engine else container.get("resources") or {}
        return {
            **({"engine": engine.order(container, env, ",".join(given))} if engine else {}),
            "argv": [] if engine else kept(container, command(container, env)),
            "env": env,
            "folder": self._folder(container, own, account),
            "user": account.order(is_bound=is_bound) if account else None,
            "mounts": mounted,
            "hosts": hosts,
            "hidden": hidden,
            "cgroups": self.limits.make(f"{meta['uid']}-{container['name']}", resources, hidden,
                                        most_processes=most_processes() // OF_POD if account else 0),
            "message": message,
            "scratch": str(own / "scratch"),
            "grace": grace_of(pod),
            "size": size_of(pod),
        }

    def _folder(self, container: Container, own: Path, account: Account | None) -> str:
        """Where the program starts; of an engine's container, where its client does."""
        if self.engine and is_of_image(container):
            return str(own / "work")
        return container.get("workingDir") or (account.home if account else str(own / "work"))

    async def _source(self, namespace: str, kind: str, name: str) -> Source:
        """The entries of a ConfigMap or Secret; no entries if there is no such object."""
        found = await self.client.find(Ref(SOURCES[kind], name, namespace))
        if found is None:
            return Source(kind, name, None)
        files = {key: text.encode() for key, text in (found.get("data") or {}).items()}
        if kind == "Secret":
            files = {key: base64.b64decode(text) for key, text in files.items()}
        binary = {key: base64.b64decode(text) for key, text in (found.get("binaryData") or {}).items()}
        return Source(kind, name, files | binary)

    async def _peers(self, pod: Pod) -> tuple[str, ...]:
        meta = pod["metadata"]
        group = (meta.get("labels") or {}).get(GROUP_NAME)
        if not group:
            return ()
        pods = await self.client.list(Selection(kinds.PODS, meta["namespace"], labels=f"{GROUP_NAME}={group}"))
        return tuple(sorted(it["metadata"]["name"] for it in pods))


def grace_of(pod: Pod) -> int:
    return int(pod["spec"].get("terminationGracePeriodSeconds", 30))


def _gains_nothing(container: Container) -> bool:
    return (container.get("securityContext") or {}).get("allowPrivilegeEscalation") is False
