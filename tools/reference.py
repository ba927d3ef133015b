"""Writes docs/reference from the program: the API from its types, commands from click, settings, metrics, reasons.

`python tools/reference.py` renews the pages; a test compares them, so that what is undocumented fails. Words that the
program has no place for (what a reason means) stand in `REASONS`, and the test fails for one that is missing there.
"""

import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import click
import msgspec

from fairway.api.crds import KINDS
from fairway.api.types import VERSION
from fairway.cli.main import COMMANDS, cli
from fairway.controllers.metrics import DoorMetrics, Metrics
from fairway.engine import Cause, Ending, Reason
from fairway.settings import Settings, _camel

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
BY_ITSELF = (
    ("`Finished`", "It succeeded.", "Nothing."),
    ("`ExitCode3`", "Its program failed with this exit code.", "`fairway logs JOB`."),
    ("`OutOfMemory`", "The kernel killed its program for want of memory.", "Ask for more `--memory`."),
)
"""What `conditions.end_reason` makes of an end; any other word is its owner's."""
OPAQUE = frozenset({"template", "namespaces", "nodeSelector", "conditions"})
"""Fields that hold what Kubernetes defines."""

BEGINNING = "<!-- made by tools/reference.py; change the source instead -->\n"

REASONS = {
    Reason.QUEUE_NOT_FOUND: (
        "There is no queue of this name.",
        "`fairway modify JOB --queue QUEUE`, or make the queue.",
    ),
    Reason.QUEUE_INVALID: (
        "It has children (only leaves hold workloads), or parents that make a circle or do not exist.",
        "Move the job to a leaf, or repair the parents.",
    ),
    Reason.NOT_ALLOWED: (
        "The queue does not take workloads of this namespace, priority, pool, time limit or non-preemptible kind.",
        "Change the job, or the rules of the queue.",
    ),
    Reason.QUEUE_STOPPED: (
        "The queue, or one above it, admits nothing now (`stopPolicy`).",
        "Wait, or set `stopPolicy: None`.",
    ),
    Reason.LEVEL_UNKNOWN: (
        "No allowed pool has the topology level that is required.",
        "Submit it without `--topology`, or add the level to the pool.",
    ),
    Reason.NEVER_FITS: (
        "It would not fit if everything else were gone.",
        "Ask for less, or for other nodes; or add nodes.",
    ),
    Reason.BACKING_OFF: (
        "It was evicted because it did not start, or refused, and is tried again later.",
        "Look at its pods: `fairway status JOB`.",
    ),
    Reason.DEPENDENCY_PENDING: (
        "A workload named in `after` has not succeeded yet, does not exist, or two go by that name.",
        "`fairway modify JOB --after OTHER`, or `--after none`.",
    ),
    Reason.SCHEDULING_GATED: (
        "Its pods have a scheduling gate that is not Fairway's, or pods of its group are gone.",
        "Ask the owner of the gate; make the pods again.",
    ),
    Reason.CLAIM_MISSING: (
        "A PersistentVolumeClaim of its pods does not exist, or is being deleted.",
        "Make the claim, or correct its name.",
    ),
    Reason.CLAIM_UNBOUND: (
        "A PersistentVolumeClaim of its pods has no volume: no free one would do, nor can its class make one.",
        "`kubectl describe persistentvolumeclaim NAME`.",
    ),
    Reason.BUDGET_SPENT: (
        "With its time limit it could overrun the budget of the queue or one above it.",
        "A shorter time limit; or wait for the next period, unless it needs more than the whole budget.",
    ),
    Reason.OVER_LIMIT: (
        "A limit of the queue or one above it leaves too little.",
        "Wait for jobs of the queue to end, or ask for less.",
    ),
    Reason.OVER_GUARANTEED: (
        "It is not preemptible, and the guaranteed amounts do not cover it.",
        "Submit it as preemptible, or wait for the guarantee.",
    ),
    Reason.RESERVED: (
        "The room is reserved for a time that it would run into.",
        "A time limit that ends before, or wait.",
    ),
    Reason.HELD_FOR: (
        "The room is kept for another workload, which it would delay.",
        "A time limit that ends before, or wait.",
    ),
    Reason.WAITING_FOR_VICTIMS: (
        "Its room is promised; the workloads that leave are not gone yet.",
        "Wait for their grace period.",
    ),
    Reason.OVER_SHARE: (
        "There is no free room, and its queue is not entitled to take any.",
        "Wait for a job to end, or for a larger share.",
    ),
    Reason.CLAIM_IN_USE: (
        "Another pod uses a ReadWriteOncePod claim of its pods.",
        "Wait for that pod, or use a shared claim.",
    ),
    Reason.NO_DOMAIN: (
        "No domain of the required level has room for it.",
        "Wait, or submit it without `--topology`.",
    ),
    Reason.NO_DEVICE: (
        "Nodes have the amounts, but no devices that fit: groups, fractions, alignment.",
        "Ask for whole GPUs, or for no alignment.",
    ),
    Reason.FRAGMENTED: (
        "The sum would do; no node or domain does.",
        "Wait, or use several smaller workers.",
    ),
    Reason.NO_ROOM: (
        "There is not enough room.",
        "Wait, ask for less, or bring nodes back into use.",
    ),
    Reason.REFUSED: (
        "The referee refused the last plan for it; it is tried again later.",
        "Report it, with the record.",
    ),
    Cause.PREEMPTED: ("A workload of higher priority in the same queue took the room.", "Write checkpoints."),
    Cause.RECLAIMED: ("Another queue took back what is its due.", "Set `minRuntime` on the queue to protect its jobs."),
    Cause.CONSOLIDATED: ("It is moved, to make whole room for another.", "Nothing: it starts elsewhere."),
    Cause.HOLD_TAKEN: (
        "It was started into room held for another, at its own risk, and the other starts.",
        "Give it a time limit.",
    ),
    Cause.RESERVED: ("A reservation begins.", "`kubectl get reservations`."),
    Cause.DRAINED: ("Its node drains, or its queue does.", "Nothing: it starts elsewhere."),
    Cause.NODE_LOST: (
        "Its node is gone, not ready, or was down with all that ran there, as after `fairway down`.",
        "`kubectl get nodes`.",
    ),
    Cause.PODS_LOST: ("A pod of the gang was lost.", "`fairway logs JOB --previous`."),
    Cause.START_TIMEOUT: (
        "Its pods were not ready within `startTimeout`.",
        "`fairway logs JOB`; a longer `startTimeout`.",
    ),
    "RoomTaken": (
        "Another scheduler filled its node before its pods came; it is tried again after a pause.",
        "Keep pods of other schedulers off the nodes that Fairway fills: a taint, or their queue label.",
    ),
    Cause.SUSPENDED: ("Its user suspended it.", "`fairway resume JOB`."),
    Ending.TIME_LIMIT: ("It ran for as long as it may.", "Submit it with a longer `--time-limit`."),
    Ending.DEPENDENCY_FAILED: ("A workload named in `after` failed.", "Repair that one; submit both again."),
}
"""What each means, and what to do."""

