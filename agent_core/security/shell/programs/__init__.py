"""What is known of single programs."""
