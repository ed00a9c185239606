"""A host's facts and policy in one small file that gives the same answer on any machine."""
