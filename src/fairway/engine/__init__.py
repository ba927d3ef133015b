"""The engine: a pure function decides. All that is public is here; nothing deeper is imported from outside."""

from .cycle import SHARED, Cycle
from .decide import decide, open_pools, turns
from .draft import Draft
from .eligibility import lasts
from .explain import could_hold, most_between
from .feasibility import Values
from .labels import NAME, NOT_READY, clash, holds, implied, means, required, selects, tolerates
from .model import *  # noqa: F403  the model is public as a whole
from .place import Ask, cache_of, place
from .plan import *  # noqa: F403  and so is a plan
from .policy import *  # noqa: F403
from .queueing import level
from .quota import Account, QueueTree, budgeted, invalid_parent, lineage
from .reservations import occurrence
from .resources import (
    DEVICE,
    UNLIMITED,
    capacity_of,
    counted,
    counts_of,
    device_memory,
    frozen,
    gpus_of,
    memory_of,
    shared,
    slices,
    taken,
    thawed,
)
from .runtimes import ENOUGH, HOUR, Foreseen, Group, Lengths, gpus, groups, job_family, known_group, learn
from .snapshot import Columns, Mask, Snapshot, largest_node
from .state import State, snapshot_of, state_of, world_of