METRICS = """\
In Prometheus' format at `/metrics`, on the port that the [setting](settings.md) `metricsPort` names; without it,
nowhere. No label names a workload.

```sh
echo 'metricsPort: 9400' > settings.yaml
fairway up --detach --config settings.yaml
curl -H "Authorization: Bearer $(cat ~/.local/share/fairway/token)" http://127.0.0.1:9400/metrics
```

Under `fairway up` the port is open on 127.0.0.1 alone, and asks for the token in the data directory, which its owner
alone can read. Under `fairway controller` it is open on every address, so that Prometheus reaches it in a cluster, and
asks for the token in `metricsTokenFile`, or for none. `metricsHost` names another address. The same port serves the
probes of a kubelet to everybody: `/healthz`, and `/readyz`, which says what the controller waits for. Prometheus shows
a token so:

```yaml
scrape_configs:
- job_name: fairway
  authorization: {credentials_file: /home/ann/.local/share/fairway/token}
  static_configs: [{targets: ["127.0.0.1:9400"]}]
```"""


def pages() -> dict[str, str]:
    """File name → content."""
    return {
        "api.md": _api(),
        "cli.md": _cli(),
        "settings.md": _settings(),
        "metrics.md": _metrics(),
        "reasons.md": _reasons(),
    }


def _page(title: str, text: str, *parts: str) -> str:
    return "\n".join((BEGINNING, f"# {title}", "", text, "", *parts)).rstrip() + "\n"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _api() -> str:
    text = f"Group and version: `{VERSION}`. Absent means none, unless a default is named."
    parts = []
    for kind in KINDS:
        place = "namespaced" if kind.is_namespaced else "cluster-scoped"
        parts.append(f"## {kind.name}\n\n`kubectl get {kind.short}`, {place}.\n")
        for name, struct in (("spec", kind.spec), ("status", kind.status)):
            schema = msgspec.json.schema(struct)
            definitions = schema.get("$defs", {})
            rows = list(_fields(definitions[schema["$ref"].rpartition("/")[2]], definitions, name))
            if rows:
                parts.append(_table(("field", "type", "meaning"), rows))
    return _page("API", text, *parts)


