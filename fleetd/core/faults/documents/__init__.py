"""What people paste when they ask for help: the output of vendor tools, exporters and other agents.

What belongs here: one reader a format, which turns a document into observations. May import: `re`, `json`, the XML
tokeniser, and `fleetd.core.faults.observation`.
Always true: what looks like trouble and is not known is listed as unrecognised; a value that a tool could not read
(`N/A`, a blank number) is no value; no input makes a reader raise.
"""
