"""What is simulated: masters, nodes, trials, the network, clouds, and their faults. No promise is checked here."""