def _fields(schema: dict, definitions: dict, path: str):
    for name, field in schema.get("properties", {}).items():
        field, suffix = _inner(field, definitions)
        meaning = field.get("description", "").split("\n")[0]
        default = field.get("default")
        if default not in (None, "", [], {}, ()):
            meaning += f" Default: {default}."
        yield f"`{path}.{name}{suffix}`", _type(field), meaning.strip()
        if "properties" in field and name not in OPAQUE:
            yield from _fields(field, definitions, f"{path}.{name}{suffix}")


def _inner(field: dict, definitions: dict, suffix: str = "") -> tuple[dict, str]:
    """The field with references followed and lists and optional values opened."""
    said = {name: field[name] for name in ("description", "default") if name in field}
    if "$ref" in field:
        return _inner(definitions[field["$ref"].rpartition("/")[2]] | said, definitions, suffix)
    if "anyOf" in field:
        first = next(one for one in field["anyOf"] if one.get("type") != "null")
        return _inner(first | said, definitions, suffix)
    if field.get("type") == "array" and isinstance(field.get("items"), dict) and "$ref" in field["items"]:
        return _inner({**field["items"], **said}, definitions, f"{suffix}[]")
    return field, suffix


def _type(field: dict) -> str:
    if "enum" in field:
        return " \\| ".join(str(value) for value in field["enum"] if value != "")
    kind = field.get("type", "any")
    return str(kind) if isinstance(kind, str) else " or ".join(kind)


def _cli() -> str:
    text = "`fairway` and `kubectl fairway` are the same program. Exit status: 0 done, 1 the answer is no, 2 wrong use."
    text += " What only\nthe cluster can refuse, as a name that is taken, exits with 1,"
    text += " and so does a command that no cluster answers."
    codes = (
        "`wait`, `submit --follow`, `shell` and `exec` exit as programs do: with the code of the first that failed.\n"
        "Codes above 128 stand for a signal. 143 is SIGTERM: a time limit stops most jobs so. 137 is SIGKILL: the\n"
        "program still ran when its grace period was over. The code is 1 where a job failed and none of its programs\n"
        "did: one ended with 0 at its time limit, a dependency failed, or the job was deleted; on a cluster of\n"
        "Kubernetes also where the pods are gone. `fairway status` shows the code of each run."
    )
    job = "JOB is the name of a Workload or of its owner. Where two go by it, `workload/NAME` or `job/NAME` says which."
    parts = []
    above = click.Context(cli, info_name="fairway", **cli.context_settings)
    for name in COMMANDS:
        command = cli.get_command(above, name)
        context = click.Context(command, parent=above, info_name=name, max_content_width=100)
        parts.append(f"## fairway {name}\n\n```\n{command.get_help(context)}\n```\n")
        for part, inner in command.commands.items() if isinstance(command, click.Group) else ():
            below = click.Context(inner, parent=context, info_name=part, max_content_width=100)
            parts.append(f"### fairway {name} {part}\n\n```\n{inner.get_help(below)}\n```\n")
    return _page("Commands", f"{text}\n\n{codes}\n\n{job}", *parts)


def _settings() -> str:
    comments = _comments(Path(sys.modules[Settings.__module__].__file__ or ""))
    rows = [(f"`{_camel(one.name)}`", f"`{one.default!r}`", comments.get(one.name, "")) for one in fields(Settings)]
    text = "One file (`--config`, YAML). Durations are written as in the API (`90s`, `7d`); defaults here are seconds."
    return _page("Settings", text, _table(("setting", "default", "meaning"), rows))


def _comments(path: Path) -> dict[str, str]:
    lines = [line.partition("  # ") for line in path.read_text().splitlines() if ": " in line]
    return {left.split(":")[0].strip(): comment for left, _, comment in lines if comment}


def _metrics() -> str:
    found = [*Metrics().registry.collect(), *DoorMetrics().registry.collect()]
    rows = [(f"`{it.name}{'_total' if it.type == 'counter' else ''}`", it.type, it.documentation) for it in found]
    return _page("Metrics", METRICS, _table(("metric", "type", "meaning"), sorted(rows)))


def _reasons() -> str:
    def rows(words: Iterable[str]) -> list[tuple[str, ...]]:
        return [(f"`{word}`", *REASONS[word]) for word in words]

    head = "reason", "meaning", "what to do"

    return _page(
        "Reasons",
        "Every workload that waits has one reason; of several, the first of this list. What each looks like, and\n"
        "commands that help: [troubleshooting](../start/troubleshooting.md).",
        "## Why a workload waits\n", _table(head, rows(Reason)),
        "## Why one is evicted\n", _table(head, rows((*Cause, "RoomTaken"))),
        "## Why one is ended\n", _table(head, rows(Ending)),
        "## How a program ended by itself\n", _table(head, BY_ITSELF),
    )  # fmt: skip


def main() -> None:
    for name, content in pages().items():
        (FOLDER / name).write_text(content)


if __name__ == "__main__":
    main()
