"""Measure the effects of settings with short fio runs, which only read unless a disk was named."""
