"""Complex event processing: patterns over the events of a key, in the order of their times.

syntax       the pattern language: text to tree
automaton    tree to instructions, and what a match may do next
table        the automaton as a lazily built table, where rows alone decide
expressions  conditions and measures: text to tree
values       tree to functions of a row and of what was matched before
skip         where the search goes on after a match
groups       partial matches by the table: starts that are in the same state move together
runs         partial matches one by one: conditions on earlier rows, timed negation, every match
engine       `Match`, the logic of one key: rows wait for the watermark, then meet the partial matches
"""
