"""recollect's stores as the memory of agent frameworks: one module each, imported by whoever uses that framework.

Nothing else in recollect imports these, and they do not import each other. What they share is in `carrying`.
"""
