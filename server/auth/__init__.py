"""Authentication, origins, and encryption at rest."""
