"""The GPUs of this host behind the `Devices` port: vendor units are converted here and nowhere else.

What belongs here: one reader a vendor, which lives in a helper process, and the parent's side of that process.
Always true: a vendor library is imported by the helper when it opens, never by the daemon.
"""
