"""A model of what the kernel does with writes to a disk's sysfs files, as a test kit.

``model``       the rules of the block layer and the SCSI midlayer, 6.1 and 6.12, in memory
``tree``        a small machine of modelled disks, mirrored into files that hbatune can read
``seams``       every place where hbatune is made to run on the model; nothing else names them
``sequences``   random sequences of commands, administrators, events and failures, from seeds
``invariants``  what has to hold after each step, and which of it is asserted
``kills``       SIGKILL at random system calls of real commands on a generated tree

The model is held against the real kernels by ``tests/lab/guest/test_kernel_model.py``. A seed is
run again with ``python -m tests.kernel SEED``, which prints the steps of the shortest sequence
that still violates an invariant.
"""
