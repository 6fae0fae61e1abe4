"""What goes wrong with a service under test."""

from recollect.errors import RecollectError


class ServiceFailed(RecollectError):
    """The service did not start, answer or stop as it should; its output is in the message."""
