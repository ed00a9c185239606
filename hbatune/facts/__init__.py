"""What is there: udev and sysfs, read once into frozen values. No other room reads sysfs."""
