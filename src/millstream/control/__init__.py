"""What should be, what is, and closing the gap."""
