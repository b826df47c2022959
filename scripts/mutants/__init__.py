"""Mutants must die: each safety-relevant line of the product is taken out, one at a time, and a named test goes red.

mutant     one entry of the table: which promise breaks, the text and what replaces it, the tests that must notice
table/     the mutants, by the part of the product that they are of
ground     a copy of the tree in which they are planted; the real one is never touched
trial      the named tests, run against the copy; what they said
witness    the pytest plugin that writes down what they said
running    the tests on the copy as it is, then every mutant; what was found is kept, so that a run can go on later
page       docs/mutants.md

A mutant is killed by a test that fails, or whose own last check fails: not by code that cannot be loaded, by SQL that
cannot be read, or by a fixture that cannot be set up. One that nobody notices is a missing test.
"""
