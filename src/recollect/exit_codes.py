"""What every command's exit code says."""

HELD = 0
"""Nothing was lost that should have been kept, or what was asked for is done."""
VIOLATED = 1
"""Something that must not be lost was lost, can be lost, or is no longer found."""
USAGE = 2
"""What was asked for cannot be done as it was asked for; the message says what can."""
INCONCLUSIVE = 3
"""Nothing could be concluded; this is not a success."""
INTERNAL = 4
"""A bug of ours."""
