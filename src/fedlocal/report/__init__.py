"""Tables on a terminal and figures as PNG files."""
