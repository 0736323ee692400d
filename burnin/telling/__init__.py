"""What a run tells people and programs.

What belongs here: the terminal and the JSON lines of a run (`progress` `streams`), its report and files (`result`
`report` `page`; `rows` are the tables), and what travels to other hosts (`ballots`). Always true: nothing here decides
anything; a report that cannot be written goes to stderr, whole.
"""
