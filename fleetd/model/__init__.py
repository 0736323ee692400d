"""The vocabulary: frozen, slotted, keyword-only dataclasses and enumerations that everything else speaks in.

What belongs here: words and their units, no behaviour beyond derived properties. Imports the standard library only.
Always true: `None` means not supported or not read; a unit is the last word of a quantity's name.
"""
