"""Metrics for Prometheus: `config` (where), `server` (HTTP), `page` (the text), and collectors, which make families.

A collector reads snapshots only, on a server thread; label sets are closed. Imports model and ports, decides nothing.
"""
