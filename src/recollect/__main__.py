"""`python -m recollect` is `recollect`."""

from recollect.program import main

main()
