#!/bin/sh
# In the place of Python: notes in $LOG what it is to draw, and the data.
shift 2
echo "$@" >> "$LOG"
cat >> "$LOG"
echo >> "$LOG"
