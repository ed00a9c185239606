"""A profile compiled into udev rules, so that a disk is tuned the moment it appears. Pure."""
