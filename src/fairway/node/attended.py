"""Containers that a person talks to: those with `stdin` and `stdinOnce`, as `kubectl run -i` makes them.

A container's own input is empty and its output goes to its log. So the process of such a container (KEEPER) only waits,
at a pipe in its folder for temporary files. Its command runs (ENTER) when a client attaches, beside it as `exec` runs
one: with the client's input and terminal. What it ends with is written to the pipe, and the container ends with that;
so it does where the client goes before.
"""

from collections.abc import Mapping, Sequence
from typing import Any

PLACE = 'f="${TMPDIR:-/tmp}/.fairway-$FAIRWAY_POD_UID"'
KEEPER = f'{PLACE}; rm -f "$f"; mkfifo -m 600 "$f" || exit 1; read -r code <"$f"; rm -f "$f"; exit "$code"'
ENTER = f"""
{PLACE}
until [ -p "$f" ]; do sleep 0.1; done
trap : HUP INT QUIT TERM
"$@"
code=$?
echo "$code" >"$f"
exit "$code"
"""
_SHELL = ("sh", "-c")


def is_attended(container: Mapping[str, Any]) -> bool:
    return bool(container.get("stdin") and container.get("stdinOnce"))


def kept(container: Mapping[str, Any], argv: Sequence[str]) -> list[str]:
    """What the container's own process runs."""
    return [*_SHELL, KEEPER, "sh", *argv] if is_attended(container) else list(argv)


def entered(argv: Sequence[str]) -> list[str]:
    """What runs for a client, from what the container's own process runs."""
    return [*_SHELL, ENTER, *argv[len(_SHELL) + 1 :]]
