"""The program `fairway`, which is `kubectl fairway` and `python -m fairway` too.

While it loads its command, and after that has ended, Ctrl-C ends the process as it ends any program: without a word.
"""

import signal


def start() -> None:
    """Runs the command, which answers Ctrl-C itself. A signal that is ignored, as after `nohup`, stays ignored."""
    is_answered = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_answered:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from fairway.cli.main import main

    try:
        if is_answered:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    finally:
        if is_answered:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    start()
