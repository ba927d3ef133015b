"""A script as what is submitted: its interpreter, and the options in its header.

`#FAIRWAY --gpus 2 --time-limit 2h` lines before the first command are options, which the command line overrules.
`#SBATCH` lines there are translated (sbatch.py). The header is read here, the script itself is not changed.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from .main import Command, Problem
from .sbatch import Import, imported, ours

HEADER_BYTES, SCRIPT_BYTES = 65_536, 100_000
INTERPRETERS = {".py": "python3", ".sh": "bash", ".bash": "bash", ".jl": "julia", ".r": "Rscript", ".R": "Rscript"}
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


@dataclass(frozen=True, slots=True)
class Script:
    """A file that is submitted. `interpreter`: the words before it; none where it runs by itself. `sbatch`: what its
    #SBATCH lines say, if it has any."""

    path: str
    interpreter: tuple[str, ...]
    options: tuple[str, ...]
    sbatch: Import | None
    text: str

    def argv(self, rest: Sequence[str], *, is_process: bool) -> list[str]:
        """The words that run it. A cluster does not have the file, and Slurm keeps a copy of the script: there its
        text goes along."""
        by = self.interpreter or _interpreter(self.text)
        is_shell = bool(by) and os.path.basename(by[-1]) in SHELLS
        if is_shell and (self.sbatch or not is_process):
            if len(self.text.encode()) > SCRIPT_BYTES:
                raise Problem(f"{self.path}: is longer than {SCRIPT_BYTES} bytes; submit a short one that calls it")
            return [*by, "-c", self.text, self.path, *rest]
        place = self.path if os.sep in self.path else f".{os.sep}{self.path}"
        return [*self.interpreter, place, *rest]

    def line_of(self, error: click.UsageError) -> str:
        """`line 3: `, of the header's first line with the option that an error is about; "" where none has it."""
        said, param = getattr(error, "option_name", ""), getattr(error, "param", None)
        params = error.ctx.command.params if error.ctx else ()
        names = {said, *(name for it in params if it is param or said in it.opts for name in it.opts)}
        lines = [(number, line) for number, line in enumerate(self.text.splitlines(), 1) if line.startswith("#FAIRWAY")]
        words = ((number, word.partition("=")[0]) for number, line in lines for word in line.split())
        return next((f"line {number}: " for number, word in words if word in names), "")


def script_of(word: str, folder: str = ".") -> Script | None:
    """The file that a word names, where it is a script to be run by an interpreter, or one with a header."""
    path = Path(folder, word)
    if not path.is_file() or (os.sep not in word and not path.suffix):
        return None
    try:
        text = path.read_text(errors="surrogateescape")
    except OSError as error:
        raise Problem(f"{word}: cannot be read: {error.strerror}") from error
    if "\0" in text[:HEADER_BYTES]:
        return None
    by = () if os.access(path, os.X_OK) and text.startswith("#!") else _interpreter(text)
    if not by and not text.startswith("#!"):
        by = tuple(filter(None, [INTERPRETERS.get(path.suffix, "")]))
    header = _header(text[:HEADER_BYTES])
    found = Script(word, by, tuple(_options(word, header)), imported(word, text, header), text)
    return found if by or found.options or found.sbatch else None


def _interpreter(text: str) -> tuple[str, ...]:
    first = text.partition("\n")[0]
    words = tuple(first[2:].split()) if first.startswith("#!") else ()
    return words[1:] if words[:1] == ("/usr/bin/env",) and words[1:2] != ("-S",) else words


def _header(text: str) -> list[str]:
    """The comment lines before the first command."""
    found = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        found.append(line)
    return found


def _options(path: str, header: Sequence[str]) -> list[str]:
    found = []
    for number, line in enumerate(header, 1):
        if line.startswith("#FAIRWAY"):
            try:
                found += shlex.split(line.removeprefix("#FAIRWAY"), comments=True)
            except ValueError as error:
                raise Problem(f"{path}: line {number}: {error}") from error
    return found


@contextmanager
def of_sbatch() -> Iterator[None]:
    """Answers an option of sbatch with what stands for it here."""
    try:
        yield
    except click.NoSuchOption as error:
        if advice := ours(error.option_name):
            raise Problem(f"{error.option_name} is an option of sbatch; here {advice}") from error
        raise


class Submit(Command):
    """A command whose first argument may be a script with options of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        with of_sbatch():
            rest = super().parse_args(ctx, args)
        command = ctx.params.get("command") or ()
        folder = ctx.params.get("chdir") or "."
        script = script_of(command[0], folder) if command and not ctx.params.get("file") else None
        if script and (script.options or script.sbatch):
            translated = script.sbatch.options if script.sbatch else ()
            own = [*translated, *script.options]
            if "--" in own:
                raise Problem(f"{script.path}: its header holds more than options")
            ctx.params.clear()
            try:
                rest = super().parse_args(ctx, [*own, *given])
            except click.UsageError as error:
                raise Problem(f"{script.path}: {script.line_of(error)}{error.format_message()}") from error
            if ctx.params["command"] != command:
                raise Problem(f"{script.path}: the options in its header cannot be read: {' '.join(own)}")
        ctx.params["script"] = script
        return rest
