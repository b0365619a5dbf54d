"""Tables and figures that people like to look at."""
