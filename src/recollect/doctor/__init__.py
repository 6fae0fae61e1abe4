"""One module an engine: reads its settings, changes nothing, and says what could be lost."""
