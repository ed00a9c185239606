"""A model of the kernel's handling of writes to a disk's sysfs files, as a test kit.

``model``       the rules of the block layer and the SCSI midlayer, 6.1 and 6.12, in memory
``tree``        a small machine of modelled disks, mirrored into files that hbatune can read
``seams``       the only place that replaces parts of hbatune, so that it runs on the model
``sequences``   random sequences of commands, administrators, events and failures, from seeds
``invariants``  the invariants that must hold after each step, and which are asserted
``ptrace``      a fork of the test process that is stopped at each of its system calls
``kills``       SIGKILL at random system calls of real commands on a generated tree
``calls``       the system calls that may be failed, and the ways in which each can really fail
``faults``      single failed or hanging system calls of real commands on a generated tree

``tests/lab/guest/test_kernel_model.py`` compares the model with the real kernels. To reproduce a
failing seed, run ``python -m tests.kernel SEED``: it prints the steps of the shortest sequence that
still violates an invariant.
"""
