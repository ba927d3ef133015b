"""What the server of a team's machine works out for users who may not read the whole cluster: `submit --dry-run`, and
what `why` says would help. It is decided on all that there is, and the answer names workloads of the user's namespace
alone; those of others are counted, by queue.
"""

from typing import Any

from fairway.embedded.errors import Failure
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref

from .main import Problem
from .whatif import DRY_RUN as DRY_RUN
from .whatif import WHY as WHY
from .whatif import answered, explained, lines_of

Thing = dict[str, Any]
SHOWN = ("verdict", "reason", "message", "placement", "forecast", "sooner", "wouldEvict", "wouldShrink", "caveats")


async def dry_run(viewer: Client, reader: Client, asked: Thing) -> Thing:
    """How the Job that the user would send is decided: `answer` as data, and `lines`."""
    job = asked.get("job")
    space = (job.get("metadata") or {}).get("namespace") if isinstance(job, dict) else None
    if not isinstance(job, dict) or not isinstance(space, str):
        raise Failure(400, "BadRequest", "job: a Job with a namespace is needed")
    try:
        answer, world = await answered(viewer, reader, job, space)
    except Problem as problem:
        raise Failure(422, "Invalid", problem.message) from problem
    return {"answer": {name: answer[name] for name in SHOWN if name in answer}, "lines": lines_of(answer, world)}


async def why(viewer: Client, reader: Client, asked: Thing) -> Thing:
    """Why a workload waits that the user may read, and what would let it start."""
    space, _, name = str(asked.get("key")).partition("/")
    await viewer.get(Ref(kinds.WORKLOADS, name, space))
    try:
        return await explained(reader, f"{space}/{name}", is_foretold=bool(asked.get("isForetold")))
    except Problem as problem:
        raise Failure(422, "Invalid", problem.message) from problem
