"""The promises, checked while a seed runs. Nothing here changes the simulated cluster."""
