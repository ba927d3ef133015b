"""The simulator: loads, traces, and `decide` in virtual time. All that is public is here."""

from .load import Load as Load
from .load import apart as apart
from .load import scaled as scaled
from .load import until as until
from .load import workload_of as workload_of
from .measure import Measures as Measures
from .measure import Outcome as Outcome
from .measure import Series as Series
from .measure import measure as measure
from .report import figure as figure
from .simulate import BrokenPlan as BrokenPlan
from .simulate import compare as compare
from .simulate import is_partial as is_partial
from .simulate import metrics as metrics
from .simulate import prepare as prepare
from .simulate import stuck as stuck
from .simulate import write as write
from .synthetic import generate as generate
from .synthetic import synthetic_names as synthetic_names
from .trace import TraceError as TraceError
from .trace import read_nodes as read_nodes
from .trace import read_trace as read_trace
from .world import Mechanics as Mechanics
from .world import World as World
