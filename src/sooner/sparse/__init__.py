"""What makes a model compute less than it was trained to: approximate, and marked so in results."""
