"""AppWrapper: any objects that start together. Its podsets are those of what it wraps, as far as that is known."""

from collections.abc import Callable, Iterator, Mapping

from fairway.api import objects
from fairway.api.decode import cleaned, decode
from fairway.api.quantities import Malformed, within
from fairway.api.types import PodSetSpec

from .batch import MAIN
from .form import Outcome, ReplicaSpec, ended

POD, REPLICATED = ("", "Pod"), (("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "ReplicaSet"))
Inner = Callable[[tuple[str, str], object], tuple[PodSetSpec, ...]]


class WrappedSet(objects.Part, frozen=True):
    path: str
    replicas: objects.Natural = 1


class Component(objects.Part, frozen=True):
    template: dict[str, object] = {}  # noqa: RUF012  msgspec gives every struct a dict of its own
    pod_sets: tuple[WrappedSet, ...] = ()


class WrapperSpec(objects.Part, frozen=True):
    components: tuple[Component, ...] = ()
    suspend: bool = False


class WrapperStatus(objects.Part, frozen=True):
    phase: str = ""


class Replicated(objects.Object, frozen=True):
    spec: ReplicaSpec = ReplicaSpec()


class AppWrapper(objects.Object, frozen=True):
    spec: WrapperSpec = WrapperSpec()
    status: WrapperStatus = WrapperStatus()

    def asked(self, inner: Inner) -> tuple[PodSetSpec, ...]:
        """`inner` gives the podsets of an object of a kind that is queued by itself, too. Names are those of the inner
        podsets; where several components have pods, with the component's number."""
        found = [(index, list(_podsets(one, inner))) for index, one in enumerate(self.spec.components)]
        several = sum(bool(own) for _, own in found) > 1
        return tuple(
            PodSetSpec(f"{one.name}-{index}" if several else one.name, one.count, one.min_count, one.template)
            for index, own in found
            for one in own
        )

    def outcome(self) -> Outcome | None:
        return ended(self.status.phase, ("Succeeded", "Failed"))


def _podsets(one: Component, inner: Inner) -> Iterator[PodSetSpec]:
    said = cleaned(one.template)
    kind = str(one.template.get("apiVersion", "")).rpartition("/")[0], str(one.template.get("kind", ""))
    if one.pod_sets:
        yield from (_named(index, it, one.template) for index, it in enumerate(one.pod_sets))
    elif kind == POD:
        read = decode(said, objects.PodObject)
        yield PodSetSpec(MAIN, 1, template=objects.PodTemplate(read.metadata, read.spec))
    elif kind in REPLICATED:
        spec = decode(said, Replicated).spec
        yield PodSetSpec(MAIN, spec.replicas, template=spec.template)
    else:
        yield from inner(kind, said)


def _named(index: int, one: WrappedSet, template: Mapping[str, object]) -> PodSetSpec:
    """The podset at a path such as `template.spec.pytorchReplicaSpecs.Worker.template`, called as the step before."""
    here: object = {"template": template}
    steps = one.path.split(".")
    for step in steps:
        here = here.get(step) if isinstance(here, dict) else None
    if not isinstance(here, dict):
        raise Malformed(f"found {one.path!r}; the path of a pod template in the component is allowed", "podSets.path")
    name = steps[-2].lower() if len(steps) > 1 and steps[-2] not in ("template", "spec") else f"{MAIN}-{index}"
    return PodSetSpec(name, one.replicas, template=within(one.path, decode, cleaned(here), objects.PodTemplate))
