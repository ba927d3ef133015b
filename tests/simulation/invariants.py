"""What must hold at every moment, whatever fails: watched on the server's own objects, at every commit.

No device or CPU is given twice; no rank runs twice, and nothing runs of a workload that is over; no gang stays started
in part; no queue has more admitted than its limit, or spends more than its budget; nothing starts on a node that is
reserved for others, or in room that is kept for one before it; what a workload is charged is the integral of what it
held; and nothing waits long that a scheduler which has just come would start.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from promises import Seen, given_away, is_behind, promised
from simworld import is_frozen, is_leaving, is_running, is_true

from fairway.api.objects import ASSIGNED, ATTEMPT
from fairway.api.quantities import parse, time
from fairway.clock import Clock
from fairway.embedded.jobtypes import FINALIZER
from fairway.embedded.store import Event, Store

JOB = "batch.kubernetes.io/job-name"
INDEX = "batch.kubernetes.io/job-completion-index"
GPU = "nvidia.com/gpu"
WORKLOADS, QUEUES = "workloads.fairway.dev", "queues.fairway.dev"
Thing = dict[str, Any]
Cell = tuple[str, str]
"""Pool, resource."""
NEVER = "1970-01-01T00:00:00Z"


def is_on_node(pod: Thing) -> bool:
    return "nodeName" in pod["spec"] and pod["status"].get("phase") not in ("Succeeded", "Failed")


def workload_of(pod: Thing) -> str:
    """The name of the Workload that a pod was bound for."""
    return pod["metadata"].get("annotations", {}).get(ATTEMPT, "").split("/")[0]


def conditions_of(workload: Thing) -> dict[str, float]:
    """Since when each condition that is true is so."""
    said = workload.get("status", {}).get("conditions", ())
    return {it["type"]: time(it["lastTransitionTime"]) for it in said if it["status"] == "True"}


def held_of(workload: Thing) -> Counter[Cell]:
    """What an admitted workload holds, in base units."""
    admission, held = workload["status"]["admission"], Counter[Cell]()
    counts = {one["name"]: sum(it["count"] for it in one.get("nodes", ())) for one in admission["podSets"]}
    for podset in workload["spec"]["podSets"]:
        requests = podset["template"]["spec"]["containers"][0]["resources"]["requests"]
        for name, amount in requests.items():
            held[admission["pool"], name] += parse(amount, name) * counts[podset.get("name", "main")]
    return held


def _served(status: Thing) -> dict[Cell, float]:
    amounts = status.get("served", {}).get("amounts", {})
    return {(pool, name): it for pool, of in amounts.items() for name, it in of.items()}


@dataclass(slots=True)
class Meter:
    """Integrates what one workload holds over the times that its status tells. `told_late`: how far those times were
    from the commits that told them, at most. `least`, `most`: GPU-seconds that it may be charged."""

    admitted: float | None = None
    since: float = 0.0
    admission: Thing | None = None
    held: Counter[Cell] = field(default_factory=Counter)
    total: Counter[Cell] = field(default_factory=Counter)
    told_late: float = 0.0
    least: float | None = None
    queue: str = ""

    def see(self, workload: Thing, now: float) -> str:
        """What does not hold, if anything."""
        said, status = conditions_of(workload), workload.get("status", {})
        if not self.total and self.admitted is None:  # a pod that was its own Workload brings what it held
            self.total = Counter(_served(status))
        is_held = "Admitted" in said and "Finished" not in said and "admission" in status
        held = held_of(workload) if is_held else Counter[Cell]()
        if self.admitted is not None and is_held and said["Admitted"] != self.admitted:
            return "was admitted anew without an end"
        moment = None
        if self.admitted is not None and not (is_held and status["admission"] == self.admission):
            moment = said.get("Finished") or said.get("Evicted") or time(status.get("served", {}).get("until", NEVER))
            self._add(max(0.0, moment - self.since))
        elif self.admitted is None and is_held:
            moment = said["Admitted"]
        if moment is not None:
            self.told_late = max(self.told_late, abs(now - moment))
            self.admission = status.get("admission")
            self.since, self.held = max(moment, self.since), held  # a clock may be set back: no second counts twice
            self.admitted = said["Admitted"] if is_held else None
        if is_leaving(workload) and self.least is None:
            self.least = self.gpu_seconds(min(now, time(workload["metadata"]["deletionTimestamp"])))
        self.queue = workload["spec"].get("queue", "default")
        return self._differs(status) if "Finished" in said else ""

    def _add(self, seconds: float) -> None:
        for cell, amount in self.held.items():
            self.total[cell] += amount * seconds

    def _differs(self, status: Thing) -> str:
        own = _served(status)
        wrong = {cell: (own.get(cell, 0), amount) for cell, amount in self.total.items()
                 if abs(own.get(cell, 0) - amount) > 1e-6 * (1 + abs(amount))}  # fmt: skip
        return f"served {wrong} (told, held)" if wrong else ""

    def gpu_seconds(self, now: float) -> float:
        """What it held until now."""
        running = max(0.0, now - self.since) if self.admitted is not None else 0.0
        return sum(it for (_, name), it in self.total.items() if name == GPU) / 1000 + running * self.gpus

    @property
    def gpus(self) -> float:
        """What it holds."""
        return sum(it for (_, name), it in self.held.items() if name == GPU) / 1000


@dataclass(slots=True)
class Watcher:
    """Follows the store's log; `broken` says what did not hold. `dead`: nodes of which nothing is known;
    `is_shared`: another scheduler binds too, so that kubelets refuse what is too much; `drift`: seconds by which clocks
    are set; `patience`: those for which a gang may be there in part, or a workload wait that could start. `reserved`:
    a node, the queue that alone may start there, from when and until when. `calm`: from when on workloads go by
    submission and controllers see soon what is so, so that what they promise holds; `punctual`: seconds after which, at
    most, one starts for which room was kept; `promises`: by uid, from when that was; `kept`: how many have started."""

    store: Store
    clock: Clock
    dead: Collection[str] = ()
    is_shared: bool = False
    drift: float = 0.0
    patience: float = float("inf")
    reserved: tuple[str, str, float, float] = ("", "", 0.0, 0.0)
    calm: float = float("inf")
    punctual: float = float("inf")
    promises: dict[str, float] = field(default_factory=dict)
    kept: int = 0
    waiting: dict[str, float] = field(default_factory=dict)
    position: int = 0
    broken: list[str] = field(default_factory=list)
    succeeded: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    pods: dict[tuple[str, str], Thing] = field(default_factory=dict)
    workloads: dict[str, Thing] = field(default_factory=dict)
    meters: defaultdict[str, Meter] = field(default_factory=lambda: defaultdict(Meter))
    parted: dict[str, float] = field(default_factory=dict)
    charged: dict[str, tuple[str, float, float]] = field(default_factory=dict)

    async def run(self) -> None:
        self.position = self.store.revision
        while not self.store.closed:
            for event in self.store.since(self.position):
                if event.key.resource == "pods":
                    self._see_pod(event)
                elif event.key.resource == WORKLOADS:
                    self._see_workload(event)
                elif event.key.resource == QUEUES and not event.gone:
                    self._see_queue(msgspec.json.decode(event.value))
            self.position = self.store.revision
            await self.store.changed()

    def _see_pod(self, event: Event) -> None:
        place = event.key[1:]
        before = self.pods.pop(place, None)
        if not event.gone:
            pod = self.pods[place] = msgspec.json.decode(event.value)
            self._count(pod)
            if node := pod["spec"].get("nodeName"):
                self._check_node(node)
                self._check_ranks(pod["metadata"].get("labels", {}).get(JOB, ""))
                if before is not None and "nodeName" not in before["spec"]:
                    self._check_start(pod)
        self._check_gang(workload_of(before if event.gone and before else self.pods.get(place, {"metadata": {}})))

    def _see_workload(self, event: Event) -> None:
        workload = msgspec.json.decode(event.value)
        name, uid = event.key.name, workload["metadata"]["uid"]
        meter, now = self.meters[uid], self.clock.now()
        before = meter.admitted
        if complaint := meter.see(workload, now):
            self.broken.append(f"{name} {complaint}")
        if before is None and meter.admitted is not None:
            self._check_reserved(workload, meter.admitted)
            self._check_promises(workload, now)
        self._note_promise(workload, self.workloads.get(name, workload))
        if event.gone:
            self.workloads.pop(name, None)
        else:
            self.workloads[name] = workload
        if event.gone or FINALIZER_OF_CHARGE not in workload["metadata"].get("finalizers", ()):
            most, slack = meter.gpu_seconds(now), self.drift * meter.gpus
            least = most if meter.least is None else min(meter.least, most)  # it may have ended before it was deleted
            self.charged.setdefault(uid, (meter.queue, least - slack, most + slack))
        self._check_quota(meter.queue)
        self._check_gang(name)

    def _see_queue(self, queue: Thing) -> None:
        budget = queue["spec"].get("budget", {})
        spent = queue.get("status", {}).get("budgetSpent", {}).get("gpuHours", 0.0)
        if budget and spent > float(budget["gpuHours"]) * (1 + 1e-6):
            self.broken.append(f"queue {queue['metadata']['name']} spent {spent} GPU-hours of {budget['gpuHours']}")

    def _check_reserved(self, workload: Thing, at: float) -> None:
        """What starts in the window on a node that is reserved is of its queue; where a clock was set, in that part of
        the window that both clocks call open."""
        node, queue, start, end = self.reserved
        on = {it["node"] for one in workload["status"]["admission"]["podSets"] for it in one.get("nodes", ())}
        is_theirs = workload["spec"].get("queue", "default") == queue
        if node in on and start + self.drift <= at < end - self.drift and not is_theirs and not self.is_shared:
            name = workload["metadata"]["name"]
            self.broken.append(f"{name} starts on {node} at {at - start:.1f} s, reserved for {queue}")

    def _note_promise(self, workload: Thing, before: Thing) -> None:
        """What is first told counts, until one before it comes, or comes back."""
        start = promised(workload)
        if start is not None and (start != promised(before) or workload is before):
            self.promises.setdefault(workload["metadata"]["uid"], start)
        if workload is before or ("Evicted" in conditions_of(workload) and "Evicted" not in conditions_of(before)):
            behind = {it["metadata"]["uid"] for it in self.workloads.values() if is_behind(it, workload)}
            self.promises = {uid: at for uid, at in self.promises.items() if uid not in behind}

    def _check_promises(self, new: Thing, now: float) -> None:
        """It starts, if room was kept for it, or behind those for whom some is."""
        start = self.promises.get(new["metadata"]["uid"])
        self.kept += start is not None
        if start is not None and now > start + self.punctual:
            self.broken.append(f"{new['metadata']['name']} starts {now - start:.0f} s later than was promised")
        if now < self.calm or self.is_shared:
            return
        nodes = [msgspec.json.decode(it.value) for (_, name), it in self.store.objects("nodes").items()
                 if name not in self.dead]  # fmt: skip
        others = [it for it in self.workloads.values() if it["metadata"]["uid"] != new["metadata"]["uid"]]
        on_nodes = [it for it in self.pods.values() if is_on_node(it)]
        limits = {name: self._limit(name) for (_, name) in self.store.objects(QUEUES)}
        seen = Seen([*others, new], nodes, on_nodes, {name: it for name, it in limits.items() if it is not None})
        self.broken.extend(given_away(new, seen))

    def check_waiting(self, could_start: Collection[str]) -> None:
        """`could_start`: what a scheduler would admit that has just come."""
        now = self.clock.now()
        self.waiting = {key: self.waiting.get(key, now) for key in could_start}
        late = [key for key, since in self.waiting.items() if now > since + self.patience]
        self.broken += [f"{key} could start for {now - self.waiting[key]:.0f} s, and waits" for key in late]

    def _count(self, pod: Thing) -> None:
        meta = pod["metadata"]
        job = meta.get("labels", {}).get(JOB, "")
        is_counted = FINALIZER in meta.get("finalizers", ()) if job else not is_leaving(pod)
        if is_counted and pod["status"].get("phase") == "Succeeded":  # not what ends while it is taken away
            self.succeeded[job or meta["name"]].add(meta["uid"])

    def _on(self, node: str) -> list[Thing]:
        return [pod for pod in self.pods.values() if pod["spec"].get("nodeName") == node and is_on_node(pod)]

    def _check_node(self, name: str) -> None:
        """No device is given twice, and no more CPU than there is."""
        if ("", name) not in self.store.objects("nodes"):
            return
        node = msgspec.json.decode(self.store.objects("nodes")["", name].value)
        owner: dict[str, str] = {}
        cpu = 0
        for pod in self._on(name):
            if is_frozen(pod):
                continue
            own = pod["metadata"]["name"]
            requests = pod["spec"]["containers"][0]["resources"]["requests"]
            cpu += parse(requests["cpu"], "cpu") if is_running(pod) or not self.is_shared else 0
            devices = [it for it in pod["metadata"].get("annotations", {}).get(ASSIGNED, "").split(",") if it]
            if len(devices) != int(requests.get(GPU, 0)):
                self.broken.append(f"{own} asked for {requests} and has devices {devices}")
            for device in devices:
                if other := owner.get(device):
                    self.broken.append(f"device {device} of {name} is given to {other} and {own}")
                owner[device] = own
        if cpu > parse(node["status"]["allocatable"]["cpu"], "cpu"):
            self.broken.append(f"{name} has {cpu} milli-CPU taken: {[it['metadata']['name'] for it in self._on(name)]}")

    def _check_ranks(self, job: str) -> None:
        """No rank of a job runs twice at once."""
        ranks: set[str] = set()
        for pod in self.pods.values():
            meta = pod["metadata"]
            if meta.get("labels", {}).get(JOB) != job or not job or "deletionTimestamp" in meta:
                continue
            rank = meta.get("annotations", {}).get(INDEX)
            if pod["spec"].get("nodeName") and rank is not None and pod["status"].get("phase") == "Running":
                if rank in ranks:
                    self.broken.append(f"rank {rank} of {job} runs twice")
                ranks.add(rank)

    def _check_start(self, pod: Thing) -> None:
        """A pod that gets its node: its workload is not over."""
        workload = self.workloads.get(workload_of(pod))
        if workload and workload.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            self.broken.append(f"{pod['metadata']['name']} starts though {workload['metadata']['name']} is over")

    def _check_quota(self, queue: str) -> None:
        """The queue stays within its limit; what is evicted or over counts no more."""
        limit = self._limit(queue)
        own = [self.meters[it["metadata"]["uid"]] for name, it in self.workloads.items() if not self._is_over(name)]
        held = sum(meter.gpus for meter in own if meter.queue == queue and meter.admitted is not None)
        if limit is not None and held > limit:
            self.broken.append(f"queue {queue} has {held:g} GPUs of {limit}")

    def _limit(self, queue: str) -> int | None:
        """The GPUs that it may hold, if that is bounded."""
        entry = self.store.objects(QUEUES).get(("", queue))
        quotas = msgspec.json.decode(entry.value)["spec"].get("quotas", ()) if entry else ()
        return min((int(it["limit"][GPU]) for it in quotas if GPU in it.get("limit", {})), default=None)

    def _is_over(self, workload: str) -> bool:
        """Whether its Job is, or all its pods have succeeded, whatever it says itself yet."""
        name = workload.removeprefix("job-")
        entry = self.store.objects("jobs.batch").get(("default", name))
        job = msgspec.json.decode(entry.value) if entry else {"spec": {}, "status": {}}
        is_done = 0 < job["spec"].get("completions", 0) <= len(self.succeeded[name])
        return is_done or is_true(job, "Complete") or is_true(job, "Failed")

    def _check_gang(self, name: str) -> None:
        """A gang is on its nodes with its least number of pods, those that have succeeded counted, or is going."""
        workload, now = self.workloads.get(name), self.clock.now()
        is_part = workload is not None and 0 < self._started(name) < _least(workload) - self._done(name)
        since = self.parted.get(name, now)
        if now > since + self.patience:
            self.broken.append(f"{name} is there in part for {now - since:.0f} s")
        self.parted.pop(name, None)
        if is_part:
            self.parted[name] = since

    def _started(self, name: str) -> int:
        pods = [pod for pod in self.pods.values() if workload_of(pod) == name]
        return sum(is_on_node(it) and not is_leaving(it) and it["spec"]["nodeName"] not in self.dead for it in pods)

    def _done(self, name: str) -> int:
        kind, _, own = name.partition("-")
        if kind == "job":
            return len(self.succeeded[own])
        return sum(pod["status"].get("phase") == "Succeeded" for pod in self.pods.values() if workload_of(pod) == name)

    def finish(self) -> None:
        """Nothing happens any more."""
        for name in list(self.parted):
            self._check_gang(name)

    def check_charges(self, spent: Mapping[str, float], above: Mapping[str, str]) -> None:
        """`spent`: GPU-seconds that each queue was charged; `above`: by queue the one above it."""
        for name, gpu_seconds in spent.items():
            own = [(low, high) for queue, low, high in self.charged.values() if name in (queue, above.get(queue))]
            least, most = sum(low for low, _ in own), sum(high for _, high in own)
            if not least - 0.01 <= gpu_seconds <= most + 0.01:
                self.broken.append(f"queue {name} was charged {gpu_seconds:.3f} GPU-s, of {least:.3f} to {most:.3f}")


FINALIZER_OF_CHARGE = "fairway.dev/charge"


def _least(workload: Thing) -> int:
    """Pods that a workload needs to run at all."""
    return sum(one.get("minCount", one.get("count", 1)) for one in workload["spec"]["podSets"])
