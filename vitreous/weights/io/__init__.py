"""Other people's weight files: read without running their code, written atomically."""
