"""The only writers: settings through a pool of workers, and hbatune's own state."""
