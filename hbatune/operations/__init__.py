"""What hbatune does, from the lock to the report, for commands and daemon alike. No text here."""
