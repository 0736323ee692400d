"""A child process for each GPU: started, asked, watched, ended.

What belongs here: the parent's side (`children`), what is said (`wire`), the child's (`preload` `child` `backends`),
and what a GPU feels meanwhile, by the vendor's library (`senses` `readers`). Always true: the parent imports no torch
and never waits without a deadline; a crash, a hang and a wrong result are told apart here and judged elsewhere.
"""
