"""Hours of misfortune in minutes: `make soak`."""
