"""What a machine's facts give reason to look at: pure functions from facts and policy to findings.

This room stands to the right of ``plan``: it knows facts, settings and policy and does no I/O. A
new check is one function and one entry in ``registry``; what it says to people is in ``cli``.
"""
