"""The audit: it makes many small changes to a proved file and counts the changes that checks miss.

Input: an `AuditRequest` with a cell that passed, the number of mutants and a seed. Output: an
`Audit` with the number of mutants that a check caught, that stay inside the contract, and that
survived.
"""
