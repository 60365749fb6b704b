"""How long the texts may be that people write about their work: in a config, and in an edit of what it made."""

TITLE_CHARS = 1000
DESCRIPTION_CHARS = 10_000
NOTES_CHARS = 100_000
LABEL_CHARS = 200
MOST_LABELS = 100
