"""What happened: recorded, stored, drawn."""
