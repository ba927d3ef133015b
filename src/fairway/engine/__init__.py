"""The engine: a pure function decides. All that is public is here; nothing deeper is imported from outside."""

from .decide import decide as decide
from .draft import Draft as Draft
from .forecast import Forecast as Forecast
from .forecast import forecast as forecast
from .model import *  # noqa: F403  the model is public as a whole
from .plan import Admit as Admit
from .plan import Cause as Cause
from .plan import Ending as Ending
from .plan import Evict as Evict
from .plan import Facts as Facts
from .plan import Fault as Fault
from .plan import Finish as Finish
from .plan import Keep as Keep
from .plan import Plan as Plan
from .plan import Reason as Reason
from .plan import Resize as Resize
from .plan import Verdict as Verdict
from .plan import Wait as Wait
from .policy import Policy as Policy
from .presets import PRESETS as PRESETS
from .referee import check as check
from .snapshot import Snapshot as Snapshot
from .state import State as State
from .state import snapshot_of as snapshot_of
from .state import state_of as state_of
from .state import world_of as world_of
from .whatif import what_if as what_if
