"""The kit: puts any memory store on a real engine, breaks it with real faults, and shows what was lost."""
