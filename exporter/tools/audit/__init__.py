"""How much the checks can see: a sound file is changed in many small ways, and each change judged.

In: a `PublishRequest`: a cell that passed, a count of mutants and a seed. Out: an `Audit`: how many of
the mutants a check caught, which do not change what the contract promises, and which survived.
"""
