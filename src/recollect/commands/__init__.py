"""The commands of `recollect`, one module each. They parse, call, print; they decide nothing."""
