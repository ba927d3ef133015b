"""A cluster written down in files: read as one world, decided, and told as plain values."""

from .answer import answer_of as answer_of
from .reader import FORMS as FORMS
from .reader import read as read
from .whatif import Case as Case
from .whatif import explained as explained
