"""What every ring of the tests needs."""

import signal

# A shell that starts the tests in the background has them ignore Ctrl-C, and all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
