"""Kept for its address, `python -m recollect.verify.analyze`; the code is in `recollect.verify.judging.analyze`."""

import sys

from recollect.verify.judging.analyze import main

if __name__ == "__main__":
    sys.exit(main())
