"""What the settings do: a short fio run that reads only, measured the same way every time."""
