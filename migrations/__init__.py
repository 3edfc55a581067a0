"""The database schema and its history (Alembic); `server.db.database` applies what is missing when the server starts.

A change of `server.db.tables` needs a new module in `versions`, made from its siblings' shape, and its name as
`server.db.database.HEAD`; the tests in `tests/migrations` fail until the steps and the tables agree.
"""
