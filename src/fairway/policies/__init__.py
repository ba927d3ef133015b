"""The named policies: each a few choices of `Policy` put together."""

from .presets import PRESETS as PRESETS
from .presets import least_attained as least_attained
from .presets import valued as valued
