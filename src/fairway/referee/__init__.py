"""The referee: `check` says what a plan would break. It knows what is promised, and nothing of how a plan is made."""

from .rules import RULES as RULES
from .rules import check as check

