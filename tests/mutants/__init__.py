"""Files as no hbatune writes them: mutants of real ones, and what must be true of each."""
