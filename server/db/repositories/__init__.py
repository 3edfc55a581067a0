"""What is kept beside the event log: one repository for each noun."""
