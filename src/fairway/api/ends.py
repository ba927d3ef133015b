"""How a container ended, in words. Imports nothing heavy: commands ask too."""

SIGNALS = {2: "SIGINT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}

SYNC = "fairway-sync"
"""The init container that unpacks the files of `submit --sync`."""


def end_message(container: str, message: str) -> str:
    """What a container said as it ended; where it could not unpack files, also what that means."""
    has_no_tar = container == SYNC and "executable file" in message
    return f"the image has no tar, which --sync needs: {message}" if has_no_tar else message


def exit_words(code: int, reason: str = "", message: str = "") -> str:
    """The exit code, and what the runner or the kernel says of it: `exit code 1`, `out of memory (exit code 137)`."""
    said = f"exit code {code}"
    if reason == "OOMKilled":
        return f"out of memory ({said})"
    if message:
        return f"{message} ({said})"
    return f"{said} ({SIGNALS[code - 128]})" if code - 128 in SIGNALS else said
