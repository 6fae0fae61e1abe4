"""What every command's exit code says."""

HELD = 0
"""Nothing that should have been kept was lost, or the command did what was asked."""
VIOLATED = 1
"""Something that must not be lost was lost, can be lost, or can no longer be found."""
USAGE = 2
"""The command cannot do what was asked; the message says what it can do."""
INCONCLUSIVE = 3
"""Nothing could be concluded; this is not a success."""
INTERNAL = 4
"""A bug in recollect."""
