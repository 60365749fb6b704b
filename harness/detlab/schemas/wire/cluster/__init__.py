"""What is said with the master of itself."""
