"""One file a schema. What is here may import SQLAlchemy and Alembic, and nothing of fleetd that can change.

Always true: a migration runs inside the transaction of `stores.upgrade`; it succeeds whole, or the file is as it was.
"""
