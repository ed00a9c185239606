"""The only room that writes: settings, through disposable workers, and hbatune's own files."""
