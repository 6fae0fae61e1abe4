"""Where the program `recollect` begins.

Importing a command takes a good part of a second, during which nothing has started that would need cleaning up: an
interrupt then ends the program at once, without a traceback through other people's modules. After that, the command
handles interrupts (`recollect.cli`).

What is imported stays, so the collector of garbage waits until that is done: it would take a seventh of the time.
"""

import gc
import signal


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()
    from recollect.cli import main as run

    run()
