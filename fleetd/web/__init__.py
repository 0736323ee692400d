"""The HTTP side of the controller: `/api/v1`, service discovery, hooks, the page.

What belongs here: who may come in, and the translation between HTTP and the `DeskDoor` and `FleetView`; it imports
ports and model only. Always true: it decides nothing about a host, and nothing from outside becomes markup or a path.
"""
