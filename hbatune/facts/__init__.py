"""Read the facts of a machine from udev and sysfs into frozen values, and never write them."""
