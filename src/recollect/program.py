"""Where the program `recollect` begins.

Importing a command takes a good part of a second, in which nothing has been begun that would have to be ended: an
interrupt then ends the program at once, as it does any other, without a traceback through other people's modules. From
there on interrupts are the command's (`recollect.cli`).
"""

import signal


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from recollect.cli import main as run

    run()
