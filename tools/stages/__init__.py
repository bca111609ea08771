"""`./tutorial diff`: what a reader meets for the first time in each stage.

source      the code of a file: its lines without comments, blank lines and #include lines
stage       the stage files, and what their opening comments say about where they come from
difference  the lines that two files do not share
reading     the new reading of a stage: the lines that it changes, and the files that no stage before it has reached
show        a difference, the files of a stage and the table of all stages, for a terminal
page        the same table in docs/stages.md
rules       what CI checks of the stages
over        the list of the stages that are longer than the limit
goals       how short the stages are to become
includes    what CI checks of the headers that a chapter includes
"""
