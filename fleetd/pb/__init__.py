"""Generated protobuf code, made by `protos/generate.py`, committed and never edited. Imports nothing of fleetd."""
