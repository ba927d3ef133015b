"""`decide` run forward: forecasts, what became of them, and what would let a workload start."""

from .calibration import HORIZONS as HORIZONS
from .calibration import Calibration as Calibration
from .calibration import Outcome as Outcome
from .calibration import horizon as horizon
from .calibration import learned as learned
from .forecast import DARK as DARK
from .forecast import MOST_WAITING as MOST_WAITING
from .forecast import NEVER as NEVER
from .forecast import QUICK as QUICK
from .forecast import WINDOW as WINDOW
from .forecast import Effort as Effort
from .forecast import Forecast as Forecast
from .forecast import Futures as Futures
from .forecast import Question as Question
from .forecast import forecast as forecast
from .forward import Attempt as Attempt
from .forward import Forward as Forward
from .forward import Step as Step
from .whatif import WhatIf as WhatIf
from .whatif import what_if as what_if
