"""What is known of each part, a YAML file for each: `part` (the words), `reading` (strict), `shelf` (which there are).

What belongs here: published constants with their source, and what was fitted to measurements, with date and driver.
Always true: what nobody published or measured is null; nothing here imports torch, or decides anything.
"""
