"""`./tutorial diff`: what each stage changes in the stage that it grows out of.

source      the code of a file: its lines without comments, blank lines and #include lines
stage       the stage files, and what their opening comments say about where they come from
difference  the lines that two files do not share
show        a difference and the table of all stages, for a terminal
page        the same table in docs/stages.md
rules       what CI checks of the stages
includes    what CI checks of the headers that a chapter includes
"""
