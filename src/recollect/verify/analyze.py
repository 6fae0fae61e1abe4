"""Kept for its address, `python -m recollect.verify.analyze`; the code is in `recollect.verify.report.one_history`."""

import sys

from recollect.verify.report.one_history import main

if __name__ == "__main__":
    sys.exit(main())
