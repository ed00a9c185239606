"""Simulated devices and candidates whose truth is known, and searches among them, as a test kit.

``devices``     closed loops: disks, SSDs, volumes, shared arrays, simulated I/O by I/O
``runs``        depth searches on them under noise, beside the sweep of the powers of two
``candidates``  tournaments of settings whose scores are known
"""
