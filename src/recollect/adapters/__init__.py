"""recollect's stores as the memory of agent frameworks: one module each, imported by whoever uses that framework.

Nothing else of recollect imports these, and they do not import each other. What they share is `carrying`.
"""
