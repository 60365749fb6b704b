"""Operations on what is laid under and over configs: templates and config policies."""
