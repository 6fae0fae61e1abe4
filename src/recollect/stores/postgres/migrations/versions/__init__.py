"""Schema revisions, numbered from 0001. A released revision is never edited: the next one changes the schema."""
