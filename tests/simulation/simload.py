"""What users submit, drawn by a seed, and how each of it is to end: jobs, gangs, elastic ones, arrays, bare pods and
groups of them, jobs that follow others, and jobs that fail by themselves."""

import random
from dataclasses import dataclass, replace

from simworld import Thing, job, node, pod

from fairway.api.objects import CAN_PAUSE
from fairway.node.hollow import EXIT_CODE

TEAM = {"fairway.dev/queue": "team"}
QUEUE: Thing = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue"}
ABOVE = {"team": "dept"}
LIMIT, LONGEST = 2, "600s"


@dataclass(frozen=True, slots=True)
class Ask:
    """What is submitted together. `succeeded`: pods that succeed, each once; `failed`: attempts that fail by
    themselves; `is_free`: nothing follows it, so that its user may cancel it."""

    name: str
    workload: str
    things: tuple[Thing, ...]
    phase: str = "Succeeded"
    succeeded: int = 1
    failed: int = 0
    is_free: bool = True

    @property
    def kind(self) -> str:
        return self.things[0]["kind"]


def nodes(chance: random.Random) -> list[Thing]:
    """Most can freeze pods."""
    made = [node(f"n{number}", cpu=8, gpus=4) for number in range(chance.randint(1, 3))]
    for one in made if chance.random() < 0.8 else ():
        one["metadata"]["annotations"] = {CAN_PAUSE: "true"}
    return made


def queues() -> list[Thing]:
    """A department with a budget, and a team of it with a limit."""
    budget = {"budget": {"gpuHours": "0.75", "period": "10m"}}
    limit = {"parent": "dept", "evict": "Pause", "quotas": [{"pool": "*", "limit": {"nvidia.com/gpu": LIMIT}}]}
    return [{**QUEUE, "metadata": {"name": name}, "spec": spec} for name, spec in (("dept", budget), ("team", limit))]


def load(chance: random.Random, *, has_door: bool) -> list[Ask]:
    """Without a door nothing is of Fairway that does not say so, and another scheduler, which chooses no devices, may
    start it before its turn."""
    asks = [_draw(chance, f"j{number}") for number in range(chance.randint(2, 4))]
    asks += [_bare(chance, name) for name in ("p0", "p1")[: chance.choice((0, 0, 1, 2))]]
    asks += [_group(chance)] if chance.random() < 0.3 and has_door else []
    if not has_door:
        for thing in (thing for ask in asks for thing in ask.things):
            _open(chance, thing)
        return asks
    return _following(asks) if chance.random() < 0.5 else asks


def _open(chance: random.Random, thing: Thing) -> None:
    """Labelled, without devices, and maybe left to Fairway by what it says."""
    spec, labels = thing["spec"], thing["metadata"].setdefault("labels", {})
    labels.setdefault("fairway.dev/queue", "default")
    if thing["kind"] == "Job":
        spec["suspend"] = chance.random() < 0.3
    pod = spec["template"]["spec"] if thing["kind"] == "Job" else spec
    if chance.random() < 0.2:
        pod["schedulerName"] = "fairway"
    for part in pod["containers"][0]["resources"].values():
        part.pop("nvidia.com/gpu", None)


def _draw(chance: random.Random, name: str) -> Ask:
    kind = chance.choice((_single, _single, _gang, _gang, _gang, _array, _failing))
    return kind(chance, name)


def _job(chance: random.Random, name: str, *, seconds: float, **said: Thing) -> Ask:
    """With what any job may have besides."""
    said = {"cpu": str(chance.randint(1, 2)), "backoffLimit": chance.choice((0, 0, 6)), **said}
    if chance.random() < 0.25:
        said["pod"] = {"priorityClassName": "high"}
    said["annotations"] = {"fairway.dev/start-timeout": "60s", **said.get("annotations", {})}
    if chance.random() < 0.25 and said.get("gpus", 0) * said.get("parallelism", 1) <= LIMIT:
        said["labels"] = TEAM
        said["annotations"]["fairway.dev/time-limit"] = LONGEST
    return Ask(name, f"job-{name}", (job(name, seconds=seconds, **said),))


def _seconds(chance: random.Random) -> int:
    return chance.choice((2, 10, 40))


def _single(chance: random.Random, name: str) -> Ask:
    return _job(chance, name, seconds=_seconds(chance), gpus=chance.choice((0, 1, 2, 4)))


def _gang(chance: random.Random, name: str) -> Ask:
    """Indexed: as one, or elastic, or with its pods replaced one by one."""
    width = chance.choice((2, 3))
    notes = chance.choice(({}, {}, {"fairway.dev/min-count": "1"}, {"fairway.dev/restart": "Pod"}))
    said = {"parallelism": width, "completions": width, "completionMode": "Indexed", "annotations": notes}
    ask = _job(chance, name, seconds=_seconds(chance), gpus=chance.choice((0, 1)), **said)
    return replace(ask, succeeded=width)


def _array(chance: random.Random, name: str) -> Ask:
    """More trials than run at once."""
    trials = chance.choice((3, 4))
    said = {"parallelism": 2, "completions": trials, "annotations": {"fairway.dev/min-count": "1"}}
    ask = _job(chance, name, seconds=chance.choice((2, 10)), gpus=chance.choice((0, 1)), **said)
    return replace(ask, succeeded=trials)


def _failing(chance: random.Random, name: str) -> Ask:
    """It fails by itself until its user's retries are used up."""
    retries = chance.choice((0, 1, 2))
    ask = _job(chance, name, seconds=2, gpus=chance.choice((0, 1)), backoffLimit=retries)
    ask.things[0]["spec"]["template"]["metadata"]["annotations"][EXIT_CODE] = "1"
    return replace(ask, phase="Failed", succeeded=0, failed=retries + 1)


def _bare(chance: random.Random, name: str) -> Ask:
    """It may name its queue, and so be its own Workload."""
    labels = chance.choice(({}, {"fairway.dev/queue": "default"}))
    return Ask(name, f"pod-{name}", (pod(name, seconds=chance.choice((2, 20)), cpu="1", labels=labels),))


def _group(chance: random.Random) -> Ask:
    group = {"fairway.dev/group": "g", "fairway.dev/group-size": "2"}
    pods = [pod(name, seconds=chance.choice((2, 20)), cpu="1", labels=group) for name in ("g-0", "g-1")]
    return Ask("g-0", "pod-g", tuple(pods), succeeded=2)


def _following(asks: list[Ask]) -> list[Ask]:
    """The last job follows the first: it fails without a pod where that does."""
    jobs = [ask for ask in asks if ask.kind == "Job"]
    first, last = jobs[0], jobs[-1]
    last.things[0]["metadata"]["annotations"]["fairway.dev/after"] = first.workload
    told = replace(last, phase="Failed", succeeded=0, failed=0) if first.phase == "Failed" else last
    changed = {first.name: replace(first, is_free=False), last.name: told}
    return [changed.get(ask.name, ask) for ask in asks]
