"""Logs: a pod's as Kubernetes serves it, and a workload's, of all its attempts, as long as they are kept.

    GET …/pods/NAME/log                    the last run of a container, or with `previous` the one before
    GET …/workloads/NAME/attempts          the runs that are kept, as JSON
    GET …/workloads/NAME/log               their text in order: attempt, rank, retry; with `follow` of the last one

The two of a Workload answer also when it is deleted, with what is kept of the latest one of that name. With
`frames=true` a log is a sequence of frames, so that a reader can tell gaps from text: a byte, 0 for text and 1 for a
sentence about a gap; the length, 4 bytes, the most significant first; then the content. A request for one run may say
`after`, empty the first time. Then the byte for text is 2, and its content begins with a line: the `after` that asks
for what comes behind this text. A restored cluster gives an `id` a second time: `started` beside `run` tells such runs
apart. A run that is not kept is answered with 404. Whatever runs pods serves all this, through the Kubelet given to the
server. People may read a log in a pager and pause: no limit of time ends the stream.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from fairway.api.objects import BEGAN, GROUP
from fairway.api.quantities import Malformed, time
from fairway.embedded.call import Call
from fairway.embedded.errors import Failure, bad_request, not_found
from fairway.embedded.registry import Registry, Thing
from fairway.embedded.store import encode
from fairway.kube.transport import Response
from fairway.node.archive import Run
from fairway.node.execute import Execution, Order
from fairway.node.logs import Gap, LogOptions, Piece, Place

_JSON, _TEXT = {"content-type": "application/json"}, {"content-type": "text/plain"}
TEXT, NOTICE, PLACED = 0, 1, 2
MOST_DIGITS = 40
decode = msgspec.json.decode


class Kubelet(Protocol):
    """What runs pods on this machine, as the server asks it. `node`: its name."""

    node: str

    def pod_log(
        self, namespace: str, name: str, container: str, options: LogOptions
    ) -> tuple[Gap | None, AsyncIterator[Piece]] | None: ...
    def run_log(self, run: Run, options: LogOptions) -> AsyncIterator[Piece]: ...
    async def runs(self, namespace: str, workload: str, uid: str = "", *, pod: str = "") -> list[Run]: ...
    def shims(self, namespace: str, name: str) -> dict[str, int]: ...
    def lacks_devices(self, namespace: str, name: str, container: str) -> bool: ...
    def execute(self, namespace: str, name: str, container: str, order: Order) -> Execution | None: ...


Verb = Callable[[Registry, Call, Kubelet | None], Awaitable[Response]]


def served(call: Call) -> Verb | None:
    """What answers a GET of a log; None for any other path."""
    kind = call.resource.kind
    if (kind.group, kind.plural) == (GROUP, "workloads") and call.subresource in ("log", "attempts"):
        return of_workload
    return of_pod if (kind.group, kind.plural, call.subresource) == ("", "pods", "log") else None


# -- of a pod

async def of_pod(registry: Registry, call: Call, kubelet: Kubelet | None) -> Response:
    pod = decode(registry.shown(call.resource, call.key))
    container, options = container_of(call, pod), _log_options(registry, call)
    if not pod["spec"].get("nodeName"):
        return Response(200, _TEXT, b"")
    status = _status_of(pod, container)
    state, ended = status.get("state") or {}, "terminated" in (status.get("lastState") or {})
    if options.previous and not ended:
        raise bad_request(f'previous terminated container "{container}" in pod "{call.name}" not found')
    if "waiting" in state and not ended:
        raise bad_request(f'container "{container}" in pod "{call.name}" is waiting to start: '
                          f"{state['waiting'].get('reason', 'ContainerCreating')}")
    found = kubelet.pod_log(call.namespace, call.name, container, options) if kubelet else None
    if found is None:
        return Response(200, _TEXT, b"")
    gap, pieces = found
    told = {"warning": f'299 - "{gap}"'} if gap and options.tail_lines is None else {}
    return Response(200, _TEXT | told, _text(pieces), may_pause=True)


async def _text(pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    """The text alone: what Kubernetes' clients read is the program's."""
    async for piece in pieces:
        if not isinstance(piece, Gap):
            yield piece


def container_of(call: Call, pod: Thing) -> str:
    spec, asked = pod["spec"], call.query.get("container", "")
    names = [each["name"] for each in spec["containers"]]
    inits = [each["name"] for each in spec.get("initContainers") or ()]
    if not asked and len(names) > 1:
        also = f" or one of the init containers: [{' '.join(inits)}]" if inits else ""
        raise bad_request(f"a container name must be specified for pod {call.name}, choose one of: [{' '.join(names)}]"
                          f"{also}")
    if asked and asked not in names + inits:
        raise bad_request(f"container {asked} is not valid for pod {call.name}")
    return asked or names[0]


def _status_of(pod: Thing, container: str) -> dict[str, Any]:
    statuses = [*(pod["status"].get("containerStatuses") or ()), *(pod["status"].get("initContainerStatuses") or ())]
    return next((each for each in statuses if each["name"] == container), {})


def _log_options(registry: Registry, call: Call) -> LogOptions:
    ago, since, tail, limit = (call.number("sinceSeconds"), call.query.get("sinceTime"), call.number("tailLines"),
                               call.number("limitBytes"))
    if (ago is not None and (ago < 1 or since)) or (tail or 0) < 0 or (limit is not None and limit < 1):
        raise Failure(422, "Invalid", 'PodLogOptions "" is invalid: sinceSeconds and limitBytes must be greater than '
                      "0, tailLines must not be negative, at most one of sinceTime or sinceSeconds may be specified")
    try:
        moment = registry.clock.now() - ago if ago else time(since) if since else None
    except Malformed as error:
        raise bad_request(f"sinceTime: {error}") from error
    return LogOptions(call.flag("follow"), call.flag("previous"), call.flag("timestamps"), tail, limit, moment,
                      _place(call.query.get("after")))  # fmt: skip


def _place(said: str | None) -> Place | None:
    """What `after` means: empty the beginning, else the end of the text that it came with."""
    at, _, lines = (said or "0.0").partition(".")
    if not (at.isdecimal() and lines.isdecimal()) or len(at + lines) > MOST_DIGITS:
        raise bad_request(f"after: {said!r} is no place in a log; say what came with its text")
    return None if said is None else Place(int(at), int(lines))


# -- of a workload

async def of_workload(registry: Registry, call: Call, kubelet: Kubelet | None) -> Response:
    entry = registry.store.get(call.key)
    meta = decode(entry.value)["metadata"] if entry else {}
    uid, began = call.query.get("uid", "") or meta.get("uid", ""), (meta.get("annotations") or {}).get(BEGAN)
    uids = [began, uid] if began and uid == meta["uid"] else [uid]
    pod = call.query.get("run", "").partition("/")[0]
    found = [await kubelet.runs(call.namespace, call.name, each, pod=pod) for each in uids] if kubelet else []
    runs = [run for each in found for run in each]
    if entry is None and not runs:
        raise not_found(call.resource.kind, call.name)
    if call.subresource == "attempts":
        whole = {"kind": "AttemptList", "apiVersion": call.resource.kind.api_version, "isDeleted": entry is None,
                 "items": [run.shown() for run in runs]}
        return Response(200, _JSON, encode(whole))
    chosen, options = _chosen(call, runs), _log_options(registry, call)
    if "run" in call.query and not chosen:
        raise Failure(404, "NotFound", f"run: {call.query['run']!r} is not kept; `attempts` has the runs that are")
    assert kubelet is not None or not chosen
    if "run" not in call.query:
        options = replace(options, place=None)  # a place is in one log
    form = _frame if call.flag("frames") or options.place else _marked
    return Response(200, _TEXT, _in_order(kubelet, chosen, options, form) if kubelet else b"", may_pause=True)


def _chosen(call: Call, runs: list[Run]) -> list[Run]:
    """The runs that a request is for."""
    attempt, rank, retry = call.number("attempt"), call.number("rank"), call.number("retry")
    name, container, started = (call.query.get(it) for it in ("run", "container", "started"))
    return [
        run for run in runs
        if attempt in (None, run.origin.attempt) and rank in (None, run.rank) and retry in (None, run.retry)
        and name in (None, run.name) and (started or run.started) == run.started
        and run.container == (container or (run.container if name else run.origin.default))
    ]  # fmt: skip


async def _in_order(kubelet: Kubelet, runs: list[Run], options: LogOptions, form: Any) -> AsyncIterator[bytes]:
    for run in runs:
        own = options if run is runs[-1] else replace(options, follow=False)
        async for piece in kubelet.run_log(run, own):
            yield form(piece, own.place)


def _frame(piece: Piece, place: Place | None) -> bytes:
    if isinstance(piece, Gap):
        kind, content = NOTICE, str(piece).encode()
    elif place:
        kind, content = PLACED, b"%d.%d\n%b" % (place.at, place.lines, piece)
    else:
        kind, content = TEXT, piece
    return bytes([kind]) + len(content).to_bytes(4, "big") + content


def _marked(piece: Piece, place: Place | None) -> bytes:
    return f"[fairway: {piece}]\n".encode() if isinstance(piece, Gap) else piece
